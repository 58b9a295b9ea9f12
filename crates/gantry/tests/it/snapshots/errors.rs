//! Every error that a user can meet on the main paths: text on standard error, JSON on standard output.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use gantry_testkit::{Gateway, World};
use serde_json::{Value, json};

use super::{check, transcript, without_paths};

/// No model server of this machine takes part.
const NO_LOCAL_MODELS: [(&str, &str); 2] = [("OLLAMA_HOST", "127.0.0.1:1025"), ("LLAMA_ARG_PORT", "1025")];

/// Runs the commands, each of which must fail, and joins their transcripts.
fn failures(world: &World, variables: &[(&str, &str)], commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in commands {
        let variables: Vec<(&str, &str)> = NO_LOCAL_MODELS.iter().chain(variables).copied().collect();
        let ran = world.run_with(args, &variables);
        assert_ne!(ran.code, 0, "{args:?}: {} {}", ran.stdout, ran.stderr);
        text += &transcript(world, args, &ran);
        text.push('\n');
    }
    text
}

/// Returns a port on which nothing listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn usage_errors_match_their_snapshot() {
    let world = World::new();
    let text = failures(
        &world,
        &[],
        &[
            &["nosuch"],
            &["tols"],
            &["call"],
            &["call", "Read", "--nosuch"],
            &["call", "Read", "--deadline", "soon"],
            &["call", "Read", "--deadline", "999999999999h"],
            &["--color", "blue", "tools"],
            &["--set", "nonsense", "tools"],
            &["tokens", "add", "ci", "--expires", "soon"],
            &["logs", "--lines", "0"],
            &["transfer", "a:x"],
            &["completions", "nosuch"],
            &["node", "--id", "a"],
            &["node", "--gateway", "http://127.0.0.1:1"],
            &["node", "--gateway", "http://127.0.0.1:1", "--id", "A"],
            &["node", "--gateway", "http://127.0.0.1:1", "--id", "a"],
            &["node", "--gateway", "ws://10.0.0.1:1", "--id", "a"],
            &["node", "status", "--id", "nosuch"],
            &["up", "--listen", "nonsense"],
            &["up", "--listen", "127.0.0.1:0", "--workspace", "/nonexistent"],
            &["up", "--listen", "127.0.0.1:0", "--public-url", "gantry.example"],
            &["mcp", "install", "nosuch"],
            &["apis", "show", "nosuch"],
            &["secrets", "rm", "NOSUCH"],
        ],
    );
    check("errors_usage", &text);
}

