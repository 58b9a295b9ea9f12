//! Benchmark of sessions: many sessions that write at once, and one session with a long journal that is resumed. Prints one
//! line of JSON.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_agent::{
    Agent, AnswerFuture, Asker, CallResult, End, Entry, FactsFuture, Incoming, Model, ModelFacts,
    ModelFailure, SessionSettings, Sessions, SessionsParts, State,
};
use gantry_model::{Block, Message, Reply, Request, Role, StopReason, StreamEvent, Usage};
use gantry_store::{Append, DataDir, Database, Journal, NewEvent, Objects};
use gantry_tool::testing::gate;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const SESSIONS: usize = 64;
const EVENTS_EACH: i64 = 400;
const LONG: i64 = 100_000;
const RESUMES: usize = 11;
/// The number of events between checkpoints, as in the driver.
const CHECKPOINT: usize = 1_000;
/// The highest number of messages, as if the conversation were compacted.
const KEPT_MESSAGES: usize = 200;
const KEY: &str = "agent:main:main";

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let per_second = appends(&folder.path().join("many")).await;
    let resumed = resume(&folder.path().join("long"), Past::Checkpointed).await;
    let bare = resume(&folder.path().join("bare"), Past::Bare).await;
    println!("{}", json!({"appendsPerSecond": per_second, "resumeMs": resumed, "resumeBareMs": bare}));
}

/// Measures appends per second. Each session waits until its event is on disk.
async fn appends(folder: &Path) -> f64 {
    let database = Database::open(&DataDir::new(folder.to_owned())).await.unwrap();
    let journal = Journal::new(database.clone());
    for number in 0..SESSIONS {
        journal.open(&format!("agent:main:{number}"), "main", 1).await.unwrap();
    }
    let began = Instant::now();
    let writing: Vec<_> = (0..SESSIONS)
        .map(|number| {
            let journal = journal.clone();
            tokio::spawn(async move {
                for seq in 0..EVENTS_EACH {
                    let event = NewEvent { kind: "call_ended", data: "x".repeat(500), checkpoint: false };
                    let key = format!("agent:main:{number}");
                    let append = Append {
                        key,
                        expected: seq,
                        at: 7,
                        events: vec![event],
                        has_work: true,
                        ..Append::default()
                    };
                    journal.append(append).await.unwrap();
                }
            })
        })
        .collect();
    for written in writing {
        written.await.unwrap();
    }
    let per_second = SESSIONS as f64 * EVENTS_EACH as f64 / began.elapsed().as_secs_f64();
    database.close().await;
    per_second
}

#[derive(Clone, Copy, PartialEq)]
enum Past {
    /// With the checkpoints of ended runs.
    Checkpointed,
    /// One run that has not ended, without checkpoints.
    Bare,
}

