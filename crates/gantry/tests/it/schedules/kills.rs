//! The gateway is killed with SIGKILL while jobs are due. None is lost, none runs twice, and no message is sent twice.

use std::collections::HashMap;
use std::time::Duration;

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::{Gateway, Random, eventually, is_soak};
use serde_json::{Value, json};

use super::{PATIENCE, Sink};
use crate::sessions::{Model, call, results};

/// Jobs of one round. They are due within the same seconds.
const JOBS: usize = 20;
/// Kills of one round.
const KILLS: usize = 5;

fn rounds() -> usize {
    if is_soak() { 100 } else { 5 }
}

/// The model writes the name of the task into a file, once.
fn decide(heard: &Heard) -> Turn {
    let text = heard.body["messages"].to_string();
    let at = text.find("task-").unwrap_or(0);
    let name: String = text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    match results(heard) {
        0 => call("Bash", json!({"command": format!("echo {name} >> notes")})),
        _ => Turn::text(format!("{name} is done")),
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn history(up: &Gateway) -> Vec<Value> {
    let mut runs = Vec::new();
    loop {
        let path = format!("/v1/cron/runs?limit=2000&offset={}", runs.len());
        let page = up.get(&path).json();
        let found = page["runs"].as_array().unwrap().clone();
        let is_last = found.is_empty()
            || runs.len() + found.len() >= usize::try_from(page["count"].as_u64().unwrap()).unwrap();
        runs.extend(found);
        if is_last {
            return runs;
        }
    }
}

#[test]
fn kills_lose_and_double_no_occurrence_and_no_message() {
    let mut random = Random::new();
    let sink = Sink::start();
    let model = Model::deciding(decide);
    let world = super::world(&model, &format!("[flow.webhooks.sink]\nurl = \"{}\"", sink.url));
    let mut jobs = Vec::new();
    let mut up = Gateway::start(&world);
    for round in 0..rounds() {
        let base = now();
        for number in 0..JOBS {
            let job = json!({
                "name": format!("task-{round}x{number}"),
                "schedule": {"kind": "at", "atMs": base + 300 + random.below(1_500) as i64},
                "spec": {"mode": "task", "message": format!("do task-{round}x{number}"), "channel": "sink"},
            });
            let added = up.ask("POST", "/v1/cron/jobs", &[], job.to_string().as_bytes());
            assert_eq!(added.status, 200, "{added:?}");
            jobs.push(added.json()["id"].as_str().unwrap().to_owned());
        }
        for _ in 0..KILLS {
            std::thread::sleep(Duration::from_millis(random.below(500) as u64));
            up.kill();
            up = Gateway::start(&world);
        }
        if jobs.len() > 150 {
            settle(&up, &jobs);
            for job in jobs.drain(..) {
                assert_eq!(up.ask("DELETE", &format!("/v1/cron/jobs/{job}"), &[], b"").status, 200);
            }
        }
    }
    settle(&up, &jobs);
    let notes = std::fs::read_to_string(world.workspace().join("notes")).unwrap();
    let mut times: HashMap<&str, usize> = HashMap::new();
    notes.lines().for_each(|line| *times.entry(line).or_default() += 1);
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(doubled.is_empty(), "done twice: {doubled:?}");
    let messages = up.get("/v1/outbox?limit=500").json();
    let unknown: Vec<&str> = (messages["messages"].as_array().unwrap().iter())
        .filter(|message| message["state"] == "unknown")
        .map(|message| message["dedupe"].as_str().unwrap())
        .collect();
    let seen = sink.seen();
    assert!(seen.values().all(|times| *times == 1), "sent twice: {seen:?}");
    println!(
        "{} rounds of {KILLS} kills, {} jobs, {} effects, {} messages arrived, {} unknown",
        rounds(),
        rounds() * JOBS,
        times.len(),
        seen.len(),
        unknown.len()
    );
}

/// Waits until every job has one row that has ended, and every message is sent or unknown.
fn settle(up: &Gateway, jobs: &[String]) {
    let mut last = Vec::new();
    eventually("every run has ended", PATIENCE, || {
        last = history(up);
        last.iter().all(|run| !["queued", "running", "parked"].contains(&run["status"].as_str().unwrap()))
            && jobs.iter().all(|job| last.iter().any(|run| run["jobId"] == job.as_str()))
    });
    for job in jobs {
        let own: Vec<&Value> = last.iter().filter(|run| run["jobId"] == job.as_str()).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        assert_eq!(own[0]["status"], "ok", "{own:?}");
    }
    eventually("every message is sent or unknown", PATIENCE, || {
        last = history(up);
        last.iter().all(|run| ["sent", "unknown"].contains(&run["delivery"].as_str().unwrap()))
    });
}
