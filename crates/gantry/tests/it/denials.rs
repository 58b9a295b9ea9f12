//! A denial denies in the whole product: every tool, by every way in, for everybody who comes that way. The inputs are those of
//! the matrix behind the gate, so each call would have its effect if it were let through.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gantry_model::testing::Turn;
use serde_json::{Value, json};

use crate::gateway::Up;
use crate::gateway::peers::{Client, runtime};
use crate::mcp::http::Session;
use crate::sessions::{Model, call, post, results};

#[expect(dead_code, reason = "of the list of inputs, only those that are valid")]
#[path = "../../../gantry-toolsets/tests/it/probes.rs"]
mod probes;

const RULE: &str =
    "\n[[policy.rules]]\nname = \"stop-it\"\ntool = \"*\"\ndecision = \"deny\"\nreason = \"as tested\"\n";
const AUTONOMIES: [&str; 3] = ["supervised", "guided", "autonomous"];

#[test]
fn every_tool_is_denied_by_every_way_in() {
    let tools = std::sync::Arc::new(std::sync::Mutex::new(Vec::<(String, Value)>::new()));
    let model = Model::deciding({
        let tools = tools.clone();
        move |heard| match tools.lock().unwrap().get(results(heard)) {
            Some((name, input)) => call(&name.replace("::", "__"), input.clone()),
            None => Turn::text("done"),
        }
    });
    let world = model.world("autonomy = \"guided\"");
    let config = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
    let agents =
        AUTONOMIES.map(|autonomy| format!("[agents.{autonomy}]\nautonomy = \"{autonomy}\"\n")).concat();
    world.configure(&format!("{config}{agents}{RULE}"));
    world.write("plain.txt", "a secret that must stay\n");
    let before = tree(&world.workspace());

    let listed = world.run(&["tools", "--json"]).json();
    let listed = listed.get("tools").unwrap_or(&listed).as_array().unwrap().clone();
    let names = listed.iter().map(|tool| match (tool["name"].as_str().unwrap(), tool["toolset"].as_str()) {
        (name, Some("node")) if !name.contains("__") => format!("local__{name}"),
        (name, _) => name.to_owned(),
    });
    let all: Vec<(String, Value)> = names
        .map(|name| {
            let input = probes::valid_input(&name, &world.workspace());
            (name, input)
        })
        .collect();
    assert!(all.len() > 30, "{}", all.len());
    *tools.lock().unwrap() = all.clone();

    let up = Up::start(&world);
    let token = up.client_token(&world, "friend", &[]);
    let bearer = format!("Bearer {token}");
    let path = "/mcp?tools=*";
    let (mcp, mcp_friend) =
        (Session::open(&up, path, &up.token, "2025-11-25"), Session::open(&up, path, &token, "2025-11-25"));
    let runtime = runtime();
    let sockets = [&up.token, &token].map(|token| runtime.block_on(Client::connect(&up, token)).unwrap());
    let denied = |told: &str, name: &str, way: &str| {
        assert!(told.contains("as tested"), "{name} by {way}: {told}");
    };
    for (name, input) in &all {
        denied(&up.call(name, input).text(), name, "HTTP, the operator");
        denied(&up.call_with(name, input, &[("Authorization", &bearer)]).text(), name, "HTTP, a token");
        for (socket, who) in sockets.iter().zip(["the operator", "a token"]) {
            let told = runtime.block_on(socket.call(name, input.clone()));
            denied(&format!("{told:?}"), name, &format!("WebSocket, {who}"));
        }
        let params = json!({"name": name.replace("::", "__"), "arguments": input});
        for (session, who) in [(&mcp, "the operator"), (&mcp_friend, "a token")] {
            denied(&session.ask("tools/call", &params).to_string(), name, &format!("MCP, {who}"));
        }
        let ran = world.run(&["call", name, &input.to_string(), "--local"]);
        let told = format!("{}{}", ran.stdout, ran.stderr);
        denied(&told, name, "the command line");
        assert_eq!(ran.code, 3, "{name}: {told}");
    }
    for autonomy in AUTONOMIES {
        let key = format!("agent:{autonomy}:denials");
        let told = post(&up, &key, &json!({"message": "try everything"}), &[]).json();
        assert_eq!(told["status"], "final", "{told}");
        let history = up.get(&format!("/v1/sessions/{key}/events?limit=1000")).json();
        let events = history["events"].as_array().unwrap().iter();
        let ended: Vec<&Value> = events.filter(|event| event["kind"] == "call_ended").collect();
        assert_eq!(ended.len(), all.len(), "{autonomy}");
        for (ended, (name, _)) in ended.into_iter().zip(&all) {
            denied(&ended.to_string(), name, &format!("a session, {autonomy}"));
        }
    }
    assert_eq!(tree(&world.workspace()), before);
    // Nor among the objects.
    let planted = tree(&world.data()).into_keys().find(|path| path.ends_with("planted-file"));
    assert_eq!(planted, None);
    model.check();
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                files.insert(path.clone(), std::fs::read(&path).unwrap());
            }
        }
    }
    files
}
