//! kill -9 at random moments of runs: no accepted message is lost, and no effect happens twice.
//!
//! The killed process is this test binary, started with the one test that plays the gateway.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gantry_agent::{NewMessage, Sent};
use serde_json::json;

use crate::world::{Setup, World, calls, message, notes, results, says};

const FOLDER: &str = "GANTRY_KILL_FOLDER";
const ROUND: &str = "GANTRY_KILL_ROUND";
/// The number of messages that each process sends.
const MESSAGES: usize = 3;
/// The number of calls for each message, two at a time.
const CALLS: usize = 6;
/// Every n-th process ends after its work is done. Otherwise, on a slow machine, messages would arrive faster than they are
/// answered and join one run, until that run reaches its limit of requests.
const CATCHES_UP: usize = 20;

fn kills() -> usize {
    gantry_testkit::scaled(500, 25)
}

/// Every effect has the name of its message and call, so that a repetition is visible.
fn script(request: &gantry_model::Request) -> Result<gantry_model::Reply, gantry_agent::ModelFailure> {
    let texts = crate::world::texts(request);
    let asked: Vec<&String> = texts.iter().filter(|text| text.starts_with("task ")).collect();
    let done = results(request).len();
    // The calls of all messages in the conversation count.
    if done >= CALLS * asked.len() {
        return says("done");
    }
    let name = format!("{}.{done}", asked.last().map_or("?", |text| text.as_str()));
    // Read-only calls are written later than others.
    if done % 4 == 2 {
        return calls(&[
            (&format!("a{done}"), "look", json!({"text": format!("look {name}")})),
            (&format!("b{done}"), "look", json!({"text": format!("look again {name}"), "ms": 5})),
        ]);
    }
    calls(&[
        (&format!("n{done}"), "note", json!({"text": name, "ms": 3})),
        (&format!("l{done}"), "look", json!({"text": format!("look {name}"), "ms": 2})),
    ])
}

/// Plays the gateway until it is killed. Does nothing when it runs as an ordinary test.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let round: usize = std::env::var(ROUND).unwrap().parse().unwrap();
    let world = World::open(Path::new(&folder), Setup::default(), script).await;
    let session = |number: usize| world.sessions.key(&format!("s{number}"), None).unwrap();
    println!("\nresumed {}", world.sessions.resume().await.unwrap());
    if round == usize::MAX {
        // The last process only finishes the remaining work.
        all_done(&world).await;
        assert_eq!(*world.model.violations.lock().unwrap(), [""; 0]);
        println!("finished");
        return;
    }
    for number in 0..MESSAGES {
        let id = format!("{round}-{number}");
        let text = format!("task {id}");
        let sent = world
            .sessions
            .send(&session(number), NewMessage { id: Some(id.clone()), ..message(&text) })
            .await;
        assert!(matches!(sent, Ok(Sent::Accepted { .. })), "{sent:?}");
        println!("accepted {id}");
    }
    all_done(&world).await;
    println!("idle");
    std::future::pending::<()>().await;
}

async fn all_done(world: &World) {
    let until = Instant::now() + Duration::from_secs(60);
    while !world.journal.with_work().await.unwrap().is_empty() {
        assert!(Instant::now() < until, "stuck: {:?}", world.journal.with_work().await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A process of the gateway.
struct Life {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Life {
    /// Returns its output up to a line with this prefix.
    fn lines_until(&self, last: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while !lines.last().is_some_and(|line| line.starts_with(last)) {
            lines.push(self.lines.recv_timeout(Duration::from_secs(60)).unwrap());
        }
        lines
    }
}

fn begin(folder: &Path, round: usize) -> Life {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::the_process_that_is_killed", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, lines) = mpsc::channel();
    let stdout = child.stdout.take().unwrap();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    Life { child, lines }
}

#[test]
fn kills_lose_no_message_and_repeat_no_effect() {
    let mut seed = gantry_testkit::seed();
    let folder = tempfile::tempdir().unwrap();
    let mut accepted = Vec::new();
    for round in 0..kills() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut life = begin(folder.path(), round);
        // The time starts when the process is up, so that it is killed during its work.
        let mut output = life.lines_until("resumed");
        if round % CATCHES_UP == CATCHES_UP - 1 {
            output.extend(life.lines_until("idle"));
        } else {
            std::thread::sleep(Duration::from_micros((seed >> 33) % 120_000));
        }
        life.child.kill().unwrap();
        life.child.wait().unwrap();
        output.extend(life.lines.iter());
        accepted.extend(output.iter().filter_map(|line| line.strip_prefix("accepted ").map(str::to_owned)));
    }
    let mut last = begin(folder.path(), usize::MAX);
    let ended = last.child.wait().unwrap();
    let output: Vec<String> = last.lines.iter().collect();
    assert!(ended.success() && output.iter().any(|line| line.starts_with("finished")), "{output:?}");

    let written = notes(folder.path());
    let mut times: HashMap<&str, usize> = HashMap::new();
    for line in written.iter().filter(|line| !line.starts_with("look ")) {
        *times.entry(line).or_default() += 1;
    }
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(doubled.is_empty(), "done twice: {doubled:?}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (settled, interrupted) = runtime.block_on(settled(folder.path()));
    let lost: Vec<_> = accepted.iter().filter(|id| settled.get(*id) != Some(&1)).collect();
    assert!(lost.is_empty(), "accepted and not settled once: {lost:?}");
    assert!(!accepted.is_empty() && !times.is_empty());
    println!(
        "{} kills: {} messages accepted and settled, {} effects, {interrupted} interrupted",
        kills(),
        accepted.len(),
        times.len()
    );
}

/// Counts in the journal how often each message was settled, and the interrupted calls.
async fn settled(folder: &Path) -> (HashMap<String, usize>, usize) {
    let world = World::open(folder, Setup::default(), |_| says("?")).await;
    let (mut settled, mut interrupted) = (HashMap::new(), 0);
    for number in 0..MESSAGES {
        let key = world.sessions.key(&format!("s{number}"), None).unwrap();
        let mut joined: Vec<String> = Vec::new();
        // A short run may be killed before this session gets a message.
        for event in world.sessions.history(&key, 0, u32::MAX).await.unwrap_or_default() {
            let entry: serde_json::Value = serde_json::from_str(&event.data).unwrap();
            match event.kind.as_str() {
                "joined" => {
                    let ids = entry["messages"].as_array().unwrap().iter();
                    joined.extend(ids.map(|id| id.as_str().unwrap().to_owned()));
                }
                "run_ended" => {
                    assert_eq!(entry["end"]["end"], "final", "{entry}");
                    for id in joined.drain(..) {
                        *settled.entry(id).or_default() += 1;
                    }
                }
                "call_interrupted" => interrupted += 1,
                _ => {}
            }
        }
    }
    (settled, interrupted)
}
