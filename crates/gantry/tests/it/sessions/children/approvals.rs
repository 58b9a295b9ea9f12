//! Approvals that children need are asked in the session where their family began, with the child's name.

use std::time::Duration;

use gantry_model::testing::Turn;
use gantry_testkit::{Gateway, eventually};
use serde_json::json;

use super::super::{Model, call, results};
use super::{children, reported, spawn, task};

#[test]
fn child_approval_is_asked_in_the_parent_and_survives_restart() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => spawn(json!([{"name": "scout", "task": "write it"}])),
        ("write it", 0) => call("Bash", json!({"command": "echo done >> notes"})),
        ("write it", 1) => call("ask_user", json!({"question": "Which colour?", "options": ["red", "blue"]})),
        ("write it", _) => Turn::text(format!("it is {}", heard.last_text())),
        _ => reported(heard),
    });
    let world = model.world("autonomy = \"supervised\"");
    let up = Gateway::start(&world);
    let asked = world.run(&["chat", "go"]);
    assert_eq!(asked.code, 3, "{asked:?}");
    assert!(asked.stderr.contains("asked by the child agent \"scout\""), "{asked:?}");
    let question = up.get("/v1/sessions/main").json()["questions"][0].clone();
    assert_eq!(question["child"]["name"], "scout", "{question}");
    up.kill();
    assert!(!world.workspace().join("notes").exists());
    let up = Gateway::start(&world);
    eventually("it is asked again", Duration::from_secs(20), || {
        up.get("/v1/sessions/main").json()["questions"][0]["id"] == question["id"]
    });
    assert_eq!(world.run(&["sessions", "answer", "main", "yes"]).code, 0);
    eventually("the child asks its user", Duration::from_secs(20), || {
        up.get("/v1/sessions/main").json()["asks"][0]["child"]["name"] == "scout"
    });
    let answered = world.run(&["sessions", "answer", "main", "blue"]);
    assert_eq!(answered.code, 0, "{answered:?}");
    eventually("the run ends", Duration::from_secs(20), || {
        up.get("/v1/sessions/main").json()["running"].is_null()
    });
    assert!(world.run(&["sessions", "show", "main"]).stdout.contains("it is blue"));
    assert_eq!(std::fs::read_to_string(world.workspace().join("notes")).unwrap(), "done\n");
    assert_eq!(children(&up).len(), 1);
    model.check();
}

#[test]
fn children_of_an_autonomous_agent_never_ask() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => spawn(json!([{"name": "scout", "task": "ask"}])),
        ("ask", 0) => call("ask_user", json!({"question": "May I?"})),
        ("ask", 1) => call("Read", json!({"path": ".env"})),
        ("ask", _) => {
            let all = heard.body["messages"].as_array().unwrap().iter();
            Turn::text(all.map(|said| said["content"].to_string()).collect::<Vec<_>>().join("\n"))
        }
        _ => reported(heard),
    });
    let world = model.world("autonomy = \"autonomous\"");
    world.write(".env", "KEY=1\n");
    let up = Gateway::start(&world);
    let reply = super::reply(&up, "go");
    assert!(reply.contains("Interactive input not available") && reply.contains("denied"), "{reply}");
    assert!(!reply.contains("KEY=1"), "{reply}");
    model.check();
}
