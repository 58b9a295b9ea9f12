//! Commands of agents that leave the sandbox: asked once per call, and refused where nobody can be asked.

use std::time::Duration;

use gantry_model::testing::{Say, Turn};
use gantry_testkit::eventually;
use serde_json::{Value, json};

use super::isolated::Stage;
use super::{Far, Model, post, results};

const READ_KEY: &str =
    "cat .ssh/id_ed25519; touch $HOME/../gantry-left-$$ && rm $HOME/../gantry-left-$$ && echo left";

fn escalating(command: &str) -> Value {
    json!({"command": command, "escalate": {"reason": "the key is needed for a release"}})
}

fn questions(stage: &Stage) -> Vec<Value> {
    stage.up.get("/v1/sessions/main").json()["questions"].as_array().cloned().unwrap_or_default()
}

/// Sends the calls to the agent, and runs `answer` meanwhile. Returns the results.
fn during(stage: &Stage, calls: &Value, answer: impl FnOnce()) -> Vec<String> {
    let body = json!({"message": calls.to_string()}).to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| stage.up.ask("POST", "/v1/sessions/main/messages", &[], body.as_bytes()));
        answer();
    });
    stage.results()
}

#[test]
fn person_is_asked_and_a_yes_holds_for_one_call() {
    let stage = Stage::new("autonomy = \"guided\"");
    let calls = json!([["Bash", escalating(READ_KEY)], ["Bash", escalating(READ_KEY)]]);
    let found = during(&stage, &calls, || {
        eventually("the question", Duration::from_secs(20), || questions(&stage).len() == 1);
        let question = questions(&stage).remove(0);
        assert_eq!(
            (&question["rule"], &question["tool"]),
            (&json!("escalation"), &json!("local__Bash")),
            "{question}"
        );
        assert!(
            question["reason"].as_str().unwrap().contains("the key is needed for a release"),
            "{question}"
        );
        assert_eq!(question["input"]["command"], READ_KEY);
        let always = stage.world.run(&["sessions", "answer", "main", "always"]);
        assert_ne!(always.code, 0, "{always:?}");
        assert!(always.stderr.contains("each call by itself"), "{always:?}");
        assert_eq!(questions(&stage).len(), 1, "the question is still open");
        assert_eq!(stage.world.run(&["sessions", "answer", "main", "yes"]).code, 0);
    });
    assert!(found[0].contains("top secret") && found[0].contains("left"), "{found:?}");
    // The first result brought both labels.
    assert!(found[1].contains("stay in the sandbox") && !found[1].contains("top secret"), "{found:?}");
    let lines = stage.world.run(&["audit", "--json", "--tool", "Bash"]).json();
    assert!(lines.to_string().contains("escalation (approved)"), "{lines}");
    stage.model.check();
}

#[test]
fn each_of_two_equal_calls_is_asked() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => {
            let call = || Say::Call { name: "Bash".into(), input: escalating("echo ran") };
            Turn { say: vec![call(), call()], ..Turn::default() }
        }
        _ => Turn::text("done"),
    });
    let world = model.world("autonomy = \"guided\"\nflow = \"off\"");
    let config = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
    world.configure(&format!("{config}[shell]\nisolated = true\n"));
    let up = gantry_testkit::Gateway::start(&world);
    let open = || up.get("/v1/sessions/main").json()["questions"].as_array().cloned().unwrap_or_default();
    std::thread::scope(|scope| {
        scope.spawn(|| post(&up, "main", &json!({"message": "go"}), &[]));
        eventually("two questions", Duration::from_secs(20), || open().len() == 2);
        let ids: Vec<String> = open().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
        for (id, answer) in ids.iter().zip(["yes", "no"]) {
            let body = json!({"question": id, "answer": answer}).to_string();
            let answered = up.ask("POST", "/v1/sessions/main/answers", &[], body.as_bytes());
            assert_eq!(answered.status, 200, "{}", answered.text());
        }
    });
    let last = model.server.requests().pop().unwrap().body["messages"].to_string();
    assert_eq!(
        (last.matches("ran\\\\n").count() > 0, last.matches("the user said no").count()),
        (true, 1),
        "{last}"
    );
    model.check();
}

