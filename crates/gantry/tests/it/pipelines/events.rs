//! Clients follow runs by events, and people see and answer the questions of steps.

use gantry_testkit::peers::Client;
use gantry_testkit::{Gateway, eventually};
use serde_json::{Value, json};

use super::{GUIDED, PATIENCE, PRICED, bash, echo, run, step, task};
use crate::sessions::{Model, call, results};
use gantry_model::testing::Turn;

fn add(up: &Gateway, definition: Value) -> String {
    let body = json!({"definition": definition}).to_string();
    let added = up.ask("POST", "/v1/pipelines", &[], body.as_bytes());
    assert_eq!(added.status, 200, "{added:?}");
    added.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn client_follows_a_run_and_a_token_sees_only_its_agents() {
    let model = Model::deciding(echo);
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let foreign = up.client_token(&world, "program", &["--agents", "other"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let operator = runtime.block_on(Client::operator(&up));
    let stranger = runtime.block_on(Client::connect(&up, &foreign)).unwrap();
    for client in [&operator, &stranger] {
        // Listening twice sends each event once.
        for _ in 0..2 {
            assert_eq!(runtime.block_on(client.ask("runs.listen", json!({}))).unwrap(), json!({}));
        }
    }
    let id =
        add(&up, json!({"name": "report", "steps": [bash("a", "true", &[]), bash("b", "false", &["a"])]}));
    let started = runtime.block_on(operator.ask("pipelines.run", json!({"pipelineId": "report"}))).unwrap();
    let run = started["outcome"]["runId"].clone();
    let events = || operator.events("run.event");
    eventually("the run ends", PATIENCE, || events().iter().any(|data| data["event"]["event"] == "ended"));
    let found: Vec<(String, String)> = events()
        .iter()
        .map(|data| {
            assert_eq!(
                (&data["kind"], &data["runId"], &data["sourceId"]),
                (&json!("pipeline"), &run, &json!(id))
            );
            assert_eq!((&data["name"], &data["agent"]), (&json!("report"), &json!("main")));
            let text = |name: &str| data["event"][name].as_str().unwrap_or_default().to_owned();
            (text("event"), format!("{}{}", text("step"), text("status")))
        })
        .collect();
    let expected = [
        ("started", ""),
        ("step_started", "a"),
        ("step_ended", "acompleted"),
        ("step_started", "b"),
        ("step_ended", "bfailed"),
        ("ended", "failed"),
    ];
    let found: Vec<(&str, &str)> =
        found.iter().map(|(event, rest)| (event.as_str(), rest.as_str())).collect();
    assert_eq!(found, expected);
    let last = events().into_iter().rev().nth(1).unwrap();
    assert_eq!((&last["event"]["done"], &last["event"]["total"]), (&json!(2), &json!(2)));
    assert!(stranger.events("run.event").is_empty(), "another agent's runs are not visible");
    let page = up.get("/metrics").text();
    for line in [
        "gantry_runs_total{kind=\"pipeline\",status=\"failed\"} 1",
        "gantry_pipeline_steps_total{kind=\"pipeline\",status=\"completed\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    }
    assert!(page.ends_with("# EOF\n") && page.matches("# EOF").count() == 1, "{page}");
}

#[test]
fn pipelines_run_follows_a_run_by_name_until_its_end() {
    let model = Model::deciding(echo);
    let world = model.world(PRICED);
    let up = Gateway::start(&world);
    let id = add(
        &up,
        json!({"name": "report", "steps": [bash("a", "true", &[]), {"id": "b", "task": "sum", "input_from": ["a"]}]}),
    );
    let ran = world.run(&["pipelines", "run", "report"]);
    assert!(ran.code == 0 && ran.stdout.contains("done: sum"), "{ran:?}");
    add(&up, json!({"name": "Report", "steps": [bash("a", "false", &[])]}));
    let several = world.run(&["pipelines", "run", "report"]);
    assert!(several.code != 0 && several.stderr.contains(&format!("{} (report)", &id[..8])), "{several:?}");
    let listed = world.run(&["pipelines"]).stdout;
    assert!(listed.contains("1 step ·") && listed.contains("2 steps ·"), "{listed}");
    let free = world.run(&["pipelines", "show", &id]).stdout;
    assert!(!free.contains("$-"), "{free}");
}

/// A supervised agent needs a yes for each command.
#[test]
fn questions_of_all_sessions_are_listed_and_answered_from_there() {
    let model = Model::deciding(|heard| match (results(heard), task(heard).as_str()) {
        (0, "ask me") => call("ask_user", json!({"question": "Which colour?", "options": ["red", "blue"]})),
        (0, _) => Turn::text("nothing"),
        _ => Turn::text(heard.last_text()),
    });
    let world = model.world(&PRICED.replace("guided", "supervised"));
    let up = Gateway::start(&world);
    let none = world.run(&["sessions", "questions"]);
    assert!(none.code == 0 && none.stderr.contains("No question is open"), "{none:?}");
    let id = add(
        &up,
        json!({"name": "paint", "steps": [bash("shell", "echo x > paint", &[]), {"id": "colour", "task": "ask me"}]}),
    );
    let run = up.ask("POST", &format!("/v1/pipelines/{id}/runs"), &[], b"{}").json();
    let run = run["outcome"]["runId"].as_str().unwrap_or_else(|| panic!("{run}")).to_owned();
    let open = || world.run(&["sessions", "questions", "--json"]).json().as_array().unwrap().clone();
    eventually("both steps ask", PATIENCE, || open().len() == 2);
    let shown = world.run(&["sessions", "questions"]).stdout;
    for part in ["paint: shell", "paint: colour", "echo x > paint", "Which colour?", "answers: red, blue"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    // The listed commands answer the questions.
    for question in open() {
        let key = question["sessionKey"].as_str().unwrap();
        let (kind, answer) =
            if question.get("approval").is_some() { ("approval", "yes") } else { ("asked", "blue") };
        let id = question[kind]["id"].as_str().unwrap();
        assert!(shown.contains(&format!("gantry sessions answer {key} --question {id} ")), "{shown}");
        let answered = world.run(&["sessions", "answer", key, "--question", id, answer]);
        assert_eq!(answered.code, 0, "{answered:?}");
    }
    let state = || up.get(&format!("/v1/pipeline-runs/{run}")).json();
    eventually("the run ends", PATIENCE, || state()["outcome"]["status"] != "running");
    let state = state();
    assert_eq!(state["outcome"]["status"], "completed", "{state}");
    assert!(step(&state["outcome"], "colour")["result"].as_str().unwrap().contains("blue"), "{state}");
    let notices = up.get("/v1/outbox?limit=100").json().to_string();
    assert!(notices.contains("Step \\\"shell\\\" of the pipeline \\\"paint\\\" waits"), "{notices}");
}

/// The result of a step is an argument of a command, never a part of it.
#[test]
fn result_of_a_step_does_not_run_as_shell() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => Turn::text("x'; touch hacked1; echo '$(touch hacked2)`touch hacked3`"),
        _ => Turn::text("unexpected"),
    });
    let world = model.world(PRICED);
    let up = Gateway::start(&world);
    let found = run(
        &up,
        json!({"params": {"since": "2026-01-01"}, "steps": [
            {"id": "page", "task": "read it"},
            bash("plain", "printf %s {{page.result}} > plain; echo {{params.since}}", &["page"]),
            bash("double", "printf %s \"{{page.result}}\" > double", &["page"]),
            bash("single", "printf %s '{{page.result}}' > single", &["page"]),
        ]}),
    );
    assert_eq!(found["status"], "completed", "{found}");
    let folder = world.workspace();
    for name in ["plain", "double", "single"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(text, "x'; touch hacked1; echo '$(touch hacked2)`touch hacked3`", "{name}");
    }
    assert!(step(&found, "plain")["result"].as_str().unwrap().contains("2026-01-01"));
    for number in 1..=3 {
        assert!(!folder.join(format!("hacked{number}")).exists(), "hacked{number}");
    }
    let refused = run(&up, json!({"steps": [{"id": "a", "task": "x"}, bash("b", "{{a.result}}", &["a"])]}));
    assert!(refused.to_string().contains("the result of a step cannot be the command itself"), "{refused}");
}
