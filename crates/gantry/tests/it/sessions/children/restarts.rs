//! The gateway ends while children work. At the next start their parents resume waiting for them.

use std::collections::HashMap;
use std::time::Duration;

use gantry_model::testing::Turn;
use gantry_testkit::{Connection, Gateway, Random, eventually, is_soak};
use serde_json::json;

use super::super::{Model, call, post, results};
use super::{GUIDED, children, history, reported, spawn, task};

/// Whether a command's result was written down before the end decides which labels there are; here nobody is asked.
fn unlabelled() -> String {
    format!("{GUIDED}\nflow = \"off\"")
}

/// Says something and does not wait; the answer is lost with what this gives.
fn begin(up: &Gateway, session: &str, message: &str, id: &str) -> Connection {
    let mut connection = up.connection();
    let path = format!("/v1/sessions/{session}/messages");
    let body = json!({"message": message, "id": id}).to_string();
    connection.begin(up, "POST", &path, &[("Accept", "text/event-stream")], body.as_bytes());
    connection
}

#[test]
fn parent_resumes_waiting_for_its_children_after_restart() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => spawn(json!([
            {"name": "a", "task": "first", "tools": ["Bash"]},
            {"name": "b", "task": "second", "role": "researcher"},
        ])),
        ("first", 0) => call("Bash", json!({"command": "echo once >> notes"})),
        ("first", 1) => Turn { delay_ms: 1_500, ..call("Read", json!({"path": "notes"})) },
        ("second", 0) => Turn { delay_ms: 1_500, ..call("Bash", json!({"command": "echo never >> notes"})) },
        _ => reported(heard),
    });
    let world = model.world(&unlabelled());
    let up = Gateway::start(&world);
    let notes = world.workspace().join("notes");
    let _talking = begin(&up, "main", "go", "m");
    eventually("the child has done its part", Duration::from_secs(20), || {
        notes.exists() && children(&up).len() == 2
    });
    let before: Vec<String> = children(&up).iter().map(|child| child["sessionKey"].to_string()).collect();
    up.kill();
    let up = Gateway::start(&world);
    let reported = post(&up, "main", &json!({"message": "go", "id": "m"}), &[]).json();
    let reply = reported["reply"].as_str().unwrap_or_default();
    // Neither has, after the restart, what it had not before.
    assert!(reply.contains("## a\n") && reply.contains("## b\n"), "{reported}");
    assert_eq!(reply.matches("unknown tool").count(), 2, "{reported}");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "once\n");
    let mut after: Vec<String> = children(&up).iter().map(|child| child["sessionKey"].to_string()).collect();
    after.sort();
    let mut before = before;
    before.sort();
    assert_eq!(after, before);
    let kinds: Vec<String> =
        history(&up, "main").iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
    assert!(
        kinds.contains(&"call_again".to_owned()) && !kinds.contains(&"call_interrupted".to_owned()),
        "{kinds:?}"
    );
    model.check();
}

#[test]
fn stop_does_not_wait_for_children_which_resume_later() {
    let model = Model::deciding(|heard| match (task(heard).as_str(), results(heard)) {
        ("go", 0) => call("tool__agent_spawn", json!({"template": "main", "message": "slow"})),
        ("slow", 0) => Turn { delay_ms: 2_000, ..call("Bash", json!({"command": "echo once >> notes"})) },
        _ => reported(heard),
    });
    let world = model.world(&unlabelled());
    let mut up = Gateway::start(&world);
    let _talking = begin(&up, "main", "go", "m");
    eventually("there is a child", Duration::from_secs(20), || children(&up).len() == 1);
    up.signal(rustix::process::Signal::TERM);
    assert_eq!(up.wait(Duration::from_secs(6)), Some(0), "it does not wait for the child");
    let up = Gateway::start(&world);
    let reported = post(&up, "main", &json!({"message": "go", "id": "m"}), &[]).json();
    assert_eq!(reported["status"], "final", "{reported}");
    assert_eq!(std::fs::read_to_string(world.workspace().join("notes")).unwrap(), "once\n");
    assert_eq!(children(&up).len(), 1);
    model.check();
}

/// Families at random moments: no effect of a child is doubled, no parent waits for ever.
#[test]
fn random_kills_duplicate_nothing_and_block_no_parent() {
    let model = Model::deciding(|heard| {
        let task = task(heard);
        let Some((who, number)) = task.split_once(' ') else { return Turn::text("?") };
        match (who, results(heard)) {
            ("parent", 0) => spawn(json!([
                {"name": "a", "task": format!("child {number}-a")},
                {"name": "b", "task": format!("child {number}-b")},
            ])),
            ("parent", 1) => {
                call("tool__agent_spawn", json!({"template": "main", "message": format!("child {number}-c")}))
            }
            ("child", done @ 0..2) => Turn {
                delay_ms: 20,
                ..call("Bash", json!({"command": format!("echo {number}-{done} >> notes")}))
            },
            _ => Turn::text("done"),
        }
    });
    let world = model.world(&unlabelled());
    let mut random = Random::new();
    let rounds = if is_soak() { 100 } else { 8 };
    for round in 0..rounds {
        let up = Gateway::start(&world);
        let _talking = begin(&up, &format!("s{round}"), &format!("parent {round}"), &format!("m{round}"));
        std::thread::sleep(Duration::from_millis(random.below(900) as u64));
        up.kill();
    }
    let up = Gateway::start(&world);
    for round in 0..rounds {
        let body = json!({"message": format!("parent {round}"), "id": format!("m{round}")});
        let reported = post(&up, &format!("s{round}"), &body, &[]).json();
        assert_eq!(reported["status"], "final", "{reported}");
    }
    eventually("nobody is at work", Duration::from_secs(20), || {
        children(&up).iter().all(|child| child["running"] == false)
    });
    let notes = std::fs::read_to_string(world.workspace().join("notes")).unwrap();
    let mut times: HashMap<&str, usize> = HashMap::new();
    notes.lines().for_each(|line| *times.entry(line).or_default() += 1);
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(doubled.is_empty(), "done twice: {doubled:?}");
    let begun = children(&up).len();
    assert_eq!(begun, rounds * 3, "each child is begun once");
    println!("{rounds} kills, {begun} children, {} effects", times.len());
    model.check();
}
