//! Pipelines, plans and processes in a real gateway, with a scripted server in place of a model.

use std::time::Duration;

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use crate::sessions::{Model, call, post, results};

mod events;
mod kills;
mod plans;
mod processes;
mod rights;

const GUIDED: &str = "autonomy = \"guided\"";
/// Budgets need a price.
const PRICED: &str =
    "autonomy = \"guided\"\n[models.providers.lab.models.scripted-1.price]\ninput = 1.0\noutput = 1.0";
const PATIENCE: Duration = Duration::from_secs(30);

/// A model that answers every step with its task, and never calls a tool.
fn echo(heard: &Heard) -> Turn {
    Turn::text(format!("done: {}", task(heard)))
}

/// The task of a step, or the message.
fn task(heard: &Heard) -> String {
    let text = heard.last_text();
    match serde_json::from_str::<Value>(&text) {
        Ok(message) => message["task"].as_str().unwrap_or_default().to_owned(),
        Err(_) => text,
    }
}

/// Calls `run_pipeline` as the operator and parses its JSON text.
fn run(up: &Gateway, input: Value) -> Value {
    let answer = up.call("run_pipeline", &input);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let parsed: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
    match &parsed {
        Value::String(inner) => serde_json::from_str(inner).unwrap_or(parsed),
        _ => parsed,
    }
}

fn bash(id: &str, command: &str, from: &[&str]) -> Value {
    json!({"id": id, "tool": "Bash", "input": {"command": command}, "input_from": from})
}

fn notes(world: &World) -> Vec<String> {
    let text = std::fs::read_to_string(world.workspace().join("notes")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn step<'a>(run: &'a Value, id: &str) -> &'a Value {
    let steps = run["steps"].as_array().unwrap_or_else(|| panic!("{run}"));
    steps.iter().find(|step| step["stepId"] == id).unwrap_or_else(|| panic!("{id} in {run}"))
}

