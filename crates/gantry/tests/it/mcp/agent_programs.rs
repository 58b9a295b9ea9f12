//! Agents that others have written, as a user runs them: `gantry mcp install` registers Gantry, a scripted model calls its
//! tool, and the agent prints the result. `cargo xtask setup` installs the agents.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use gantry_model::testing::{KEY, Turn};
use gantry_testkit::{Process, World};
use serde_json::{Value, json};

use super::clients::{installed, ran};
use crate::sessions::{Model, call, results};

fn install(world: &World, client: &str) {
    let installing = world.run(&["mcp", "install", client, "--yes"]);
    assert_eq!(installing.code, 0, "{}", installing.stderr);
}

/// The events that an agent prints, one line each.
fn events(reported: &str) -> Vec<Value> {
    let parsed = |line| serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
    reported.lines().map(parsed).collect()
}

#[test]
fn codex_calls_a_tool() {
    let world = World::new();
    world.write("a.txt", "read by codex\n");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp/responses_server.py");
    let mut model = Process::spawn(Command::new("python3").arg(script).stdout(Stdio::piped()));
    let mut url = String::new();
    BufReader::new(model.child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let home = world.folder.path().join(".codex");
    std::fs::create_dir_all(&home).unwrap();
    let config = format!(
        "model = \"scripted-1\"\nmodel_provider = \"lab\"\napproval_policy = \"never\"\nsandbox_mode = \"read-only\"\n\
         [model_providers.lab]\nname = \"lab\"\nbase_url = \"{}/v1\"\nwire_api = \"responses\"\n",
        url.trim()
    );
    std::fs::write(home.join("config.toml"), config).unwrap();
    install(&world, "codex");
    let mut codex = Command::new(installed("node_modules/.bin/codex"));
    codex.args(["exec", "--skip-git-repo-check", "--json", "What does a.txt say?"]).stdin(Stdio::null());
    let events = events(&ran(&world, codex));
    let item = |kind: &str| {
        let found =
            events.iter().find(|event| event["type"] == "item.completed" && event["item"]["type"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {events:?}"))["item"].clone()
    };
    let called = item("mcp_tool_call");
    assert_eq!([&called["server"], &called["tool"], &called["status"]], ["gantry", "Read", "completed"]);
    let said = item("agent_message")["text"].to_string();
    assert!(said.contains("read by codex"), "{said}");
}

#[test]
fn opencode_calls_a_tool() {
    let world = World::new();
    world.write("a.txt", "read by opencode\n");
    // The model rejects the request for a title of the conversation, because it has two messages of the user in a row.
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("gantry_Read", json!({"path": "a.txt"})),
        _ => Turn::text(format!("Read returned: {}", heard.last_text())),
    });
    let limit = json!({"context": 100_000, "output": 8_000});
    let config = json!({
        "model": "lab/scripted-1", "small_model": "lab/scripted-1", "autoupdate": false, "share": "disabled",
        "provider": {"lab": {
            "npm": "@ai-sdk/openai-compatible", "name": "lab",
            "options": {"baseURL": model.base_url(), "apiKey": KEY},
            "models": {"scripted-1": {"name": "scripted-1", "tool_call": true, "limit": limit}},
        }},
    });
    let home = world.folder.path().join(".config/opencode");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("opencode.json"), config.to_string()).unwrap();
    install(&world, "opencode");
    let mut opencode = Command::new(installed("node_modules/.bin/opencode"));
    opencode.args(["run", "--format", "json", "What does a.txt say?"]).stdin(Stdio::null());
    // It works in PWD, as a shell sets it, and not in its working directory.
    opencode.env("PWD", world.workspace());
    for quiet in ["AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS"] {
        opencode.env(format!("OPENCODE_DISABLE_{quiet}"), "1");
    }
    let events = events(&ran(&world, opencode));
    let part = |kind: &str| {
        let found = events.iter().find(|event| event["type"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {events:?}"))["part"].clone()
    };
    let called = part("tool_use");
    assert_eq!([&called["tool"], &called["state"]["status"]], ["gantry_Read", "completed"], "{called}");
    let said = part("text")["text"].to_string();
    assert!(said.contains("read by opencode"), "{said}");
}
