//! The size of the default tool list in tokens.

use std::io::Write;
use std::process::{Command, Stdio};

use gantry_testkit::World;
use serde_json::json;

use super::Client;
use super::clients::installed;

/// Tokens of the o200k vocabulary for names, descriptions and input schemas.
const MOST_TOKENS: usize = 1_600;

/// MCP clients have approvals of their own.
#[test]
fn leaving_the_sandbox_is_not_offered_to_clients() {
    let world = World::new();
    let listed = Client::new(&world, &[]).ask("tools/list", &json!({}));
    let bash =
        listed["result"]["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "Bash").unwrap();
    assert!(bash["inputSchema"]["properties"]["command"].is_object(), "{bash}");
    assert_eq!(bash["inputSchema"]["properties"].get("escalate"), None, "{bash}");
}

#[test]
fn default_tool_list_costs_at_most_1600_tokens() {
    let world = World::new();
    let listed = Client::new(&world, &[]).ask("tools/list", &json!({}));
    let tools = &listed["result"]["tools"];
    assert_eq!(tools.as_array().unwrap().len(), super::DEFAULT_TOOLS.len());

    // The script lies where Node.js finds the packages that it imports.
    let script = tempfile::Builder::new().suffix(".mjs").tempfile_in(installed("")).unwrap();
    std::fs::write(&script, include_str!("../../../../xtask/src/bench/count_tokens.mjs")).unwrap();
    let mut counter = Command::new(installed("node_modules/node/bin/node"));
    let mut counter =
        counter.arg(script.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    counter.stdin.take().unwrap().write_all(tools.to_string().as_bytes()).unwrap();
    let counted = counter.wait_with_output().unwrap();
    let tokens: usize = String::from_utf8(counted.stdout).unwrap().trim().parse().unwrap();
    assert!((500..=MOST_TOKENS).contains(&tokens), "{tokens} tokens");
}
