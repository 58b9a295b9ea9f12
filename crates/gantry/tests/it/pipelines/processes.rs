//! Captured processes are replayed as they were recorded, with parameters in their places.

use gantry_model::testing::Turn;
use gantry_testkit::Gateway;
use serde_json::{Value, json};

use super::{GUIDED, run};
use crate::sessions::{Model, call, post, results};

#[test]
fn captured_calls_are_replayed_with_new_parameters() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("Bash", json!({"command": "printf 'the long greeting'"})),
        1 => call("Write", json!({"path": "greeting.txt", "content": "blue moon"})),
        2 => call("Read", json!({"path": "missing"})),
        3 => call("capture_process", json!({"name": "greet", "description": "writes a greeting"})),
        _ => Turn::text(heard.last_text()),
    });
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let reply = post(&up, "main", &json!({"message": "write blue moon"}), &[]).json();
    let reply = reply["reply"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
    let captured: Value = serde_json::from_str(&reply).unwrap_or_else(|_| panic!("{reply}"));
    for key in ["process_id", "name", "steps", "parameters", "step_count", "parameter_count"] {
        assert!(captured.get(key).is_some(), "{key} in {captured}");
    }
    assert_eq!((&captured["step_count"], &captured["parameter_count"]), (&json!(2), &json!(1)), "{captured}");
    let steps = captured["steps"].as_array().unwrap();
    for key in ["order", "tool", "input", "description", "depends_on"] {
        assert!(steps[1].get(key).is_some(), "{key} in {captured}");
    }
    assert_eq!(steps[1]["input"], json!({"path": "greeting.txt", "content": "{{params.content}}"}));
    assert_eq!(steps[1]["depends_on"], json!([1]), "changes keep their order");
    assert_eq!(
        captured["parameters"],
        json!([{"name": "content", "type": "string", "source": "user_input", "default": "blue moon"}])
    );
    let id = captured["process_id"].as_str().unwrap();
    let shown = world.run(&["processes", "show", &id[..6]]);
    assert!(shown.stdout.contains("1. Bash") && shown.stdout.contains("content (string)"), "{shown:?}");
    let wrong = world.run(&["processes", "promote", id, "--param", "contnet=x"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("unknown parameter \"contnet\""), "{wrong:?}");
    let promoted = world.run(&["processes", "promote", id, "--json"]).json();
    for key in ["pipeline_id", "name", "steps", "parameters", "estimated_cost", "next"] {
        assert!(promoted.get(key).is_some(), "{key} in {promoted}");
    }
    assert_eq!((&promoted["steps"], &promoted["estimated_cost"]), (&json!(2), &json!("$0.00")));
    let again = world.run(&["processes", "promote", id, "--json"]).json();
    assert_eq!(again["pipeline_id"], promoted["pipeline_id"]);
    let greeting = || std::fs::read_to_string(world.workspace().join("greeting.txt")).unwrap();
    let input = json!({"pipeline_id": promoted["pipeline_id"], "params": {"content": "red sun"}});
    let ran = run(&up, input);
    assert_eq!((&ran["status"], greeting().as_str()), (&json!("completed"), "red sun"), "{ran}");
    let ran = run(&up, json!({"pipeline_id": promoted["pipeline_id"]}));
    assert_eq!((&ran["status"], greeting().as_str()), (&json!("completed"), "blue moon"), "{ran}");
    assert_eq!(world.run(&["processes", "remove", id]).code, 0);
    assert_eq!(world.run(&["processes", "--json"]).json(), json!({"processes": []}));
}
