//! A denial holds in the whole product: for every tool, surface and principal. The inputs are those of
//! the matrix behind the gate, so each call would have its effect if it were let through.

use std::collections::BTreeMap;

use gantry_model::testing::Turn;
use gantry_testkit::Gateway;
use gantry_testkit::peers::{Client as Socket, runtime};
use serde_json::{Value, json};

use crate::mcp::Client;
use crate::mcp::http::Session;
use crate::mcp::servers::Fake;
use crate::sessions::{Far, Model, call, post, results};

#[expect(dead_code, reason = "of the list of inputs, only those that are valid")]
#[path = "../../../../gantry-toolsets/tests/it/probes.rs"]
mod probes;

const RULE: &str =
    "\n[[policy.rules]]\nname = \"stop-it\"\ntool = \"*\"\ndecision = \"deny\"\nreason = \"as tested\"\n";
const AUTONOMIES: [&str; 3] = ["supervised", "guided", "autonomous"];

#[test]
fn every_tool_is_denied_on_every_surface() {
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
    let server = Fake::added(&world, "post");
    let listed = world.run(&["tools", "--json"]).json();
    let listed = listed.get("tools").unwrap_or(&listed).as_array().unwrap().clone();
    let names = listed.iter().filter(|tool| tool["toolset"] != "mcp").map(|tool| {
        match (tool["name"].as_str().unwrap(), tool["toolset"].as_str()) {
            (name, Some("node")) if !name.contains("__") => format!("local__{name}"),
            (name, _) => name.to_owned(),
        }
    });
    let mut all: Vec<(String, Value)> = names
        .map(|name| {
            let input = probes::valid_input(&name, &world.workspace());
            (name, input)
        })
        .collect();
    assert!(all.len() > 30, "{}", all.len());
    // Those of others: a server's tool, and another machine's, also by its bare name and on all machines.
    all.push(("post__echo".into(), json!({"text": "x"})));
    all.push(("far__Bash".into(), json!({"command": "echo x > planted-file"})));
    all.push(("Bash".into(), json!({"command": "echo x > planted-file", "node": "far"})));
    all.push(("Bash".into(), json!({"command": "echo x > planted-file", "node": "*"})));
    *tools.lock().unwrap() = all.clone();
    let started = server.pids().len();
    let before = gantry_testkit::files_below(&world.workspace());

    let up = Gateway::start(&world);
    let far = Far::join(&world, &up);
    let token = up.client_token(&world, "friend", &["--agents", "*"]);
    let bearer = format!("Bearer {token}");
    let path = "/mcp?tools=*";
    let (mcp, mcp_friend) =
        (Session::open(&up, path, &up.token, "2025-11-25"), Session::open(&up, path, &token, "2025-11-25"));
    let mut stdio =
        [&["--tools", "*"][..], &["--tools", "*", "--local"]].map(|args| Client::new(&world, args));
    let runtime = runtime();
    let sockets = [&up.token, &token].map(|token| runtime.block_on(Socket::connect(&up, token)).unwrap());
    let denied = |reported: &str, name: &str, way: &str| {
        assert!(reported.contains("as tested"), "{name} by {way}: {reported}");
    };
    for (name, input) in &all {
        let is_elsewhere =
            !name.starts_with("local__") && (name.contains("Bash") || name.starts_with("post"));
        for (who, headers) in [("the operator", &[][..]), ("a token", &[("Authorization", &*bearer)])] {
            denied(&up.call_with(name, input, headers).text(), name, &format!("HTTP, {who}"));
            for agent in AUTONOMIES {
                let headers = [headers, &[("Gantry-Agent", agent)]].concat();
                denied(&up.call_with(name, input, &headers).text(), name, &format!("HTTP, {who} as {agent}"));
            }
        }
        for (socket, who) in sockets.iter().zip(["the operator", "a token"]) {
            let reported = runtime.block_on(socket.call(name, input.clone()));
            denied(&format!("{reported:?}"), name, &format!("WebSocket, {who}"));
        }
        let spelled = name.replace("::", "__");
        let params = json!({"name": spelled, "arguments": input});
        for (session, who) in [(&mcp, "the operator"), (&mcp_friend, "a token")] {
            denied(&session.ask("tools/call", &params).to_string(), name, &format!("MCP, {who}"));
        }
        for (client, way) in stdio.iter_mut().zip(["MCP over a pipe, by the gateway", "MCP over a pipe"]) {
            if !is_elsewhere || way.ends_with("gateway") {
                denied(&client.call(&spelled, input).to_string(), name, way);
            }
        }
        for (way, more) in [("the command line", &["--local"][..]), ("the command line, by the gateway", &[])]
        {
            if is_elsewhere && !more.is_empty() {
                continue;
            }
            let ran = world.run(&[&["call", name, &input.to_string()], more].concat());
            let reported = format!("{}{}", ran.stdout, ran.stderr);
            denied(&reported, name, way);
            // All machines together: each says no, which is an answer.
            assert_eq!(ran.code, if input["node"] == "*" { 1 } else { 3 }, "{name} by {way}: {reported}");
        }
    }
    for autonomy in AUTONOMIES {
        let run_of = |key: &str, way: &str| {
            let history = up.get(&format!("/v1/sessions/{key}/events?limit=1000")).json();
            let events = history["events"].as_array().unwrap().iter();
            let ended: Vec<&Value> = events.filter(|event| event["kind"] == "call_ended").collect();
            assert_eq!(ended.len(), all.len(), "{way}, {autonomy}");
            for (ended, (name, _)) in ended.into_iter().zip(&all) {
                denied(&ended.to_string(), name, &format!("{way}, {autonomy}"));
            }
        };
        let key = format!("agent:{autonomy}:denials");
        let reported = post(&up, &key, &json!({"message": "try everything"}), &[]).json();
        assert_eq!(reported["status"], "final", "{reported}");
        run_of(&key, "a session");
        let body = json!({"model": autonomy, "messages": [{"role": "user", "content": "try everything"}]});
        let headers = [("Gantry-Session", "completions"), ("Authorization", &*bearer)];
        let reported = up.ask("POST", "/v1/chat/completions", &headers, body.to_string().as_bytes());
        assert_eq!(reported.status, 200, "{reported:?}");
        run_of(&format!("agent:{autonomy}:completions"), "chat completions");
        let chat = ["chat", "--agent", autonomy, "--session", "chat", "try everything"];
        let ran = world.run(&chat);
        assert_eq!(ran.code, 0, "{ran:?}");
        run_of(&format!("agent:{autonomy}:chat"), "gantry chat");
    }
    assert_eq!(gantry_testkit::files_below(&world.workspace()), before);
    assert_eq!(gantry_testkit::files_below(&far.world.workspace()), BTreeMap::new());
    assert_eq!(server.pids().len(), started, "a server was started for a call that is denied");
    // Nor among the objects.
    let planted =
        gantry_testkit::files_below(&world.data()).into_keys().find(|path| path.ends_with("planted-file"));
    assert_eq!(planted, None);
    model.check();
}