#[test]
fn autonomous_agent_stays_in_the_sandbox_unless_a_rule_allows_it() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    let found = stage.calls("one", &json!([["Bash", escalating(READ_KEY)], ["Bash", escalating("")]]));
    assert!(found[0].contains("the agent is autonomous") && !found[0].contains("top secret"), "{found:?}");

    let rule = "[[policy.rules]]\ntool = \"Bash\"\ndecision = \"allow\"\n\
         when = [{path = \"escalate.reason\", contains = \"release\"}, {path = \"command\", startsWith = \"cat .ssh\"}]\n";
    let stage = Stage::new(&format!("autonomy = \"autonomous\"\n{rule}"));
    let other = escalating("id; cat .ssh/id_ed25519");
    let found = stage.calls("two", &json!([["Bash", other], ["Bash", escalating(READ_KEY)]]));
    assert!(found[0].contains("the agent is autonomous"), "{found:?}");
    assert!(found[1].contains("top secret"), "{found:?}");
    stage.model.check();
}

#[test]
fn failure_by_the_sandbox_is_explained() {
    let stage = Stage::new("autonomy = \"autonomous\"");
    let found = stage.run(
        "hints",
        &[
            "bash -c 'echo > /dev/tcp/192.0.2.1/80'",
            "touch /opt/gantry-sandbox-hint",
            "cat /missing-file; false",
            "echo 'Network is unreachable'",
        ],
    );
    assert!(found[0].contains("the sandbox has no direct network"), "{found:?}");
    assert!(found[1].contains("the sandbox does not let commands write /opt"), "{found:?}");
    for quiet in &found[2..] {
        assert!(!quiet.contains("the sandbox"), "{found:?}");
    }
    assert!(!found[0].contains("escalate"), "an autonomous agent cannot escalate: {found:?}");
}

#[test]
fn operator_is_not_confined_and_clients_are_refused() {
    let stage = Stage::new("autonomy = \"guided\"");
    let input = escalating("echo ran").to_string();
    let own = stage.world.run(&["call", "Bash", &input]);
    assert_eq!(own.code, 0, "{own:?}");
    let token = stage.world.run(&["tokens", "add", "ci"]).stdout.trim().to_owned();
    let refused = stage
        .world
        .run_with(&["call", "--gateway", &stage.up.url, "Bash", &input], &[("GANTRY_TOKEN", &token)]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("only Gantry's own agents"), "{refused:?}");
    let empty = stage.world.run(&["call", "Bash", r#"{"command": "true", "escalate": {"reason": " "}}"#]);
    assert_eq!(empty.code, 2, "{empty:?}");
}

#[test]
fn approved_command_leaves_the_sandbox_of_a_node() {
    let stage = Stage::new("autonomy = \"guided\"");
    let far = Far::join_configured(&stage.world, &stage.up, "[shell]\nisolated = true\n");
    let home = far.world.folder.path();
    std::fs::create_dir(home.join(".ssh")).unwrap();
    std::fs::write(home.join(".ssh/id_ed25519"), "far secret").unwrap();
    let key = "cat $HOME/.ssh/id_ed25519";
    let plain = json!({"command": key, "node": "far"});
    let mut input = escalating(key);
    input["node"] = json!("far");
    let found = during(&stage, &json!([["Bash", input], ["Bash", plain]]), || {
        eventually("the question", Duration::from_secs(20), || questions(&stage).len() == 1);
        assert_eq!(questions(&stage)[0]["tool"], "far__Bash");
        assert_eq!(stage.world.run(&["sessions", "answer", "main", "yes"]).code, 0);
    });
    assert!(found[0].contains("far secret"), "{found:?}");
    assert!(!found[1].contains("far secret"), "the next command is in the sandbox: {found:?}");
}
