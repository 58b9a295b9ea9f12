//! Clients that others wrote against `/v1/chat/completions`: OpenAI's for Python and Node, Vercel's AI SDK, LiteLLM and
//! LangChain. `cargo xtask setup` installs them.

use std::process::Command;
use std::time::Duration;

use gantry_model::testing::{Failure, Turn};
use gantry_testkit::{Gateway, eventually};
use serde_json::{Value, json};

use super::{Model, call, results};
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
fn openai_python_client_works() {
    let model = model();
    let world = model.world("autonomy = \"guided\"");
    world.write("a.txt", "x\n");
    let up = Gateway::start(&world);
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
    check("failed", "UnprocessableEntityError", json!(422), "the lab is closed");
    assert_eq!(seen["failed"]["code"], "agent_failed");
    check("failed_streamed", "APIError", json!(null), "the lab is closed");
    let notes = std::fs::read_to_string(world.workspace().join("notes")).unwrap();
    assert_eq!(notes, "ran\nran\n", "each of the two runs had its effect once");
    model.check();
}

/// Runs a client in a world with an agent. Returns what it printed and what the agent wrote.
fn seen_by(client: impl FnOnce(&str) -> Command) -> (Value, String) {
    let model = model();
    let world = model.world("autonomy = \"guided\"");
    world.write("a.txt", "x\n");
    let up = Gateway::start(&world);
    let mut client = client(&format!("{}/v1", up.url));
    client.env("TOKEN", &up.token).env("HOME", world.folder.path()).current_dir(world.workspace());
    let output = client.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let reported = String::from_utf8_lossy(&output.stdout);
    let last = reported.lines().last().unwrap_or_default();
    let seen = serde_json::from_str(last).unwrap_or_else(|err| panic!("{err}: {output:?}"));
    model.check();
    (seen, std::fs::read_to_string(world.workspace().join("notes")).unwrap())
}

fn check_answers(client: &str, seen: &Value) {
    assert_eq!(seen["whole"], "the file is a.txt", "{client}: {seen}");
    assert_eq!(seen["streamed"], "the file is a.txt", "{client}: {seen}");
    assert_eq!(seen["failed"]["status"], 422, "{client}: {seen}");
    assert!(seen["failed"]["message"].to_string().contains("the lab is closed"), "{client}: {seen}");
}

#[test]
fn node_clients_do_not_retry_a_failed_run() {
    let (seen, notes) = seen_by(|url| {
        let mut node = Command::new(installed("node_modules/node/bin/node"));
        node.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/sessions/openai.mjs"));
        node.arg(installed("node_modules")).arg(url);
        node
    });
    for client in ["openai", "vercel"] {
        check_answers(client, &seen[client]);
    }
    assert_eq!(notes, "ran\nran\n", "each client's run had its effect once");
}

fn check_framework(framework: &str, environment: &str) {
    let (seen, notes) = seen_by(|url| {
        let mut python = Command::new(installed(&format!("{environment}/bin/python")));
        python.args(["-c", include_str!("openai_frameworks.py"), framework, url]);
        // Prices come with the package instead of from the network.
        python.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        python
    });
    check_answers(framework, &seen);
    assert_eq!(notes, "ran\n", "the run had its effect once");
}

#[test]
fn litellm_does_not_retry_a_failed_run() {
    check_framework("litellm", "venv-litellm");
}

#[test]
fn langchain_does_not_retry_a_failed_run() {
    check_framework("langchain", "venv-agents");
}

fn ask(up: &Gateway, text: &str, session: &str, stream: bool) -> gantry_testkit::Response {
    let body = json!({"model": "main", "messages": [{"role": "user", "content": text}], "stream": stream});
    let headers = [("Content-Type", "application/json"), ("Gantry-Session", session)];
    up.ask("POST", "/v1/chat/completions", &headers, body.to_string().as_bytes())
}

/// The text of an answer, whole or streamed, and its last finish reason.
pub(super) fn said(answer: &gantry_testkit::Response, stream: bool) -> (String, Value) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    if !stream {
        let choice = answer.json()["choices"][0].clone();
        return (choice["message"]["content"].as_str().unwrap().to_owned(), choice["finish_reason"].clone());
    }
    let text = answer.text();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let frames = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let frames: Vec<Value> = frames.map(|rest| serde_json::from_str(&format!("{{{rest}")).unwrap()).collect();
    let choices = || frames.iter().map(|frame| &frame["choices"][0]);
    let content = choices().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
    (content, choices().next_back().unwrap()["finish_reason"].clone())
}

#[test]
fn pending_approval_response_explains_how_to_answer() {
    let model = Model::deciding(|heard| match (heard.body["messages"].to_string(), results(heard)) {
        (said, _) if said.contains("and now?") => Turn::text("as before"),
        (_, 0) => call("Bash", json!({"command": "echo ran >> notes"})),
        (said, _) => Turn::text(if said.contains("the user said no") { "denied" } else { "done" }),
    });
    let world = model.world("autonomy = \"supervised\"");
    let up = Gateway::start(&world);
    for stream in [false, true] {
        let notes = || std::fs::read_to_string(world.workspace().join("notes")).unwrap_or_default();
        let before = notes();
        // A conversation without a name waits too, although its client has gone.
        let session = if stream { "named" } else { "" };
        let answer = ask(&up, "run it", session, stream);
        let (text, finish) = said(&answer, stream);
        assert_eq!(finish, "stop");
        assert!(text.contains("\n    Run on local?  $ echo ran >> notes\n"), "{text}");
        let key = answer.header("gantry-session").unwrap().to_owned();
        let command = text.split("`gantry ").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
        let args: Vec<&str> = command.split(' ').collect();
        assert_eq!((args[..3].join(" "), args[5]), (format!("sessions answer {key}"), "yes"), "{text}");
        // The next message of the session meets the same question.
        let (again, _) = said(&ask(&up, "and now?", &key, stream), stream);
        assert_eq!(again, text);
        assert_eq!(notes(), before, "nothing ran yet");
        let answered = world.run(&args);
        assert_eq!(answered.code, 0, "{answered:?}");
        let status = || up.get(&format!("/v1/sessions/{key}")).json();
        eventually("the run is over", Duration::from_secs(30), || status()["running"].is_null());
        assert_eq!(notes(), format!("{before}ran\n"));
        let (last, _) = said(&ask(&up, "and now?", &key, stream), stream);
        assert_eq!(last, "as before");
    }
    model.check();
}
