//! One MCP client on standard input and output, with the tools of a gateway.

use gantry_testkit::peers::{Node, runtime};
use gantry_testkit::{Gateway, World};
use serde_json::json;

use super::{Client, DEFAULT_TOOLS};

#[test]
fn gateway_tools_are_offered_under_the_mcp_clients_policy() {
    let world = World::new();
    world.write("a.txt", "by way of the gateway\n");
    let up = Gateway::start(&world);
    let mut client = Client::new(&world, &[]);
    assert_eq!(client.tool_names(), DEFAULT_TOOLS);
    let read = client.call("Read", &json!({"path": "a.txt"}));
    assert!(read.to_string().contains("by way of the gateway"), "{read}");
    let hidden = client.call("gsv__ConfigGet", &json!({}));
    assert!(hidden["error"]["message"].as_str().unwrap().contains("unknown tool"), "{hidden}");
    std::fs::create_dir_all(world.folder.path().join(".ssh")).unwrap();
    let key = world.folder.path().canonicalize().unwrap().join(".ssh/id_ed25519");
    std::fs::write(&key, "secret key").unwrap();
    let denied = client.call("Read", &json!({"path": key}));
    assert!(denied["content"][0]["text"].as_str().unwrap().starts_with("approval_needed: "), "{denied}");
    let mut asking = Client::introduced(&world, &[], "2025-11-25", &json!({"elicitation": {}}));
    let id = asking.send("tools/call", &json!({"name": "Read", "arguments": {"path": key}}));
    let question = asking.hear_of("elicitation/create");
    let answer = json!({"action": "accept", "content": {"allow": true}});
    asking.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    assert!(asking.answer(id).to_string().contains("secret key"));
    drop(up);
    let log = std::fs::read_to_string(world.data().join("audit.log")).unwrap();
    assert!(log.contains("mcp:test-client") && !log.contains("\"operator\""), "{log}");
}

#[test]
fn joining_node_updates_the_tool_list() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.add_node(&world, "box", &[]);
    let mut client = Client::new(&world, &["--tools", "*"]);
    let before = client.tool_names();
    assert!(!before.contains(&"Sleep".to_owned()));
    runtime().block_on(async {
        let node = Node::new("box", &token);
        let link = node.join(&up).await;
        client.hear_of("notifications/tools/list_changed");
        assert!(client.tool_names().contains(&"Sleep".to_owned()));
        let slept = client.call("Sleep", &json!({"ms": 1}));
        assert!(slept.to_string().contains("box"), "{slept}");
        link.close(gantry_protocol::CloseReason::Done);
        client.hear_of("notifications/tools/list_changed");
        assert!(!client.tool_names().contains(&"Sleep".to_owned()), "it took its tools with it");
    });
}

#[test]
fn restarted_gateway_is_reconnected() {
    let world = World::new();
    let up = Gateway::start(&world);
    let port = up.address.port().to_string();
    let mut client = Client::new(&world, &[]);
    assert_eq!(client.call("Bash", &json!({"command": "true"}))["isError"], false);
    drop(up);
    let lost = client.call("Bash", &json!({"command": "true"}));
    assert!(lost.to_string().contains("unavailable"), "{lost}");
    let listen = format!("127.0.0.1:{port}");
    let up = Gateway::start_at(&world, &listen);
    let back = client.call("Bash", &json!({"command": "true"}));
    assert_eq!(back["isError"], false, "{back}");
    drop(up);
}
