//! Measures schedules and the outbox: lateness of many jobs that are due at once, the time until a run starts, a restart with
//! many unfinished runs, the rate of durable messages to a webhook, and the cost of a gateway with jobs that wait.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Row;
use super::corpus::Corpus;
use super::gateway::Gateway;
use crate::shell;

const JOBS: usize = 200;
/// Tasks of the idle gateway.
const TASKS: usize = 1_000;
/// Runs by hand, one after the other.
const STARTS: usize = 50;
/// Unfinished runs that a restarted gateway finds.
const UNFINISHED: usize = 1_000;
const MESSAGES: usize = 5_000;
/// How long the idle gateway is watched.
const IDLE: Duration = Duration::from_secs(30);
/// A tick of the processor times in `/proc`.
const TICK_MS: f64 = 10.0;

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let mut rows = jobs(gantry)?;
    rows.push(queue(gantry)?);
    rows.push(resume(gantry)?);
    rows.push(outbox(gantry)?);
    Ok(rows)
}

/// A gateway whose model never answers, so that runs do not end.
fn waiting_gateway(gantry: &Path) -> Result<Gateway> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        let open: Vec<TcpStream> = listener.incoming().flatten().collect();
        drop(open);
    });
    let data = tempfile::tempdir()?;
    let config = format!(
        "[models]\n[models.providers.bench]\nbaseUrl = \"http://{address}/v1\"\nkey = \"bench\"\n\
         [models.providers.bench.models.silent]\ncontextWindow = 200000\nmaxOutput = 4096\n\
         price = {{ input = 0.01, output = 0.01 }}\n[agents.main]\nmodel = \"bench/silent\"\n"
    );
    std::fs::write(data.path().join("gantry.toml"), config)?;
    Gateway::on(gantry, data)
}

fn add_job(client: &Client, name: &str) -> Result<String> {
    let job = json!({
        "name": name,
        "schedule": {"kind": "every", "everyHours": 24},
        "spec": {"mode": "task", "message": "work", "deliver": false},
    });
    let added = client.ask("POST", "/v1/cron/jobs", &job)?;
    Ok(added["id"].as_str().context("no id")?.to_owned())
}

