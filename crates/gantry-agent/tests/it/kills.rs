//! kill -9 at random moments of runs whose tools leave traces: nothing acknowledged is lost, nothing is done twice.
//!
//! The process that is killed is this very test binary, started for the one test that plays its part.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gantry_agent::{Said, Sent};
use serde_json::json;

use crate::world::{Setup, World, calls, notes, results, said, says};

const FOLDER: &str = "GANTRY_KILL_FOLDER";
const ROUND: &str = "GANTRY_KILL_ROUND";
/// Messages that each life sends.
const MESSAGES: usize = 3;
/// Calls that each message brings about, two at a time.
const CALLS: usize = 6;
/// One life in so many ends when its work is done. On a slow machine messages would else come faster than they are worked on,
/// and all join one run, until it has asked its model as often as a run may.
const CATCHES_UP: usize = 20;

fn kills() -> usize {
    if std::env::var_os("GANTRY_SOAK").is_some_and(|soak| soak == "1") { 500 } else { 25 }
}

/// Every effect carries the name of the message and of the call, so that a second one shows.
fn script(request: &gantry_model::Request) -> Result<gantry_model::Reply, gantry_agent::ModelFailure> {
    let texts = crate::world::texts(request);
    let asked: Vec<&String> = texts.iter().filter(|text| text.starts_with("task ")).collect();
    let done = results(request).len();
    // Of all messages together: the conversation begins anew with every process that has nothing left to do.
    if done >= CALLS * asked.len() {
        return says("done");
    }
    let name = format!("{}.{done}", asked.last().map_or("?", |text| text.as_str()));
    // Calls that only read are written down later than others.
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

/// Plays the gateway until it is killed. Does nothing unless it was started for that.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let round: usize = std::env::var(ROUND).unwrap().parse().unwrap();
    let world = World::open(Path::new(&folder), Setup::default(), script).await;
    let session = |number: usize| world.sessions.key(&format!("s{number}"), None).unwrap();
    println!("\nresumed {}", world.sessions.resume().await.unwrap());
    if round == usize::MAX {
        // The last life only finishes what is left.
        all_done(&world).await;
        assert_eq!(*world.model.violations.lock().unwrap(), [""; 0]);
        println!("finished");
        return;
    }
    for number in 0..MESSAGES {
        let id = format!("{round}-{number}");
        let text = format!("task {id}");
        let sent = world.sessions.send(&session(number), Said { id: Some(id.clone()), ..said(&text) }).await;
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

struct Life {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Life {
    /// What it tells, up to a line that begins so.
    fn lines_until(&self, last: &str) -> Vec<String> {
        let mut told: Vec<String> = Vec::new();
        while !told.last().is_some_and(|line| line.starts_with(last)) {
            told.push(self.lines.recv_timeout(Duration::from_secs(60)).unwrap());
        }
        told
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
    let (told, lines) = mpsc::channel();
    let stdout = child.stdout.take().unwrap();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = told.send(line);
        }
    });
    Life { child, lines }
}

#[test]
fn nothing_is_lost_doubled_or_stuck_over_many_kills() {
    let seed = std::env::var("GANTRY_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut seed: u64 = seed.unwrap_or_else(|| std::process::id().into());
    println!("GANTRY_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let mut accepted = Vec::new();
    for round in 0..kills() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut life = begin(folder.path(), round);
        // The clock starts when it is up: the moment of death is within its work.
        let mut told = life.lines_until("resumed");
        if round % CATCHES_UP == CATCHES_UP - 1 {
            told.extend(life.lines_until("idle"));
        } else {
            std::thread::sleep(Duration::from_micros((seed >> 33) % 120_000));
        }
        life.child.kill().unwrap();
        life.child.wait().unwrap();
        told.extend(life.lines.iter());
        accepted.extend(told.iter().filter_map(|line| line.strip_prefix("accepted ").map(str::to_owned)));
    }
    let mut last = begin(folder.path(), usize::MAX);
    let ended = last.child.wait().unwrap();
    let told: Vec<String> = last.lines.iter().collect();
    assert!(ended.success() && told.iter().any(|line| line.starts_with("finished")), "{told:?}");

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

/// How often each message was settled, and how many calls were interrupted, as the journal tells it.
async fn settled(folder: &Path) -> (HashMap<String, usize>, usize) {
    let world = World::open(folder, Setup::default(), |_| says("?")).await;
    let (mut settled, mut interrupted) = (HashMap::new(), 0);
    for number in 0..MESSAGES {
        let key = world.sessions.key(&format!("s{number}"), None).unwrap();
        let mut joined: Vec<String> = Vec::new();
        // A short run may be killed before it says anything here.
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
