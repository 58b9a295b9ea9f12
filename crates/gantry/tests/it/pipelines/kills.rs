//! The gateway is killed with SIGKILL while pipelines of 20 steps run.

use std::collections::HashMap;
use std::time::Duration;

use gantry_model::testing::Turn;
use gantry_testkit::{Gateway, Random, eventually, is_soak};
use serde_json::{Value, json};

use super::{GUIDED, PATIENCE, PRICED, bash, echo, notes, task};
use crate::sessions::{Model, call, post, results};

fn rounds() -> usize {
    if is_soak() { 50 } else { 3 }
}

/// 20 steps in four chains that meet. Each appends its id to a file.
fn definition(random: &mut Random) -> Value {
    let steps = (0..20).map(|number| {
        let before: Vec<String> = match number {
            0..4 => Vec::new(),
            19 => (15..19).map(|other| format!("s{other}")).collect(),
            _ => vec![format!("s{}", number - 4)],
        };
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let pause = random.below(40);
        bash(
            &format!("s{number}"),
            &format!("echo {{{{params.run}}}}-s{number} >> notes; sleep 0.0{pause:02}"),
            &before,
        )
    });
    json!({"name": "killed", "on_failure": "continue", "steps": steps.collect::<Vec<_>>()})
}

#[test]
fn no_finished_step_runs_twice_and_every_run_ends() {
    let mut random = Random::new();
    let model = Model::deciding(echo);
    let world = model.world(&format!("{GUIDED}\nflow = \"off\""));
    let (mut completed, mut kills) = (0, 0);
    for round in 0..rounds() {
        let mut up = Gateway::start(&world);
        let body = json!({"definition": definition(&mut random)}).to_string();
        let stored = up.ask("POST", "/v1/pipelines", &[], body.as_bytes()).json();
        let id = stored["id"].as_str().unwrap_or_else(|| panic!("{stored}"));
        let params = json!({"params": {"run": format!("r{round}")}}).to_string();
        let begun = up.ask("POST", &format!("/v1/pipelines/{id}/runs"), &[], params.as_bytes()).json();
        let path = format!("/v1/pipeline-runs/{}", begun["outcome"]["runId"].as_str().unwrap());
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(random.below(500) as u64));
            up.kill();
            kills += 1;
            up = Gateway::start(&world);
        }
        let mut last = Value::Null;
        eventually("the run ends", PATIENCE * 2, || {
            last = up.get(&format!("{path}?waitMs=1000")).json();
            last["outcome"]["status"] != "running"
        });
        let lines = notes(&world);
        for step in last["outcome"]["steps"].as_array().unwrap() {
            let line = format!("r{round}-{}", step["stepId"].as_str().unwrap());
            let times = lines.iter().filter(|known| **known == line).count();
            match step["status"].as_str().unwrap() {
                "completed" => {
                    completed += 1;
                    assert_eq!(times, 1, "{line}: {step}");
                }
                // The gateway was killed while the command ran: whether it took effect is unknown.
                "failed" => assert!(times <= 1, "{line}: {step}"),
                other => panic!("{other}: {step}"),
            }
        }
    }
    let mut times: HashMap<String, usize> = HashMap::new();
    for line in notes(&world) {
        *times.entry(line).or_default() += 1;
    }
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "ran twice: {twice:?}");
    assert!(completed > rounds() * 5, "{completed} steps");
    println!("{kills} kills, {} runs, {completed} completed steps", rounds());
}

/// The call of an agent that waits for a run joins the same run after a restart.
#[test]
fn repeated_call_joins_its_run() {
    let model = Model::deciding(|heard| match (results(heard), task(heard).as_str()) {
        (0, "go") => call(
            "run_pipeline",
            json!({"steps": [
                bash("first", "echo first >> notes", &[]), {"id": "slow", "task": "slow", "input_from": ["first"]},
            ]}),
        ),
        (0, _) => Turn { delay_ms: 1_500, ..Turn::text("slept") },
        _ => Turn::text(heard.last_text()),
    });
    let world = model.world(PRICED);
    let up = Gateway::start(&world);
    let body = json!({"message": "go", "id": "m"});
    let mut connection = up.connection();
    connection.begin(&up, "POST", "/v1/sessions/main/messages", &[], body.to_string().as_bytes());
    eventually("the second step runs", PATIENCE, || {
        let run = up.get("/v1/pipeline-runs").json()["runs"][0]["runId"].clone();
        let state = up.get(&format!("/v1/pipeline-runs/{}", run.as_str().unwrap_or_default())).json();
        state["outcome"]["steps"][1]["status"] == "running"
    });
    up.kill();
    let up = Gateway::start(&world);
    let answer = post(&up, "main", &body, &[]).json();
    let reply = answer["reply"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(reply.contains("\"completed\"") && reply.contains("slept"), "{reply}");
    assert_eq!(notes(&world), ["first"]);
    assert_eq!(up.get("/v1/pipeline-runs").json()["runs"].as_array().unwrap().len(), 1);
}