/// Returns the median milliseconds until a session is loaded. Each try opens the database again.
async fn resume(folder: &Path, past: Past) -> f64 {
    let data = DataDir::new(folder.to_owned());
    write_past(&data, past).await;
    let mut times = Vec::new();
    for _ in 0..RESUMES {
        let database = Database::open(&data).await.unwrap();
        let sessions = sessions(&data, &database);
        let key = sessions.key("main", None).unwrap();
        let began = Instant::now();
        let status = sessions.status(&key).await.unwrap();
        times.push(began.elapsed().as_secs_f64() * 1e3);
        assert!(status.events >= LONG && status.messages > 0, "{status:?}");
        sessions.stop(Duration::from_secs(1)).await;
        database.close().await;
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

async fn write_past(data: &DataDir, past: Past) {
    let database = Database::open(data).await.unwrap();
    let journal = Journal::new(database.clone());
    journal.open(KEY, "main", 1).await.unwrap();
    let (mut state, mut waiting, mut written) = (State::default(), Vec::new(), 0);
    for number in 0.. {
        let mut entries = one_run(number);
        if past == Past::Checkpointed {
            let before = Entry::Snapshot { state: Box::new(std::mem::take(&mut state)) };
            state = State::fold([before].into_iter().chain(entries.clone()));
            state.messages.drain(..state.messages.len().saturating_sub(KEPT_MESSAGES));
            if waiting.len() >= CHECKPOINT {
                entries.push(Entry::Snapshot { state: Box::new(state.clone()) });
            }
        }
        waiting.extend(entries.iter().map(|entry| NewEvent {
            kind: "event",
            data: serde_json::to_string(entry).unwrap(),
            checkpoint: matches!(entry, Entry::Snapshot { .. }),
        }));
        if waiting.len() > CHECKPOINT {
            let events = std::mem::take(&mut waiting);
            let expected = written;
            written += events.len() as i64;
            let append =
                Append { key: KEY.into(), expected, at: 7, events, has_work: false, ..Append::default() };
            journal.append(append).await.unwrap();
        }
        if written >= LONG {
            break;
        }
    }
    database.close().await;
}

/// Returns the entries of one run: a message, a tool call and an answer.
fn one_run(number: i64) -> Vec<Entry> {
    let (message, call) = (format!("m{number}"), format!("c{number}"));
    let asked = Incoming {
        id: message.clone(),
        text: format!("What does the file number {number} say?"),
        images: Vec::new(),
        at: number,
        from: "operator".into(),
        reply_to: Value::Null,
        labels: Vec::new(),
        payer: None,
    };
    let calls = Block::ToolUse {
        id: call.clone(),
        name: "Read".into(),
        input: json!({"path": format!("notes/{number}.txt")}),
        malformed: None,
    };
    let content = vec![Block::text("a line\n".repeat(30))];
    let text = "It repeats one line.";
    vec![
        Entry::MessageIn(asked),
        Entry::RunBegun { run: format!("r{number}"), at: number },
        Entry::Joined { messages: vec![message] },
        Entry::RequestBegun { model: "scripted".into() },
        replied(calls, StopReason::ToolUse),
        Entry::CallBegun { call: call.clone(), read_only: true, polls: false },
        Entry::CallEnded { call, result: CallResult { content, ..CallResult::default() } },
        Entry::RequestBegun { model: "scripted".into() },
        replied(Block::text(text), StopReason::EndTurn),
        Entry::RunEnded { end: End::Final { text: text.into() } },
    ]
}

fn replied(block: Block, stop: StopReason) -> Entry {
    let message = Message { role: Role::Assistant, content: vec![block] };
    let reply = Reply { message, stop, usage: Usage::default(), model: "scripted".into() };
    Entry::Replied { reply: Box::new(reply) }
}

fn sessions(data: &DataDir, database: &Database) -> Sessions {
    let (gate, _) = gate([]);
    Sessions::new(SessionsParts {
        session_labels: Arc::new(|_, _| {}),
        changes: Arc::new(|| Box::pin(async { Vec::new() })),
        journal: Journal::new(database.clone()),
        gate: Arc::new(gate),
        model: Arc::new(Silent),
        objects: Objects::folder(data),
        settings: SessionSettings::of(BTreeMap::from([("main".to_owned(), Agent::default())])),
        idle: gantry_agent::IDLE,
        nodes: Arc::new(Vec::new),
    })
}

/// A model that is never asked.
struct Silent;

impl Model for Silent {
    fn answer<'a>(
        &'a self,
        _: &'a Asker,
        _: &'a Request,
        _: &'a CancellationToken,
        _: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> AnswerFuture<'a> {
        Box::pin(std::future::ready(Err(ModelFailure::Failed("this model never answers".into()))))
    }

    fn facts<'a>(&'a self, _: Option<&'a str>) -> FactsFuture<'a> {
        let facts = ModelFacts { name: "scripted".into(), window: 100_000, max_output: 1_000 };
        Box::pin(std::future::ready(Ok(facts)))
    }
}
