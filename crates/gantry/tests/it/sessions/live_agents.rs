//! Agents whose configuration changes while they run: no right outlives its removal.

use std::time::Duration;

use gantry_model::testing::Turn;
use gantry_testkit::{Gateway, SOON, World, eventually};
use serde_json::{Value, json};

use super::{Model, call, post, results};

/// Makes two calls, then answers.
fn model(first: &'static str) -> Model {
    Model::deciding(move |heard| match results(heard) {
        0 => call("Bash", json!({"command": first})),
        1 => call("Bash", json!({"command": "echo second > second.txt"})),
        _ => Turn::text("done"),
    })
}

fn session(up: &Gateway, key: &str) -> Value {
    let answer = up.get(&format!("/v1/sessions/{key}"));
    if answer.status == 200 { answer.json() } else { Value::Null }
}

fn exists(world: &World, name: &str) -> bool {
    world.workspace().join(name).exists()
}

#[test]
fn a_yes_does_not_count_after_the_agent_lost_the_right() {
    for (key, value) in [("agents.main.tools", r#"["Read"]"#), ("agents.main.autonomy", "autonomous")] {
        let model = model("echo first > first.txt");
        let world = model.world("autonomy = \"supervised\"");
        let up = Gateway::start(&world);
        std::thread::scope(|scope| {
            let talking = scope.spawn(|| post(&up, "agent:main:rights", &json!({"message": "go"}), &[]));
            let question = || session(&up, "agent:main:rights")["questions"][0]["id"].clone();
            eventually("a question", SOON, || question().is_string());
            let set = world.run(&["config", "set", key, value]);
            assert_eq!(set.code, 0, "{set:?}");
            let answered = world.run(&["sessions", "answer", "agent:main:rights", "yes"]);
            assert_eq!(answered.code, 0, "{answered:?}");
            eventually("the call is over", SOON, || {
                let events = up.get("/v1/sessions/agent:main:rights/events").json().to_string();
                events.contains("configuration changed while the question was open")
            });
            let _ = world.run(&["sessions", "stop", "agent:main:rights"]);
            talking.join().unwrap();
        });
        assert!(!exists(&world, "first.txt"), "{key}");
    }
}

#[test]
fn runs_of_a_removed_agent_are_stopped() {
    let model = model("sleep 3; echo first > first.txt");
    let world = model.world("autonomy = \"supervised\"\n[agents.gone]\nautonomy = \"autonomous\"");
    let up = Gateway::start(&world);
    std::thread::scope(|scope| {
        let talking = scope.spawn(|| post(&up, "agent:gone:work", &json!({"message": "go"}), &[]));
        eventually("the first call", SOON, || session(&up, "agent:gone:work")["running"] != Value::Null);
        std::thread::sleep(Duration::from_millis(500));
        let unset = world.run(&["config", "unset", "agents.gone"]);
        assert_eq!(unset.code, 0, "{unset:?}");
        let stopped = talking.join().unwrap().json().to_string();
        assert!(stopped.contains("stopped"), "{stopped}");
    });
    std::thread::sleep(Duration::from_secs(4));
    assert!(!exists(&world, "second.txt") && !exists(&world, "first.txt"));
    // The session can still be read, and takes no messages.
    assert_eq!(up.get("/v1/sessions/agent:gone:work").status, 200);
    let refused = post(&up, "agent:gone:work", &json!({"message": "again"}), &[]);
    assert!(refused.status == 400 || refused.status == 404, "{}", refused.status);
}
