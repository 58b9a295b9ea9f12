//! The gateway is killed with SIGKILL at random moments of runs whose tools leave traces.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gantry_model::testing::{Heard, Say, Turn};
use gantry_testkit::{Gateway, Random, is_soak};
use serde_json::json;

use super::{Model, post, results};

const SESSIONS: usize = 3;
/// Kills after which everything is let come to its end.
const DECADE: usize = 10;
/// Calls that each message brings about.
const CALLS: usize = 3;

fn kills() -> usize {
    if is_soak() { 500 } else { 20 }
}

/// The model does so many rounds of calls for all the messages it was sent. Each effect carries a name of its own.
fn decide(heard: &Heard) -> Turn {
    let messages = heard.body["messages"].as_array().unwrap();
    let texts: Vec<String> = messages.iter().map(|message| message["content"].to_string()).collect();
    // The newest task counts. A summary or a note next to it does not matter.
    let all = texts.join(" ");
    let tasks: Vec<&str> = all.match_indices("task-").map(|(at, _)| &all[at..]).collect();
    let name =
        |text: &str| text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect::<String>();
    let mut names: Vec<String> =
        tasks.iter().map(|task| name(task)).filter(|name| !name.contains("-call")).collect();
    names.dedup();
    names.sort();
    names.dedup();
    let done = results(heard) / 2;
    if done >= CALLS * names.len() {
        return Turn::text("done");
    }
    let last = names.last().cloned().unwrap_or_default();
    let command = format!("echo {last}-call{done} >> notes");
    let say = vec![
        Say::Call { name: "Bash".into(), input: json!({"command": command}) },
        Say::Call { name: "Glob".into(), input: json!({"pattern": format!("*{done}")}) },
    ];
    Turn { say, ..Turn::default() }
}

#[test]
fn gateway_kills_lose_duplicate_and_block_nothing() {
    let mut random = Random::new();
    let model = Model::deciding(decide);
    // Each conversation is reset when it is idle, so that names do not accumulate.
    let world = model.world(
        "autonomy = \"guided\"\nflow = \"off\"\nmaxRequests = 200\n[agents.main.reset]\nmode = \"idle\"\nidleMinutes = 0",
    );
    let (mut said, mut slowest) = (0, Duration::ZERO);
    for decade in 0..kills().div_ceil(DECADE) {
        let mut unsettled = Vec::new();
        for round in 0..DECADE {
            let up = Gateway::start(&world);
            let mut connections = Vec::new();
            for session in 0..SESSIONS {
                let (key, id) = (format!("d{decade}s{session}"), format!("task-{decade}x{round}x{session}"));
                let body = json!({"message": format!("please do {id}"), "id": id}).to_string();
                let mut connection = up.connection();
                let path = format!("/v1/sessions/{key}/messages");
                connection.begin(&up, "POST", &path, &[("Accept", "text/event-stream")], body.as_bytes());
                connections.push(connection);
                unsettled.push((key, id));
            }
            std::thread::sleep(Duration::from_millis(random.below(350) as u64));
            up.kill();
        }
        // Who has heard nothing says it again under the same id: it is said once, and settled.
        let up = Gateway::start(&world);
        let began = Instant::now();
        for (key, id) in &unsettled {
            let body = json!({"message": format!("please do {id}"), "id": id});
            let answer = post(&up, key, &body, &[]);
            assert!(answer.status == 200 && answer.json()["status"] == "final", "{id}: {answer:?}");
        }
        said += unsettled.len();
        slowest = slowest.max(began.elapsed());
    }
    let notes = std::fs::read_to_string(world.workspace().join("notes")).unwrap();
    let mut times: HashMap<&str, usize> = HashMap::new();
    for line in notes.lines() {
        *times.entry(line).or_default() += 1;
    }
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(doubled.is_empty(), "done twice: {doubled:?}");
    assert!(times.len() > kills(), "{} effects", times.len());
    model.check();
    println!(
        "{} kills, {said} messages, {} effects, all settled within {slowest:?} of the last start",
        kills(),
        times.len()
    );
}
