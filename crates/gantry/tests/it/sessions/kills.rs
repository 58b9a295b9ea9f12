//! kill -9 for the gateway at random moments of runs whose tools leave traces.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gantry_model::testing::{Heard, Say, Turn};
use serde_json::json;

use super::{Model, post, results};
use crate::gateway::{Dice, Up, soak};

const SESSIONS: usize = 3;
/// Calls that each message brings about.
const CALLS: usize = 3;

fn kills() -> usize {
    if soak() { 500 } else { 20 }
}

/// The model does so many rounds of calls for all the messages it was sent. Each effect carries a name of its own.
fn decide(heard: &Heard) -> Turn {
    let messages = heard.body["messages"].as_array().unwrap();
    let texts: Vec<String> = messages.iter().map(|message| message["content"].to_string()).collect();
    // The newest task counts; a summary or a note beside it does not matter.
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
fn nothing_is_lost_doubled_or_stuck_over_many_kills_of_the_gateway() {
    let mut dice = Dice::new();
    let model = Model::deciding(decide);
    // Each conversation begins anew when it is quiet, so that names do not pile up.
    let world = model.world(
        "autonomy = \"guided\"\nflow = \"off\"\nmaxRequests = 200\n[agents.main.reset]\nmode = \"idle\"\nidleMinutes = 0",
    );
    let mut said = Vec::new();
    for round in 0..kills() {
        let up = Up::start(&world);
        let mut connections = Vec::new();
        for session in 0..SESSIONS {
            let id = format!("task-{round}x{session}");
            let body = json!({"message": format!("please do {id}"), "id": id}).to_string();
            let mut connection = up.connection();
            let path = format!("/v1/sessions/s{session}/messages");
            connection.begin(&up, "POST", &path, &[("Accept", "text/event-stream")], body.as_bytes());
            connections.push(connection);
            said.push((session, id));
        }
        std::thread::sleep(Duration::from_millis(dice.below(350) as u64));
        up.kill();
    }
    let up = Up::start(&world);
    let began = Instant::now();
    // Who has heard nothing says it again under the same id: it is said once.
    let mut lost = Vec::new();
    for (session, id) in &said {
        let body = json!({"message": format!("please do {id}"), "id": id});
        let answer = post(&up, &format!("s{session}"), &body, &[]);
        if answer.status != 200 || answer.json()["status"] != "final" {
            lost.push((id, answer));
        }
    }
    assert!(lost.is_empty(), "not settled: {lost:?}");
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
        "{} kills, {} messages, {} effects, the rest took {:?}",
        kills(),
        said.len(),
        times.len(),
        began.elapsed()
    );
}
