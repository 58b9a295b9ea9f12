//! `plan_task` waits for a person on every surface and never approves itself.

use gantry_model::testing::Turn;
use gantry_testkit::{Gateway, eventually};
use serde_json::{Value, json};

use super::{GUIDED, PATIENCE, PRICED, run, step};
use crate::sessions::{Model, call, post, results};

fn plan() -> Value {
    json!({"summary": "Move the site", "phases": [
        {"name": "Back up", "steps": ["copy"], "verification": "the copy exists"},
        {"name": "Change DNS", "steps": ["log in"], "assignee": "user", "depends_on": ["Back up"]},
        {"name": "Check", "steps": ["open it"], "depends_on": ["Change DNS"]},
    ]})
}

fn presenting() -> Model {
    Model::deciding(|heard| match results(heard) {
        0 if heard.last_text() == "go" => call("plan_task", plan()),
        _ => Turn::text(heard.last_text()),
    })
}

/// Sends a message, answers the question that it leads to, and returns what plan_task answered.
fn answered(answer: &str) -> Value {
    let model = presenting();
    let world = model.world(PRICED);
    let up = Gateway::start(&world);
    let body = json!({"message": "go", "id": "m"}).to_string();
    let mut connection = up.connection();
    connection.begin(&up, "POST", "/v1/sessions/main/messages", &[], body.as_bytes());
    let asked = || up.get("/v1/sessions/main").json()["asks"][0].clone();
    eventually("the plan is shown", PATIENCE, || asked()["questions"].is_array());
    let question = asked()["questions"][0].clone();
    let text = question["question"].as_str().unwrap();
    for part in
        ["1. Back up", "Check: the copy exists", "2. Change DNS [your input needed]", "Estimated cost:"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(question["options"], json!(["Proceed", "Adjust", "Cancel"]));
    assert_eq!(up.get("/v1/pipelines").json()["pipelines"], json!([]), "nothing is stored before the answer");
    let body = json!({"answers": [answer]}).to_string();
    let sent = up.ask("POST", "/v1/sessions/main/answers", &[], body.as_bytes());
    assert_eq!(sent.status, 200, "{sent:?}");
    let reply = post(&up, "main", &json!({"message": "go", "id": "m"}), &[]).json();
    let reply = reply["reply"].as_str().unwrap_or_else(|| panic!("{reply}"));
    let mut decision: Value = serde_json::from_str(reply).unwrap_or_else(|_| panic!("{reply}"));
    if let Some(id) = decision["pipeline_id"].as_str().map(str::to_owned) {
        decision["stored"] = up.get(&format!("/v1/pipelines/{id}")).json();
        let ran = run(&up, json!({"pipeline_id": id, "context": {}}));
        assert_eq!((&ran["pipelineId"], &ran["status"]), (&json!(id), &json!("completed")), "{ran}");
        let check = step(&ran, "check")["result"].as_str().unwrap();
        assert!(check.contains("the user's phase"), "{check}");
    }
    decision
}

#[test]
fn approved_phases_become_a_pipeline() {
    let decision = answered("Proceed");
    assert_eq!(decision["approved"], true, "{decision}");
    assert_eq!(decision["user_steps"], json!(["Change DNS"]));
    let ids: Vec<&str> =
        decision["steps"].as_array().unwrap().iter().map(|step| step["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["back-up", "check"]);
    assert!(decision["estimated_cost_usd"].as_f64().is_some_and(|cost| cost > 0.0), "{decision}");
    let steps = &decision["stored"]["definition"]["steps"];
    assert!(steps[0]["task"].as_str().unwrap().contains("Verification: the copy exists"), "{steps}");
    assert_eq!(steps[1]["input_from"], json!(["back-up"]), "also through the user's phase");
}

#[test]
fn other_answers_are_feedback() {
    for (answer, feedback) in [("Cancel", "cancelled"), ("use Postgres", "use Postgres")] {
        let decision = answered(answer);
        assert_eq!((&decision["approved"], decision.get("pipeline_id")), (&json!(false), None), "{decision}");
        assert!(decision["feedback"].as_str().unwrap().contains(feedback), "{decision}");
    }
}

#[test]
fn plan_without_a_person_never_proceeds() {
    let model = presenting();
    let world = model.world("autonomy = \"autonomous\"");
    let up = Gateway::start(&world);
    let reply = post(&up, "main", &json!({"message": "go"}), &[]).json();
    let reply = reply["reply"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
    let decision: Value = serde_json::from_str(&reply).unwrap_or_else(|_| panic!("{reply}"));
    assert_eq!((&decision["approved"], &decision["pending"]), (&json!(false), &json!(true)), "{decision}");
    assert_eq!(up.get("/v1/pipelines").json()["pipelines"], json!([]));
    let id = decision["approval_id"].as_str().unwrap();
    let read = |id: &str| {
        let text = String::from_utf8(up.call("plan_task", &json!({"approval_id": id})).body).unwrap();
        let parsed: Value = serde_json::from_str(&text).unwrap_or(json!(text));
        parsed.as_str().map_or(parsed.clone(), |inner| serde_json::from_str(inner).unwrap_or(parsed.clone()))
    };
    assert_eq!(read(id), decision, "nobody has answered");
    // A direct call has nobody to ask either.
    let direct = up.call("plan_task", &plan());
    assert!(String::from_utf8_lossy(&direct.body).contains("pending"), "{direct:?}");
    // An agent's own token cannot answer, and a wrong answer does not count as a yes.
    let shown = world.run(&["pipelines", "plans"]);
    assert!(shown.stdout.contains(id) && shown.stdout.contains("1. Back up"), "{shown:?}");
    let yes = world.run(&["pipelines", "answer", id, "proceed", "--json"]).json();
    assert_eq!(yes["approved"], true, "{yes}");
    assert_eq!(read(id)["pipeline_id"], yes["pipeline_id"]);
    let again = world.run(&["pipelines", "answer", id, "cancel"]);
    assert_eq!(again.code, 2, "{again:?}");
}

#[test]
fn plan_without_phases_and_steps_is_rejected() {
    let model = presenting();
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let wrong = up.call("plan_task", &json!({"summary": "x"}));
    assert!(String::from_utf8_lossy(&wrong.body).contains("give phases"), "{wrong:?}");
    let cycle = up.call("plan_task", &json!({"summary": "x", "phases": [
        {"name": "a", "steps": ["x"], "depends_on": ["b"]}, {"name": "b", "steps": ["x"], "depends_on": ["a"]},
    ]}));
    assert!(String::from_utf8_lossy(&cycle.body).contains("a → b → a"), "{cycle:?}");
}
