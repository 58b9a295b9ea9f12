//! OpenAI's own client for Python against `/v1/chat/completions`. `cargo xtask setup` installs it.

use std::process::Command;

use gantry_model::testing::{Failure, Turn};
use serde_json::{Value, json};

use super::{Model, call, results};
use crate::gateway::Up;
use crate::mcp::clients::installed;

const CLIENT: &str = include_str!("openai.py");

fn model() -> Model {
    Model::deciding(|heard| match (heard.body["messages"].to_string(), results(heard)) {
        (said, 0) if said.contains("which file?") => call("Glob", json!({"pattern": "*.txt"})),
        (said, 1) if said.contains("which file?") => {
            let text = if heard.last_text().contains("a.txt") { "the file is a.txt" } else { "?" };
            Turn { piece: Some(3), ..Turn::text(text) }
        }
        (said, 0) if said.contains("write and fail") => call("Bash", json!({"command": "echo ran >> notes"})),
        (said, _) if said.contains("write and fail") => Turn::fail(Failure::Status {
            status: 400,
            retry_after: None,
            message: Some("the lab is closed".into()),
            location: None,
        }),
        (said, _) if said.contains("what do I like?") => {
            Turn::text(if said.contains("I like blue") { "blue" } else { "?" })
        }
        _ => Turn::text("hello"),
    })
}

#[test]
fn openais_python_client_uses_all_of_it() {
    let model = model();
    let world = model.world("autonomy = \"guided\"");
    world.write("a.txt", "x\n");
    let up = Up::start(&world);
    let mut python = Command::new(installed("venv/bin/python"));
    python.args(["-c", CLIENT, &format!("{}/v1", up.url)]).env("TOKEN", &up.token);
    let output = python.current_dir(world.workspace()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&seen["models"], &seen["one"]), (&json!(["main"]), &json!("main")));
    let whole = &seen["whole"];
    assert_eq!(
        [&whole["text"], &whole["finish"], &whole["role"], &whole["model"]],
        [&json!("the file is a.txt"), &json!("stop"), &json!("assistant"), &json!("main")]
    );
    let streamed = &seen["streamed"];
    assert_eq!((&streamed["text"], &streamed["finish"]), (&whole["text"], &json!("stop")), "{streamed}");
    assert!(streamed["pieces"].as_u64() > Some(3) && streamed["ids"] == 1, "{streamed}");
    assert!(streamed["total"] == whole["total"] && whole["total"].as_u64() > Some(0), "{seen}");
    assert_eq!(seen["helper"]["final"], whole["text"], "{seen}");
    assert!(seen["helper"]["events"].to_string().contains("content.done"), "{seen}");
    assert_eq!(seen["second"]["text"], "blue", "a named session is kept");
    // What one answer took, not what the session has taken since it began.
    let tokens = |name: &str| seen[name]["total"].as_u64().unwrap();
    assert!(tokens("second") < 2 * tokens("first"), "{seen}");

    let check = |name: &str, kind: &str, status: Value, part: &str| {
        let error = &seen[name];
        assert_eq!((&error["type"], &error["status"]), (&json!(kind), &status), "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    };
    check("unauthorized", "AuthenticationError", json!(401), "token");
    check("no_list", "AuthenticationError", json!(401), "token");
    check("unknown", "NotFoundError", json!(404), "did you mean \"main\"?");
    check("unknown_one", "NotFoundError", json!(404), "did you mean \"main\"?");
    assert_eq!(seen["unknown"]["code"], "model_not_found");
    check("tools", "BadRequestError", json!(400), "leave \"tools\" out");
    check("failed", "InternalServerError", json!(502), "the lab is closed");
    check("failed_streamed", "APIError", json!(null), "the lab is closed");
    // The client repeats what fails with 5xx by itself; a run may have had effects.
    let notes = std::fs::read_to_string(world.workspace().join("notes")).unwrap();
    assert_eq!(notes, "ran\nran\n", "each of the two runs had its effect once");
    model.check();
}