#[test]
fn tool_call_errors_match_their_snapshot() {
    let world = World::new();
    world.configure(
        "[agents.watched]\nautonomy = \"supervised\"\n[agents.reader]\nautonomy = \"guided\"\ntools = [\"Read\"]\n\
         [[policy.rules]]\ntool = \"Grep\"\ndecision = \"deny\"\n",
    );
    world.write("dir/a.txt", "one\n");
    let text = failures(
        &world,
        &[],
        &[
            &["call", "Raed", "{}"],
            &["tools", "Raed"],
            &["call", "far__Read", "{}"],
            &["call", "Read", "{"],
            &["call", "Read", "[]"],
            &["call", "Read", "{}"],
            &["call", "Read", r#"{"pth": "a.txt"}"#],
            &["call", "Read", r#"{"path": 7}"#],
            &["call", "Read", r#"{"path": "a.txt", "limit": "ten"}"#],
            &["call", "Read", r#"{"path": "missing.txt"}"#],
            &["call", "Read", r#"{"path": "dir"}"#],
            &["call", "Read", "@missing.json"],
            &["call", "Edit", r#"{"path": "dir/a.txt", "oldString": "two", "newString": "three"}"#],
            &["call", "Bash", r#"{"command": "sleep 30"}"#, "--deadline", "500ms"],
            &["call", "Write", r#"{"path": "x", "content": "y"}"#, "--agent", "watched"],
            &["call", "Bash", r#"{"command": "true"}"#, "--agent", "reader"],
            &["call", "Read", r#"{"path": "x"}"#, "--agent", "raeder"],
            &["call", "Read", r#"{"path": "../data/gantry.toml"}"#, "--agent", "reader"],
            &["call", "Grep", r#"{"pattern": "x"}"#],
            &["call", "Read", r#"{"path": "x"}"#, "--workspace", "/nonexistent"],
            &["results", "nosuch"],
            &["workspace", "cat", "missing.txt"],
            &["workspace", "put", "missing.txt", "x"],
            &["call", "gsv__Transfer", r#"{"source": "a:x", "destination": "b:x"}"#],
        ],
    );
    check("errors_calls", &text);
}

#[test]
fn configuration_errors_match_their_snapshot() {
    let world = World::new();
    let mut text = String::new();
    for config in [
        "this is not TOML",
        "maxToolResultChar = 1\n",
        "maxToolResultChars = \"many\"\n",
        "[agents.a]\ntools = [\"Reed\"]\n",
        "[agents.a]\nautonomy = \"free\"\n",
        "[agents.main]\nmodel = \"depe\"\n",
        "[agents.main]\nmodel = \"nolab/m\"\n",
        "[agents.main]\nmaxRequests = 0\n",
        "[agents.a]\nmessages = [\"mian\"]\n",
        "[agents.a]\nthinking = \"adaptve\"\n",
        "[agents.\"a:b/../c\"]\n",
        "[roles.r]\nmodel = \"fsat\"\n",
        "[models]\nfast = \"nolab/m\"\n",
        "[models.providers.lab]\nbaseUrl = \"nonsense\"\n",
        "[mcpServers.a]\n",
        "[gateway]\nlisten = \"nonsense\"\n",
        "[shell]\nsandbox = \"maybe\"\n",
    ] {
        world.configure(config);
        text += &format!("gantry.toml:\n{config}\n");
        text += &failures(&world, &[], &[&["config", "show"]]);
    }
    world.configure("");
    text += &failures(
        &world,
        &[("GANTRY_MAX_TOOL_RESULT_CHARS", "many")],
        &[&["config", "get", "maxToolResultChars"]],
    );
    text += &failures(
        &world,
        &[],
        &[
            &["config", "get", "nosuch"],
            &["config", "set", "shell.sandbx", "off"],
            &["config", "set", "maxToolResultChars", "many"],
            &["--set", "shell.sandbox=maybe", "tools"],
        ],
    );
    check("errors_config", &text);
}

#[test]
fn gateway_errors_match_their_snapshot() {
    let world = World::new();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let mut text = failures(
        &world,
        &[],
        &[
            &["nodes"],
            &["sessions"],
            &["transfer", "a:x", "b:x"],
            &["--gateway", &nobody, "nodes"],
            &["--gateway", "nonsense://", "nodes"],
        ],
    );
    let token = ("GANTRY_TOKEN", "gto_any");
    text += &failures(
        &world,
        &[token],
        &[&["--gateway", &nobody, "nodes"], &["--gateway", &nobody, "call", "Read"]],
    );
    text += &failures(&world, &[("GANTRY_TOKEN_FILE", "/nonexistent")], &[&["--gateway", &nobody, "nodes"]]);

    let up = Gateway::start(&world);
    up.add_node(&world, "box", &[]);
    world.write("some.txt", "some\n");
    text += &failures(&world, &[token], &[&["--gateway", &up.url, "nodes"]]);
    text += &failures(
        &world,
        &[],
        &[
            &["up", "--listen", "127.0.0.1:0"],
            &["call", "Raed", "{}"],
            &["call", "Read", r#"{"pth": "x"}"#],
            &["call", "local__Read", r#"{"path": "missing.txt"}"#],
            &["call", "local__Bash", r#"{"command": "sleep 30"}"#, "--deadline", "500ms"],
            &["call", "box__Read", r#"{"path": "x"}"#],
            &["call", "Read", r#"{"path": "x", "node": "box"}"#],
            &["call", "Read", r#"{"path": "x", "node": "bxo"}"#],
            &["call", "bxo__Read", r#"{"path": "x"}"#],
            &["nodes", "add", "box", "--token"],
            &["nodes", "add", "Box"],
            &["nodes", "show", "bxo"],
            &["nodes", "revoke", "bxo"],
            &["nodes", "rename", "box", "local"],
            &["tokens", "revoke", "nosuch"],
            &["logs", "bxo"],
            &["sessions", "show", "nosuch"],
            &["transfer", "some.txt", "box:x"],
            &["transfer", "bxo:x", "local:y"],
            &["transfer", "local:missing.txt", "gsv:x"],
            &["transfer", "local:some.txt", "box:"],
            &["transfer", "local:some.txt", "local:some.txt"],
        ],
    );
    check("errors_gateway", &text);
}

#[test]
fn errors_of_joining_nodes_match_their_snapshot() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    let machine = World::new();
    let mut text = String::new();
    let mut join = |id: &str, token: &str| {
        let args = ["node", "--gateway", &up.url, "--id", id];
        let mut command = machine.command(&args);
        command.env("GANTRY_TOKEN", token).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ended = gantry_testkit::Process { child };
        ended.wait(Duration::from_secs(20));
        let printed = |bytes: &mut dyn std::io::Read| {
            let mut text = String::new();
            bytes.read_to_string(&mut text).unwrap();
            text
        };
        let ran = gantry_testkit::Ran {
            code: ended.child.wait().unwrap().code().unwrap_or(-1),
            stdout: printed(&mut ended.child.stdout.take().unwrap()),
            stderr: printed(&mut ended.child.stderr.take().unwrap()),
        };
        text += &transcript(&machine, &args, &ran);
        text.push('\n');
    };
    join("box", "gtn_wrong");
    join("other", &token);
    join("local", &token);
    assert_eq!(world.run(&["nodes", "revoke", "box"]).code, 0);
    join("box", &token);
    check("errors_joining", &text);
}

#[test]
fn errors_of_chats_and_models_match_their_snapshot() {
    let world = World::new();
    world.configure(
        "[models.providers.lab]\nbaseUrl = \"http://127.0.0.1:1025\"\nkey = \"k\"\n\
         [models.providers.lab.models.small]\ncontextWindow = 100000\n",
    );
    let mut text = failures(
        &world,
        &[],
        &[
            &["models", "set", "fast", "nolab/m"],
            &["models", "set", "fsat", "lab/m"],
            &["models", "test", "nolab/m"],
            &["chat", "--agent", "mian", "hello"],
        ],
    );
    let bare = World::new();
    text += &failures(&bare, &[], &[&["models"], &["models", "test"], &["chat", "hello"]]);

    let up = Gateway::start(&world);
    text += &failures(
        &world,
        &[],
        &[
            &["sessions", "show", "nosuch"],
            &["sessions", "stop", "nosuch"],
            &["sessions", "answer", "nosuch"],
        ],
    );
    for message in ["/nope", "/model nolab/m", "/trust", "/approve"] {
        let path = "/v1/sessions/main/messages";
        let answer = up.ask("POST", path, &[], json!({"message": message}).to_string().as_bytes());
        text += &format!("POST {path} {message}\n{}\n\n", shown(&world, &answer));
    }
    check("errors_chats", &text);
}

#[test]
fn http_errors_match_their_snapshot() {
    let world = World::new();
    let up = Gateway::start(&world);
    let client = up.client_token(&world, "ci", &["--tools", "Read"]);
    let bearer = format!("Bearer {client}");
    let by_client: &[(&str, &str)] = &[("Authorization", &bearer)];
    let mut text = String::new();
    for (method, path, headers, body) in [
        ("GET", "/v1/nodes", &[("Authorization", "")][..], ""),
        ("GET", "/v1/nodes", &[("Authorization", "Bearer gto_wrong")], ""),
        ("GET", "/v1/nosuch", &[], ""),
        ("DELETE", "/v1/nodes", &[], ""),
        ("GET", "/v1/nodes", &[("Host", "evil.example")], ""),
        ("POST", "/v1/tools/Raed", &[], "{}"),
        ("POST", "/v1/tools/Read", &[], "{"),
        ("POST", "/v1/tools/Read", &[], r#"{"pth": "x"}"#),
        ("POST", "/v1/tools/Read", &[("Gantry-Deadline-Ms", "soon")], "{}"),
        ("POST", "/v1/tools/Bash", by_client, r#"{"command": "true"}"#),
        ("POST", "/v1/sessions/nosuch:x:y:z/messages", &[], r#"{"message": "hi"}"#),
        ("POST", "/v1/sessions/main/messages", &[], "{}"),
        ("POST", "/v1/chat/completions", &[], "{}"),
        ("POST", "/mcp", &[], "{}"),
    ] {
        let answer = up.ask(method, path, headers, body.as_bytes());
        assert!(answer.status >= 400, "{method} {path}: {answer:?}");
        let line = [method, path, body].join(" ");
        text += &format!("{}\n{}\n\n", line.trim_end(), shown(&world, &answer));
    }
    check("errors_http", &text);
}

fn shown(world: &World, answer: &gantry_testkit::Response) -> String {
    let body = match serde_json::from_slice::<Value>(&answer.body) {
        Ok(json) => serde_json::to_string_pretty(&json).unwrap(),
        Err(_) => answer.text(),
    };
    without_paths(world, &format!("{}\n{body}", answer.status))
}
