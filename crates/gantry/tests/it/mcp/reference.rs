//! The protocol's reference servers, every tool of both. `cargo xtask setup` installs them.

use gantry_testkit::{Ran, World};
use serde_json::{Value, json};

use super::Client;
use super::clients::installed;

fn add(world: &World, name: &str, script: &str, more: &[&str]) -> Vec<String> {
    let node = installed("node_modules/node/bin/node");
    let script = installed(&format!("node_modules/{script}"));
    let (node, script) = (node.to_str().unwrap(), script.to_str().unwrap());
    let ran = world.run(&[&["mcp", "add", name, "--json", "--", node, script], more].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    super::servers::words(&ran.json()["tools"])
}

/// Calls each tool with these inputs, and checks that none of the server's tools was left out.
fn check_all(world: &World, server: &str, offered: &[String], calls: &[(&str, Value, &str)]) {
    for (tool, input, expected) in calls {
        let name = format!("{server}__{tool}");
        let ran: Ran = world.run(&["call", &name, &input.to_string()]);
        assert_eq!(ran.code, 0, "{tool}: {ran:?}");
        assert!(ran.stdout.contains(expected), "{tool}: {:?} lacks {expected:?}", ran.stdout);
    }
    let mut called: Vec<&str> = calls.iter().map(|(tool, ..)| *tool).collect();
    called.sort_unstable();
    called.dedup();
    assert_eq!(offered.iter().map(String::as_str).collect::<Vec<_>>(), called, "every tool is called");
}

#[test]
fn every_tool_of_server_everything_works() {
    let world = World::new();
    let script = "@modelcontextprotocol/server-everything/dist/index.js";
    let offered = add(&world, "every", script, &["stdio"]);
    let calls = [
        ("echo", json!({"message": "hi"}), "Echo: hi"),
        ("get-annotated-message", json!({"messageType": "error", "includeImage": true}), "image/png"),
        ("get-env", json!({}), "PATH"),
        ("get-resource-links", json!({"count": 3}), "resource_link"),
        ("get-resource-reference", json!({"resourceType": "Text", "resourceId": 1}), "resource"),
        ("get-structured-content", json!({"location": "New York"}), "temperature"),
        ("get-sum", json!({"a": 2, "b": 40}), "42"),
        ("get-tiny-image", json!({}), "image/png"),
        (
            "gzip-file-as-resource",
            json!({"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resource"}),
            "gzip",
        ),
        ("toggle-simulated-logging", json!({}), "logging"),
        ("toggle-subscriber-updates", json!({}), "updates"),
        ("trigger-long-running-operation", json!({"duration": 1, "steps": 2}), "completed"),
    ];
    check_all(&world, "every", &offered, &calls);
    let held = world.run(&["mcp", "show", "every", "simulate-research-query"]);
    assert!(held.stdout.contains("it runs only as a task, which Gantry does not support"), "{held:?}");
    let structured =
        world.run(&["call", "every__get-structured-content", r#"{"location": "New York"}"#]).json();
    assert!(structured["temperature"].is_number(), "{structured}");
    let refused = world.run(&["call", "every__get-sum", r#"{"a": "x", "b": 1}"#]);
    assert_eq!(refused.code, 2, "the gate checks their schemas: {refused:?}");

    let mut client = Client::new(&world, &["--local", "--toolset", "mcp"]);
    let picture = client.call("every__get-tiny-image", &json!({}));
    assert!(picture["content"].as_array().unwrap().iter().any(|block| block["type"] == "image"), "{picture}");
    let structured = client.call("every__get-structured-content", &json!({"location": "New York"}));
    assert!(structured["structuredContent"]["temperature"].is_number(), "{structured}");
}

#[test]
fn every_tool_of_server_filesystem_works() {
    let world = World::new();
    let file = world.write("files/a.txt", "one\ntwo\n");
    let folder = file.parent().unwrap().to_str().unwrap().to_owned();
    let path = |name: &str| format!("{folder}/{name}");
    std::fs::write(path("p.png"), [0x89, b'P', b'N', b'G']).unwrap();
    let script = "@modelcontextprotocol/server-filesystem/dist/index.js";
    let offered = add(&world, "files", script, &[&folder]);
    let calls = [
        ("create_directory", json!({"path": path("new")}), "created"),
        ("directory_tree", json!({"path": folder}), "a.txt"),
        (
            "edit_file",
            json!({"path": path("a.txt"), "edits": [{"oldText": "one", "newText": "three"}]}),
            "three",
        ),
        ("get_file_info", json!({"path": path("a.txt")}), "size"),
        ("list_allowed_directories", json!({}), &*folder),
        ("list_directory", json!({"path": folder}), "a.txt"),
        ("list_directory_with_sizes", json!({"path": folder}), "a.txt"),
        ("write_file", json!({"path": path("b.txt"), "content": "b"}), "b.txt"),
        ("move_file", json!({"source": path("b.txt"), "destination": path("c.txt")}), "c.txt"),
        ("read_file", json!({"path": path("a.txt")}), "three"),
        ("read_media_file", json!({"path": path("p.png")}), "image/png"),
        ("read_multiple_files", json!({"paths": [path("a.txt"), path("c.txt")]}), "three"),
        ("read_text_file", json!({"path": path("a.txt"), "head": 1}), "three"),
        ("search_files", json!({"path": folder, "pattern": "**/*.txt"}), "c.txt"),
    ];
    check_all(&world, "files", &offered, &calls);
    assert_eq!(std::fs::read_to_string(path("a.txt")).unwrap(), "three\ntwo\n");
    let outside = world.run(&["call", "files__read_text_file", r#"{"path": "/etc/passwd"}"#]);
    assert_eq!(outside.code, 1, "{outside:?}");
    assert!(outside.json()["error"].as_str().unwrap().contains("denied"), "{outside:?}");
}