/// The time from the request of a run to its start, while nothing else waits.
fn queue(gantry: &Path) -> Result<Row> {
    let gateway = waiting_gateway(gantry)?;
    let client = Client { token: gateway.token()?, url: gateway.url.clone() };
    let job = add_job(&client, "started")?;
    let mut waits = Vec::new();
    for _ in 0..STARTS {
        let queued = client.ask("POST", &format!("/v1/cron/jobs/{job}/run"), &json!({}))?;
        let run = queued["runId"].as_str().context("no run")?;
        let started = loop {
            let history = client.ask("GET", &format!("/v1/cron/runs?jobId={job}&limit=1"), &Value::Null)?;
            let newest = &history["runs"][0];
            if newest["runId"] == run && newest["startedAtMs"].is_i64() {
                break newest.clone();
            }
        };
        let times = ["startedAtMs", "admittedAtMs"].map(|name| started[name].as_i64().unwrap_or_default());
        waits.push(times[0] - times[1]);
        client.ask("POST", &format!("/v1/cron/runs/{run}/cancel"), &json!({}))?;
        while client.ask("GET", "/v1/cron/status", &Value::Null)?["runningCount"] != 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    waits.sort_unstable();
    let middle = waits[waits.len() / 2];
    Ok(row("queue: due to started, woken, p50", format!("{middle} ms"), "≤ 5 ms", middle <= 5))
}

/// A restart after a kill with many unfinished runs, until the first answered call.
fn resume(gantry: &Path) -> Result<Row> {
    let gateway = waiting_gateway(gantry)?;
    let client = Client { token: gateway.token()?, url: gateway.url.clone() };
    for number in 0..JOBS {
        let job = add_job(&client, &format!("job {number}"))?;
        for _ in 0..UNFINISHED / JOBS {
            client.ask("POST", &format!("/v1/cron/jobs/{job}/run"), &json!({}))?;
        }
    }
    let (gateway, began) = gateway.killed_and_restarted()?;
    let client = Client { token: gateway.token()?, url: gateway.url.clone() };
    client.ask("POST", "/v1/tools/Glob", &json!({"pattern": "*.no-such-file"}))?;
    let took = began.elapsed().as_millis();
    let history = client.ask("GET", "/v1/cron/runs?limit=2000", &Value::Null)?;
    let runs = history["runs"].as_array().context("no runs")?;
    let unfinished =
        runs.iter().filter(|run| ["queued", "running"].contains(&run["status"].as_str().unwrap_or("")));
    let unfinished = unfinished.count();
    ensure!(unfinished == UNFINISHED, "{unfinished} of {UNFINISHED} runs are unfinished after the restart");
    Ok(row(
        "first call after a kill with 1,000 unfinished runs",
        format!("{took} ms"),
        "≤ 1 s",
        took <= 1_000,
    ))
}

fn row(work: &'static str, ours: String, goal: &'static str, met: bool) -> Row {
    Row { work, against: "", ours, theirs: String::new(), result: String::new(), goal, met }
}

/// Jobs that wait, and then are due in the same moment.
fn jobs(gantry: &Path) -> Result<Vec<Row>> {
    let data = tempfile::tempdir()?;
    std::fs::write(data.path().join("gantry.toml"), "[models]\n")?;
    let gateway = Gateway::on(gantry, data)?;
    let client = Client { token: gateway.token()?, url: gateway.url.clone() };
    let at = now()? + 90_000 + i64::try_from(IDLE.as_millis())?;
    for number in 0..JOBS {
        let job = json!({
            "name": format!("job {number}"),
            "schedule": {"kind": "at", "atMs": at},
            "spec": {"mode": "task", "message": "work", "deliver": false},
        });
        client.ask("POST", "/v1/cron/jobs", &job)?;
    }
    for number in 0..TASKS {
        let task = json!({"task": {"title": format!("task {number}"), "schedule": "1d"}});
        client.ask("POST", "/v1/tasks", &task)?;
    }
    std::thread::sleep(Duration::from_secs(2));
    let before = Usage::of(gateway.pid())?;
    std::thread::sleep(IDLE);
    let after = Usage::of(gateway.pid())?;
    ensure!(now()? < at, "adding the jobs and tasks took too long");
    let share = (after.processor_ms - before.processor_ms) / (IDLE.as_secs_f64() * 1e3) * 100.0;
    let written = after.written - before.written;
    while now()? < at + 2_000 {
        std::thread::sleep(Duration::from_millis(200));
    }
    let history = client.ask("GET", "/v1/cron/runs?limit=2000", &Value::Null)?;
    let runs = history["runs"].as_array().context("no runs")?;
    ensure!(runs.len() == JOBS, "{} of {JOBS} jobs were admitted", runs.len());
    let mut late: Vec<i64> = runs
        .iter()
        .filter_map(|run| Some(run["admittedAtMs"].as_i64()? - run["scheduledAtMs"].as_i64()?))
        .collect();
    late.sort_unstable();
    let (middle, most) = (late[late.len() / 2], late[late.len() * 99 / 100]);
    Ok(vec![
        row("lateness of admission, 200 jobs at once, p50", format!("{middle} ms"), "≤ 50 ms", middle <= 50),
        row("  p99", format!("{most} ms"), "≤ 500 ms", most <= 500),
        row(
            "idle gateway with 200 jobs and 1,000 tasks, processor",
            format!("{share:.2} %"),
            "≤ 0.5 %",
            share <= 0.5,
        ),
        row("  bytes written in 30 s", written.to_string(), "0", written == 0),
    ])
}

fn outbox(gantry: &Path) -> Result<Row> {
    let (arrived, arrivals) = channel();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let arrived = arrived.clone();
            std::thread::spawn(move || receive(stream, &arrived));
        }
    });
    let data = tempfile::tempdir()?;
    std::fs::write(
        data.path().join("gantry.toml"),
        format!("[models]\n[flow.webhooks.sink]\nurl = \"{url}\"\n"),
    )?;
    let example = gantry.with_file_name("examples").join("outbox_messages");
    let place = data.path().to_string_lossy().into_owned();
    shell::output(&[&example.to_string_lossy(), &place, "sink", &MESSAGES.to_string()], &[])?;
    let gateway = Gateway::on(gantry, data)?;
    let took = all_arrived(&arrivals)?;
    let client = Client { token: gateway.token()?, url: gateway.url.clone() };
    // The last outcomes are recorded after the last arrival.
    std::thread::sleep(Duration::from_secs(1));
    let sent = client.ask("GET", "/v1/outbox?state=sent&limit=1", &Value::Null)?;
    ensure!(sent["total"] == MESSAGES, "{} of {MESSAGES} messages are recorded as sent", sent["total"]);
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let rate = MESSAGES as f64 / took.as_secs_f64();
    Ok(row("outbox, durable, to a local webhook", format!("{rate:.0} messages/s"), "≥ 500 /s", rate >= 500.0))
}

/// The time from the first to the last message.
fn all_arrived(arrivals: &Receiver<Instant>) -> Result<Duration> {
    let first = arrivals.recv_timeout(Duration::from_secs(30)).context("no message arrived")?;
    let mut last = first;
    for number in 1..MESSAGES {
        last = arrivals
            .recv_timeout(Duration::from_secs(30))
            .with_context(|| format!("{number} messages arrived"))?;
    }
    Ok(last - first)
}

/// Answers requests of one connection.
fn receive(stream: TcpStream, arrived: &Sender<Instant>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let line = line.trim().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let _ = arrived.send(Instant::now());
        if reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// Processor time and written bytes of a process.
struct Usage {
    processor_ms: f64,
    written: u64,
}

impl Usage {
    fn of(pid: u32) -> Result<Usage> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may hold spaces.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        let io = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        let written = written.and_then(|text| text.parse().ok()).context("no written bytes")?;
        Ok(Usage { processor_ms: (ticks(11) + ticks(12)) * TICK_MS, written })
    }
}

fn now() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// Sends requests as the operator, each on a connection of its own.
struct Client {
    url: String,
    token: String,
}

impl Client {
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let host = self.url.split("://").nth(1).context("no host")?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(host)?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            self.token,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, text) = answer.split_once("\r\n\r\n").context("no answer")?;
        ensure!(head.contains(" 200 "), "{method} {path}: {answer}");
        Ok(serde_json::from_str(text)?)
    }
}