#[test]
fn agent_gets_the_results_of_all_steps() {
    let model = Model::deciding(|heard| match (results(heard), task(heard).as_str()) {
        (0, "go") => call(
            "run_pipeline",
            json!({"name": "report", "context": {"topic": "rust"}, "params": {"n": 3}, "steps": [
                bash("fetch", "echo '{\"a\": {{params.n}}}'", &[]),
                {"id": "sum", "task": "sum {{topic}} {{fetch.result}}", "input_from": ["fetch"]},
                {"id": "other", "task": "other"},
            ]}),
        ),
        (0, _) => echo(heard),
        _ => Turn::text(heard.last_text()),
    });
    let world = model.world(PRICED);
    let up = Gateway::start(&world);
    let answer = post(&up, "main", &json!({"message": "go"}), &[]).json();
    let reply = answer["reply"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let start = reply.find('{').unwrap();
    let found: Value = serde_json::from_str(&reply[start..=reply.rfind('}').unwrap()]).unwrap();
    for key in ["pipelineId", "runId", "name", "status", "steps", "totalDurationMs", "totalCostUsd"] {
        assert!(found.get(key).is_some(), "{key} in {found}");
    }
    assert_eq!((&found["status"], &found["name"]), (&json!("completed"), &json!("report")), "{found}");
    for step in found["steps"].as_array().unwrap() {
        for key in ["stepId", "status", "result", "durationMs", "tokensIn", "tokensOut", "costUsd"] {
            assert!(step.get(key).is_some(), "{key} in {step}");
        }
    }
    let fetched = step(&found, "fetch")["result"].as_str().unwrap();
    assert!(fetched.contains("{\\\"a\\\": 3}") || fetched.contains("{\"a\": 3}"), "{fetched}");
    let sum = step(&found, "sum")["result"].as_str().unwrap();
    assert!(sum.contains("sum rust") && sum.contains("3}"), "{sum}");
    assert_eq!(step(&found, "fetch")["tokensIn"], 0, "a tool call asks no model");
    assert_ne!(step(&found, "sum")["tokensIn"], 0);
    let cost = |value: &Value| value["costUsd"].as_f64().unwrap();
    let steps = cost(step(&found, "sum")) + cost(step(&found, "other"));
    assert!(cost(step(&found, "sum")) > 0.0 && cost(step(&found, "fetch")) == 0.0, "{found}");
    assert!((found["totalCostUsd"].as_f64().unwrap() - steps).abs() < 1e-9, "{found}");
    model.check();
}

#[test]
fn everything_wrong_is_listed_and_nothing_is_stored() {
    let model = Model::deciding(echo);
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let wrong = run(
        &up,
        json!({"steps": [
            {"id": "a", "tool": "Nothing", "input": {}},
            {"id": "b", "task": "{{nope}}", "role": "wizard", "model": "lab/none", "input_from": ["c"]},
            {"id": "c", "task": "x", "input_from": ["b", "z"]},
            {"id": "d", "tool": "run_pipeline", "input": {}},
        ]}),
    );
    let text = wrong.to_string();
    for part in [
        "unknown tool",
        "unknown name {{nope}}",
        "unknown role",
        "unknown step",
        "b → c → b",
        "a step cannot start a pipeline",
        "none",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    for (input, part) in [
        (json!({}), "give steps or pipeline_id"),
        (json!({"steps": []}), "1 to 20 steps, not 0"),
        (json!({"steps": [{"id": "a", "task": "x"}], "pipeline_id": "p"}), "not both"),
        (json!({"pipeline_id": "nope"}), "unknown pipeline"),
        (json!({"retry": true}), "retry needs pipeline_id or runId"),
        (json!({"runId": "nope"}), "unknown run"),
    ] {
        let text = run(&up, input.clone()).to_string();
        assert!(text.contains(part), "{input}: {text}");
    }
    assert_eq!(up.get("/v1/pipeline-runs").json(), json!({"runs": []}));
    assert_eq!(up.get("/v1/sessions").json()["total"], 0);
}

#[test]
fn failure_stops_or_continues_and_a_retry_after_a_restart_runs_only_what_failed() {
    let model = Model::deciding(echo);
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let steps = json!([
        bash("good", "echo good >> notes", &[]),
        bash("bad", "echo bad >> notes; test -e fixed", &["good"]),
        {"id": "read", "tool": "Read", "input": {"path": "missing.txt"}, "input_from": ["good"]},
        {"id": "after", "tool": "Write", "input": {"path": "out", "content": "got {{read.result}}"}, "input_from": ["read"]},
    ]);
    let stopped = run(&up, json!({"steps": steps}));
    assert_eq!(stopped["status"], "failed", "{stopped}");
    assert!(step(&stopped, "read")["error"].as_str().unwrap().contains("missing.txt"), "{stopped}");
    assert_eq!(step(&stopped, "after")["status"], "skipped");
    assert!(step(&stopped, "after")["skipReason"].as_str().unwrap().contains("failed"), "{stopped}");
    assert!(step(&stopped, "bad")["error"].as_str().unwrap().contains("\"exitCode\":1"), "{stopped}");
    let continued = run(&up, json!({"steps": steps, "on_failure": "continue"}));
    assert_eq!(
        (&continued["status"], &step(&continued, "after")["status"]),
        (&json!("failed"), &json!("completed"))
    );
    let out = std::fs::read_to_string(world.workspace().join("out")).unwrap();
    assert!(out.contains("step read has no result"), "{out}");
    drop(up);

    let before = notes(&world).iter().filter(|line| *line == "good").count();
    world.write("missing.txt", "now here");
    world.write("fixed", "");
    let up = Gateway::start(&world);
    let again = run(&up, json!({"runId": stopped["runId"], "retry": true}));
    assert_eq!(again["status"], "completed", "{again}");
    assert_eq!(notes(&world).iter().filter(|line| *line == "good").count(), before, "good ran once");
    let out = std::fs::read_to_string(world.workspace().join("out")).unwrap();
    assert!(out.contains("now here"), "{out}");
    let nothing = run(&up, json!({"runId": stopped["runId"], "retry": true})).to_string();
    assert!(nothing.contains("no failed or skipped steps"), "{nothing}");
    // Reading a run changes nothing.
    assert_eq!(run(&up, json!({"runId": stopped["runId"]})), again);
}

#[test]
fn step_is_stopped_at_its_timeout_and_a_cancelled_run_stops_its_steps() {
    let model = Model::deciding(echo);
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let mut slow = bash("slow", "sleep 60", &[]);
    slow["timeout_ms"] = json!(300);
    let late = run(&up, json!({"steps": [slow]}));
    assert_eq!(late["status"], "failed", "{late}");
    assert!(step(&late, "slow")["error"].as_str().unwrap().contains("longer than 300 ms"), "{late}");

    let stored = json!({"definition": {"name": "long", "steps": [
        bash("long", "sleep 60", &[]), bash("never", "echo never >> notes", &["long"]),
    ]}});
    let stored = up.ask("POST", "/v1/pipelines", &[], stored.to_string().as_bytes()).json();
    let begun =
        up.ask("POST", &format!("/v1/pipelines/{}/runs", stored["id"].as_str().unwrap()), &[], b"").json();
    let id = begun["outcome"]["runId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
    let path = format!("/v1/pipeline-runs/{id}");
    eventually("the step runs", PATIENCE, || {
        let key = format!("agent:main:pipeline:{id}:long:1");
        let history = up.get(&format!("/v1/sessions/{key}/events")).json();
        history["events"]
            .as_array()
            .is_some_and(|events| events.iter().any(|event| event["kind"] == "call_begun"))
    });
    up.ask("POST", &format!("{path}/cancel"), &[], b"");
    let ended = up.get(&format!("{path}?waitMs=20000")).json()["outcome"].clone();
    assert_eq!(ended["status"], "interrupted", "{ended}");
    assert!(step(&ended, "long")["error"].as_str().unwrap().contains("stopped by operator"), "{ended}");
    assert_eq!(step(&ended, "never")["status"], "skipped", "{ended}");
    assert!(notes(&world).is_empty());
    let twice = up.ask("POST", &format!("{path}/cancel"), &[], b"");
    assert_eq!(twice.status, 400, "{twice:?}");
}

#[test]
fn stopping_the_session_cancels_its_run() {
    let model = Model::deciding(|heard| match results(heard) {
        0 => call("run_pipeline", json!({"steps": [bash("long", "sleep 60", &[])]})),
        _ => Turn::text("over"),
    });
    let world = model.world(GUIDED);
    let up = Gateway::start(&world);
    let body = json!({"message": "go"}).to_string();
    let mut connection = up.connection();
    connection.begin(&up, "POST", "/v1/sessions/main/messages", &[], body.as_bytes());
    let runs = || up.get("/v1/pipeline-runs").json()["runs"].clone();
    eventually("the run begins", PATIENCE, || runs()[0]["status"] == "running");
    post(&up, "main", &json!({"message": "/stop"}), &[]);
    eventually("the run is cancelled", PATIENCE, || runs()[0]["status"] == "interrupted");
}

#[test]
fn command_line_stores_runs_shows_and_removes_pipelines() {
    let model = Model::deciding(echo);
    let world = model.world(PRICED);
    let up = Gateway::start(&world);
    let definition = json!({"name": "two", "steps": [
        bash("one", "echo {{params.word}} >> notes", &[]),
        {"id": "two", "task": "say {{one.result}}", "input_from": ["one"]},
    ]});
    world.write("two.json", &definition.to_string());
    world.write("bad.json", &json!({"steps": [{"id": "x", "tool": "Nope"}]}).to_string());
    let bad = world.run(&["pipelines", "add", "bad.json"]);
    assert!(bad.code == 2 && bad.stderr.contains("unknown tool"), "{bad:?}");
    let added = world.run(&["pipelines", "add", "two.json", "--json"]).json();
    let id = added["id"].as_str().unwrap_or_else(|| panic!("{added}"));
    let missing = world.run(&["pipelines", "run", id]);
    assert!(missing.code == 2 && missing.stderr.contains("unknown parameter {{params.word}}"), "{missing:?}");
    let ran = world.run(&["pipelines", "run", &id[..6], "--param", "word=hello"]);
    assert!(ran.code == 0 && ran.stdout.contains("completed"), "{ran:?}");
    assert!(ran.stdout.contains("one → [two] task"), "{ran:?}");
    assert_eq!(notes(&world), ["hello"]);
    let runs = world.run(&["pipelines", "runs", "--json"]).json();
    let run = runs["runs"][0]["runId"].as_str().unwrap();
    for shown in [id, run] {
        let drawn = world.run(&["pipelines", "show", shown]);
        assert!(drawn.stdout.contains("  ↓\n") && drawn.stdout.contains("[one] tool Bash"), "{drawn:?}");
    }
    let retried = world.run(&["pipelines", "retry", run]);
    assert!(retried.code == 2 && retried.stderr.contains("no failed or skipped steps"), "{retried:?}");
    assert!(world.run(&["pipelines"]).stdout.contains("two"));
    let changed = up
        .ask(
            "POST",
            &format!("/v1/pipelines/{id}/runs"),
            &[],
            json!({"params": {"word": "x"}, "modifications": [{"step_id": "two", "action": "remove"}]})
                .to_string()
                .as_bytes(),
        )
        .json();
    assert_eq!(changed["outcome"]["steps"].as_array().map(Vec::len), Some(1), "{changed}");
    assert_eq!(
        up.get(&format!("/v1/pipelines/{id}")).json()["definition"]["steps"].as_array().unwrap().len(),
        2
    );
    assert_eq!(world.run(&["pipelines", "remove", id]).code, 0);
    assert_eq!(world.run(&["pipelines", "show", id]).code, 2);
}

#[test]
fn tokens_see_and_change_only_the_pipelines_of_their_agents() {
    let model = Model::deciding(echo);
    let world = model.world(&format!("{GUIDED}\n[agents.other]\n{GUIDED}"));
    let up = Gateway::start(&world);
    let definition = json!({"steps": [bash("one", "true", &[])]});
    let add = |token: &str, agent: &str| {
        let body = json!({"agent": agent, "definition": definition}).to_string();
        let bearer = format!("Bearer {token}");
        up.ask("POST", "/v1/pipelines", &[("Authorization", &bearer)], body.as_bytes())
    };
    let mains = add(&up.token.clone(), "main").json()["id"].as_str().unwrap().to_owned();
    let own = up.client_token(&world, "own", &["--agents", "other"]);
    let reader = up.client_token(&world, "reader", &["--agents", "main", "--read-only"]);
    let limited = up.client_token(&world, "limited", &["--agents", "main", "--tools", "Read"]);
    assert_eq!(add(&own, "main").status, 403);
    assert_eq!(add(&own, "other").status, 200);
    assert_eq!(add(&reader, "main").status, 403);
    assert_eq!(add(&limited, "main").status, 403);
    let asked = |token: &str, method: &str, path: &str| {
        let bearer = format!("Bearer {token}");
        up.ask(method, path, &[("Authorization", &bearer)], b"")
    };
    let seen =
        |token: &str| asked(token, "GET", "/v1/pipelines").json()["pipelines"].as_array().unwrap().len();
    assert_eq!((seen(&own), seen(&reader), seen(&up.token)), (1, 1, 2));
    for (token, status) in [(&own, 400), (&reader, 403), (&limited, 403)] {
        assert_eq!(asked(token, "POST", &format!("/v1/pipelines/{mains}/runs")).status, status);
        assert_eq!(asked(token, "DELETE", &format!("/v1/pipelines/{mains}")).status, status);
    }
    assert_eq!(up.get("/v1/pipeline-runs").json(), json!({"runs": []}));
}
