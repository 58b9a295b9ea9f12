//! A gateway under mixed load for a long time: memory, descriptors and threads stay flat, and the disk usage grows only by
//! what retention keeps. The check runs two minutes; `GANTRY_SOAK=1` runs an hour.

use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gantry_model::testing::Turn;
use gantry_testkit::{Connection, Gateway, World, eventually, is_soak};
use serde_json::json;

use crate::mcp::http::Session;
use crate::sessions::{Model, call, results};

/// Abandoned MCP sessions end after this long, so that they come and go many times in a run.
const MCP_IDLE_SECONDS: u64 = 20;
/// Requests on one connection before it is replaced.
const REQUESTS_PER_CONNECTION: usize = 200;
const SAMPLES: u32 = 240;

/// What a run may add during its second half.
struct Bounds {
    length: Duration,
    resident_kb: u64,
    descriptors: u64,
    threads: u64,
}

fn bounds() -> Bounds {
    match is_soak() {
        true => Bounds { length: Duration::from_secs(3600), resident_kb: 1024, descriptors: 0, threads: 0 },
        // Caches are still filling, and a busy machine makes the load uneven: then more blocking work overlaps, and
        // the runtime keeps a thread for each piece of it for ten seconds.
        false => {
            Bounds { length: Duration::from_secs(120), resident_kb: 8 * 1024, descriptors: 8, threads: 8 }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    resident_kb: u64,
    descriptors: u64,
    threads: u64,
}

impl Sample {
    fn take(up: &Gateway) -> Sample {
        let count =
            |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", up.pid())).unwrap().count() as u64;
        Sample { resident_kb: up.resident_kb(), descriptors: count("fd"), threads: count("task") }
    }
}

/// The load, shared by the threads that make it.
struct Load {
    up: Gateway,
    world: World,
    is_over: AtomicBool,
    requests: AtomicU64,
}

impl Load {
    /// Does `work` once every `period` until the run is over. A thread that falls behind does not catch up.
    fn every(
        self: &Arc<Load>,
        period: Duration,
        mut work: impl FnMut(&Load) + Send + 'static,
    ) -> std::thread::JoinHandle<()> {
        let load = self.clone();
        std::thread::spawn(move || {
            while !load.is_over.load(Ordering::Relaxed) {
                let next = Instant::now() + period;
                work(&load);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        })
    }

    fn count(&self, requests: u64) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
    }
}

/// Calls tools one after another on a connection that is replaced now and then, some of them with an idempotency key.
fn tool_calls(load: &Arc<Load>, worker: usize) -> std::thread::JoinHandle<()> {
    let mut connection: Option<Connection> = None;
    let mut number = 0_usize;
    load.every(Duration::from_millis(95), move |load| {
        number += 1;
        if number.is_multiple_of(REQUESTS_PER_CONNECTION) {
            connection = None;
        }
        let connection = connection.get_or_insert_with(|| load.up.connection());
        let (tool, input) = match number % 6 {
            0 => ("local__Grep", json!({"pattern": "line 1", "path": "."})),
            1 => ("local__Glob", json!({"pattern": "**/*"})),
            2 => (
                "local__Write",
                json!({"path": format!("written-{worker}.txt"), "content": format!("{number}\n").repeat(50)}),
            ),
            3 => ("tool::file_list", json!({"path": "."})),
            _ => ("local__Read", json!({"path": "read.txt"})),
        };
        let key = format!("{worker}-{number}");
        let headers: &[(&str, &str)] = if number % 6 == 2 { &[("Idempotency-Key", &key)] } else { &[] };
        let response = connection.ask(
            &load.up,
            "POST",
            &format!("/v1/tools/{tool}"),
            headers,
            input.to_string().as_bytes(),
        );
        assert_eq!(response.status, 200, "{tool}: {}", response.text());
        load.count(1);
    })
}

/// Opens MCP sessions that each make a call. One in four is left without a word.
fn mcp_sessions(load: &Arc<Load>) -> std::thread::JoinHandle<()> {
    let mut number = 0_usize;
    load.every(Duration::from_millis(500), move |load| {
        number += 1;
        let session = Session::open(&load.up, "/mcp", &load.up.token, "2025-06-18");
        let read = session.ask("tools/call", &json!({"name": "Read", "arguments": {"path": "read.txt"}}));
        assert_eq!(read["isError"], false, "{read}");
        load.count(3);
        if !number.is_multiple_of(4) {
            session.close();
            load.count(1);
        }
    })
}

/// Runs commands in the background, and reads how they end.
fn background_commands(load: &Arc<Load>) -> std::thread::JoinHandle<()> {
    load.every(Duration::from_secs(1), |load| {
        let started =
            load.up.call("local__Bash", &json!({"command": "echo begun; sleep 0.2", "background": true}));
        let session = started.json()["sessionId"].as_str().unwrap().to_owned();
        let polled =
            load.up.call("local__Process", &json!({"action": "poll", "sessionId": session, "waitMs": 5000}));
        assert_eq!(polled.status, 200, "{}", polled.text());
        load.count(2);
    })
}

/// Chats with an agent that reads a file before it answers. Conversations are reset now and then.
fn chats(load: &Arc<Load>) -> std::thread::JoinHandle<()> {
    let mut number = 0_usize;
    load.every(Duration::from_millis(1500), move |load| {
        number += 1;
        let message = if number.is_multiple_of(20) { "/reset" } else { "what does the file say?" };
        let answer = crate::sessions::post(&load.up, "main", &json!({"message": message}), &[]);
        assert_eq!(answer.status, 200, "{}", answer.text());
        load.count(1);
    })
}

/// A machine whose process ends and starts again, and which is called in between.
fn reconnecting_node(load: &Arc<Load>) -> std::thread::JoinHandle<()> {
    let token = load.up.add_node(&load.world, "far", &[]);
    let world = World::new();
    load.every(Duration::from_secs(8), move |load| {
        let mut command = world.command(&["node", "--gateway", &load.up.url, "--id", "far"]);
        command.env("GANTRY_TOKEN", &token).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut node = Ended(command.spawn().unwrap());
        eventually("the node is online", Duration::from_secs(60), || load.up.node("far")["online"] == true);
        for _ in 0..20 {
            let answer = load.up.call("far__Bash", &json!({"command": "echo far"}));
            assert_eq!(answer.status, 200, "{}", answer.text());
            load.count(1);
        }
        node.end();
        eventually("the node is offline", Duration::from_secs(60), || load.up.node("far")["online"] == false);
    })
}

/// A process that ends with the test.
struct Ended(Child);

impl Ended {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

fn folder_kb(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => folder_kb(&entry.path()),
        Ok(meta) => meta.len() / 1024,
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// How much the least of some samples grew from one part of the run to another: what is in use for a moment does not count.
fn growth(before: &[Sample], after: &[Sample], field: impl Fn(&Sample) -> u64) -> u64 {
    let least = |samples: &[Sample]| samples.iter().map(&field).min().unwrap_or(0);
    least(after).saturating_sub(least(before))
}

#[test]
fn long_mixed_load_leaves_memory_descriptors_and_threads_flat() {
    let model = Model::deciding(|heard| match results(heard) % 2 {
        0 => call("Read", json!({"path": "read.txt"})),
        _ => Turn::text("it says line 1"),
    });
    let world =
        model.world(&format!("autonomy = \"guided\"\n[gateway]\nmcpIdleSeconds = {MCP_IDLE_SECONDS}\n"));
    world.write("read.txt", &(0..100).map(|line| format!("line {line}\n")).collect::<String>());
    let up = Gateway::start(&world);
    let Bounds { length, resident_kb, descriptors, threads } = bounds();
    let load = Arc::new(Load { up, world, is_over: AtomicBool::new(false), requests: AtomicU64::new(0) });
    let mut workers: Vec<_> = (0..4).map(|worker| tool_calls(&load, worker)).collect();
    workers.extend([mcp_sessions(&load), background_commands(&load), chats(&load), reconnecting_node(&load)]);

    let (began, mut samples, mut sizes) = (Instant::now(), Vec::new(), Vec::new());
    for number in 0..SAMPLES {
        std::thread::sleep((length * (number + 1) / SAMPLES).saturating_sub(began.elapsed()));
        samples.push(Sample::take(&load.up));
        if number % (SAMPLES / 12) == SAMPLES / 12 - 1 {
            sizes.push(folder_kb(&load.world.data()));
            let requests = load.requests.load(Ordering::Relaxed);
            println!(
                "{:?}: {:?}, {requests} requests, {:?} KB on disk",
                began.elapsed(),
                samples.last(),
                sizes.last()
            );
        }
        assert!(workers.iter().all(|worker| !worker.is_finished()), "a part of the load ended early");
    }
    load.is_over.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    model.check();

    let requests = load.requests.load(Ordering::Relaxed);
    println!("{requests} requests in {:?}", began.elapsed());
    let half = &samples[samples.len() / 2..];
    let (before, after) = (&half[..half.len() / 3], &half[half.len() - half.len() / 3..]);
    let grown = growth(before, after, |sample| sample.resident_kb);
    assert!(grown <= resident_kb, "memory grew by {grown} KB in the second half");
    let grown = growth(before, after, |sample| sample.descriptors);
    assert!(grown <= descriptors, "{grown} descriptors more in the second half");
    let grown = growth(before, after, |sample| sample.threads);
    assert!(grown <= threads, "{grown} threads more in the second half");
    // Audit lines and answers under idempotency keys are kept for days; nothing else may add up.
    let per_request = (sizes.last().unwrap() - sizes[0]) as f64 * 1024.0 / requests as f64;
    println!("{per_request:.0} bytes on disk for each request");
    assert!(per_request < 4096.0, "{per_request} bytes on disk for each request");
}
