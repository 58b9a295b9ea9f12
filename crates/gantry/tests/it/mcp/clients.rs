//! Clients that others have written: the MCP Inspector, Claude Code, FastMCP, LangChain's adapters, OpenAI's Agents SDK,
//! and the SDKs for Python and TypeScript in their newest versions and in old ones. `cargo xtask setup` installs them.

use std::path::PathBuf;
use std::process::Command;

use gantry_model::testing::{KEY, Turn};
use gantry_testkit::{Gateway, World};
use serde_json::{Value, json};

use super::{DEFAULT_TOOLS, names};
use crate::sessions::{Model, call, results};

pub(crate) fn installed(path: &str) -> PathBuf {
    let target = PathBuf::from(env!("CARGO_BIN_EXE_gantry")).ancestors().nth(2).unwrap().to_owned();
    let path = target.join("mcp").join(path);
    assert!(path.exists(), "{} is missing; `cargo xtask setup` installs it", path.display());
    path
}

/// Runs a client in a world of its own; what it prints.
pub(super) fn ran(world: &World, mut command: Command) -> String {
    command
        .current_dir(world.workspace())
        .env("HOME", world.folder.path())
        .env("GANTRY_DATA_DIR", world.data())
        .env("NO_COLOR", "1");
    let output = command.output().unwrap();
    let (reported, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {reported}{errors}");
    reported.into_owned()
}

fn inspector(world: &World, args: &[&str]) -> Value {
    let node = installed("node_modules/node/bin/node");
    let mut command = Command::new(&node);
    let path = format!("{}:/usr/bin:/bin", node.parent().unwrap().display());
    let script = installed("node_modules/.bin/mcp-inspector").canonicalize().unwrap();
    command.arg(script).arg("--cli").args(args).env("PATH", path);
    let reported = ran(world, command);
    serde_json::from_str(&reported).unwrap_or_else(|err| panic!("{err}: {reported}"))
}

#[test]
fn inspector_lists_and_calls_over_both_transports() {
    let world = World::new();
    world.write("a.txt", "inspected\n");
    let gantry = env!("CARGO_BIN_EXE_gantry");
    let listed = inspector(&world, &[gantry, "mcp", "--method", "tools/list"]);
    assert_eq!(names(&listed["tools"]), DEFAULT_TOOLS);
    let call = ["--method", "tools/call", "--tool-name", "Read", "--tool-arg", "path=a.txt"];
    let read = inspector(&world, &[&[gantry, "mcp"], &call[..]].concat());
    assert!(read.to_string().contains("inspected"), "{read}");
    let up = Gateway::start(&world);
    let (url, bearer) = (format!("{}/mcp", up.url), format!("Authorization: Bearer {}", up.token));
    let http = [&*url, "--transport", "http", "--header", &bearer];
    let listed = inspector(&world, &[&http, &["--method", "tools/list"][..]].concat());
    assert_eq!(names(&listed["tools"]), DEFAULT_TOOLS);
    let read = inspector(&world, &[&http, &call[..]].concat());
    assert!(read.to_string().contains("inspected"), "{read}");
}

/// Offline: the client starts the server and says whether they understand each other.
#[test]
fn claude_code_connects_once_installed() {
    let world = World::new();
    let installing = world.run(&["mcp", "install", "claude", "--yes"]);
    assert_eq!(installing.code, 0, "{}", installing.stderr);
    let mut claude = Command::new(installed("node_modules/.bin/claude"));
    claude.args(["mcp", "list"]).env("ANTHROPIC_API_KEY", "none").env("DISABLE_AUTOUPDATER", "1");
    claude.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    let reported = ran(&world, claude);
    let line =
        reported.lines().find(|line| line.starts_with("gantry: ")).unwrap_or_else(|| panic!("{reported}"));
    assert!(line.contains("Connected"), "{line}");
}

const PYTHON: &str = include_str!("client.py");

#[test]
fn python_sdk_works_over_both_transports() {
    let world = World::new();
    world.write("a.txt", "from python\n");
    let stored = json!({"path": "SOUL.md", "content": "stored"}).to_string();
    assert_eq!(world.run(&["call", "gsv__WriteFile", &stored]).code, 0);
    std::fs::create_dir_all(world.folder.path().join(".ssh")).unwrap();
    let key = world.folder.path().canonicalize().unwrap().join(".ssh/id_ed25519");
    std::fs::write(&key, "secret key").unwrap();
    let python = || {
        let mut command = Command::new(installed("venv/bin/python"));
        command.args(["-c", PYTHON]).env("KEY", &key);
        command
    };
    let check = |reported: String| {
        let seen: Value = serde_json::from_str(reported.lines().last().unwrap_or_default()).unwrap();
        let mut expected = DEFAULT_TOOLS.to_vec();
        expected.sort_unstable();
        assert_eq!(seen["tools"], json!(expected), "{seen}");
        assert!(seen["read"].as_str().unwrap().contains("from python"), "{seen}");
        assert_eq!(seen["missing"], true, "{seen}");
        assert_eq!(seen["resource"], "stored", "{seen}");
        assert_eq!(seen["asked"].as_array().unwrap().len(), 1, "{seen}");
        assert!(seen["key"].as_str().unwrap().contains("secret key"), "what was allowed is read: {seen}");
    };
    let mut stdio = python();
    stdio.args(["stdio", env!("CARGO_BIN_EXE_gantry")]);
    check(ran(&world, stdio));
    let up = Gateway::start(&world);
    let mut http = python();
    http.args(["http", &format!("{}/mcp", up.url)]).env("TOKEN", &up.token);
    check(ran(&world, http));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Stdio,
    Http,
}

/// Runs a client that initializes, lists and calls once. Returns what it saw.
fn over(transport: Transport, client: impl Fn() -> Command) -> Value {
    let world = World::new();
    world.write("a.txt", "read by a client\n");
    let up = (transport == Transport::Http).then(|| Gateway::start(&world));
    let mut command = client();
    match &up {
        None => command.args(["stdio", env!("CARGO_BIN_EXE_gantry")]),
        Some(up) => command.args(["http", &format!("{}/mcp", up.url)]).env("TOKEN", &up.token),
    };
    let reported = ran(&world, command);
    let seen: Value = serde_json::from_str(reported.lines().last().unwrap_or_default())
        .unwrap_or_else(|err| panic!("{err}: {reported}"));
    assert_eq!(seen["tools"], json!(DEFAULT_TOOLS), "{transport:?}: {seen}");
    assert!(seen["read"].as_str().unwrap().contains("read by a client"), "{transport:?}: {seen}");
    seen
}

fn over_both(client: impl Fn() -> Command) -> [Value; 2] {
    [Transport::Stdio, Transport::Http].map(|transport| over(transport, &client))
}

fn short_client(environment: &str, library: &str) -> Command {
    let mut command = Command::new(installed(&format!("{environment}/bin/python")));
    command.args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp/short_client.py"), library]);
    command
}

#[test]
fn old_python_sdks_list_and_call() {
    let seen = over_both(|| short_client("venv-mcp-1.9", "sdk"));
    assert!(seen.iter().all(|seen| seen["revision"] == "2025-03-26"), "{seen:?}");
    // This version has no client for the HTTP transport of today.
    let seen = over(Transport::Stdio, || short_client("venv-mcp-1.6", "sdk"));
    assert_eq!(seen["revision"], "2024-11-05");
}

#[test]
fn fastmcp_lists_and_calls_over_both_transports() {
    over_both(|| short_client("venv-fastmcp", "fastmcp"));
}

#[test]
fn langchain_adapters_list_and_call_over_both_transports() {
    over_both(|| short_client("venv-agents", "langchain"));
}

#[test]
fn agents_sdk_runs_an_agent_over_both_transports() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("Read", json!({"path": "a.txt"})),
        _ => Turn::text(heard.last_text()),
    });
    over_both(|| {
        let mut command = short_client("venv-agents", "agents");
        command.env("MODEL_URL", model.base_url()).env("MODEL_KEY", KEY);
        command
    });
    model.check();
}

fn typescript_sdk(package: &str) -> Command {
    let mut command = Command::new(installed("node_modules/node/bin/node"));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp/short_client.mjs"));
    command.arg(installed(&format!("node_modules/{package}")));
    command
}

#[test]
fn typescript_sdks_list_and_call() {
    for package in ["@modelcontextprotocol/sdk", "mcp-sdk-1.12"] {
        over_both(|| typescript_sdk(package));
    }
    // This version has no client for the HTTP transport of today.
    over(Transport::Stdio, || typescript_sdk("mcp-sdk-1.9"));
}
