//! Messages between agents are ordered, signed by the runtime and bounded.

use std::time::Duration;

use gantry_model::testing::{Say, Turn};
use gantry_testkit::{Gateway, eventually};
use serde_json::json;

use super::super::{Model, call, results};
use super::{GUIDED, children, history, more_config, reply, reported, task};

fn send(to: &str, message: &str) -> Say {
    let input = json!({"agentId": "main", "targetAgentId": to, "message": message});
    Say::Call { name: "tool__agent_send".into(), input }
}

#[test]
fn inbox_is_ordered_signed_and_bounded() {
    let model = Model::deciding(|heard| {
        let task = task(heard);
        match (task.as_str(), results(heard)) {
            ("go", done @ 0..11) => {
                let say = vec![send("helper", &format!("number {done}"))];
                Turn { say, ..Turn::default() }
            }
            ("wrong", 0) => Turn {
                say: vec![
                    send("hepler", "x"),
                    send("main", "x"),
                    send("helper", "/new"),
                    send("helper", &"x".repeat(100 * 1024 + 1)),
                    Say::Call {
                        name: "tool__agent_send".into(),
                        input: json!({"agentId": "operator", "targetAgentId": "helper", "message": "x"}),
                    },
                ],
                ..Turn::default()
            },
            ("wrong", _) => {
                let all = heard.body["messages"].as_array().unwrap().iter();
                Turn::text(all.map(|said| said["content"].to_string()).collect::<Vec<_>>().join("\n"))
            }
            ("go", _) => reported(heard),
            _ => Turn { delay_ms: 300, ..Turn::text("noted") },
        }
    });
    let world = model.world(GUIDED);
    more_config(&world, &format!("[agents.helper]\n{GUIDED}\n"));
    let up = Gateway::start(&world);
    let last = reply(&up, "go");
    assert!(last.contains("main has sent 10 messages to helper within a minute"), "{last}");
    eventually("the inbox is empty", Duration::from_secs(20), || {
        let status = up.get("/v1/sessions/agent:helper:main").json();
        status["queued"] == 0 && status["running"].is_null()
    });
    let events = history(&up, "agent:helper:main");
    let came: Vec<String> = events
        .iter()
        .filter(|event| event["kind"] == "message_in")
        .map(|event| {
            format!("{} {}", event["data"]["from"].as_str().unwrap(), event["data"]["text"].as_str().unwrap())
        })
        .collect();
    let expected: Vec<String> =
        (0..10).map(|n| format!("agent:main:main [message from agent:main:main]\nnumber {n}")).collect();
    assert_eq!(came, expected);
    let joined = events.iter().filter(|event| event["kind"] == "joined");
    let joined: usize = joined.map(|event| event["data"]["messages"].as_array().unwrap().len()).sum();
    assert_eq!(joined, 10);
    world.run(&["sessions", "reset", "main"]);
    let wrong = reply(&up, "wrong");
    for expected in [
        "did you mean",
        "you cannot send a message to yourself",
        "slash commands are for people",
        "a message may have at most 102400 bytes",
        "agentId is not yours",
    ] {
        assert!(wrong.contains(expected), "{expected}: {wrong}");
    }
    model.check();
}

#[test]
fn finished_child_accepts_messages() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => call("tool__agent_spawn", json!({"template": "main", "message": "wait for mail"})),
        ("go", 1) => {
            let id: serde_json::Value = serde_json::from_str(&heard.last_text()).unwrap();
            Turn { say: vec![send(id["agentId"].as_str().unwrap(), "here it is")], ..Turn::default() }
        }
        ("go", _) => reported(heard),
        (_, 0) if heard.last_text().contains("here it is") => {
            call("Write", json!({"path": "got", "content": heard.last_text()}))
        }
        _ => Turn::text("I wait"),
    });
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let sent = reply(&up, "go");
    assert!(sent.contains("\"sent\":true"), "{sent}");
    let got = world.workspace().join("got");
    eventually("the child takes it up", Duration::from_secs(20), || got.exists());
    let text = std::fs::read_to_string(&got).unwrap();
    assert!(text.contains("[message from agent:main:main]"), "{text}");
    assert_eq!(children(&up).len(), 1);
    model.check();
}
