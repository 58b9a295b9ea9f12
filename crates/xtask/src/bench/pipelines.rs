//! Measures pipelines: what a step costs beyond its tool or its model, and 10 commands against a Makefile with the same 10.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Row;
use super::agent::{Model, THINKING};
use super::corpus::Corpus;
use super::gateway::Gateway;
use super::measure::median;

const STEPS: usize = 10;
const RUNS: usize = 15;

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let files = tempfile::tempdir()?;
    let model = Model::start(files.path())?;
    let data = tempfile::tempdir()?;
    let config = format!(
        "[models]\n[models.providers.bench]\nbaseUrl = \"http://{}/v1\"\nkey = \"bench\"\n\
         [models.providers.bench.models.instant]\ncontextWindow = 200000\nmaxOutput = 4096\n\
         [agents.main]\nmodel = \"bench/instant\"\nautonomy = \"guided\"\nworkspace = {:?}\n",
        model.address,
        files.path()
    );
    std::fs::write(data.path().join("gantry.toml"), config)?;
    let gateway = Gateway::on(gantry, data)?;

    let (glob, pattern) = ("Glob", json!({"pattern": "*.txt"}));
    let direct = timed(|| ask(&gateway, "POST", &format!("/v1/tools/{glob}"), &pattern).map(|_| ()))?;
    let call = timed_run(&gateway, |_| json!({"tool": glob, "input": pattern}))? / STEPS as f64 - direct;
    let task = timed_run(&gateway, |number| json!({"task": format!("say something, number {number}")}))?
        / STEPS as f64
        - THINKING.as_secs_f64() * 1e3;
    let commands = timed_run(&gateway, |_| json!({"tool": "Bash", "input": {"command": "true"}}))?;
    let makefile = makefile(files.path())?;
    let make = timed(|| {
        let ended = Command::new("make").arg("-s").arg("-f").arg(&makefile).status()?;
        ensure!(ended.success(), "make failed");
        Ok(())
    })?;
    Ok(vec![
        row("tool step of a pipeline beyond the tool's own time", call, "≤ 3 ms", call <= 3.0),
        row("agent step of a pipeline beyond the model's time", task, "≤ 15 ms", task <= 15.0),
        Row {
            work: "10 steps `true`, sandboxed and durable",
            against: "make",
            ours: format!("{commands:.1} ms"),
            theirs: format!("{make:.1} ms"),
            result: format!("{:.1} ×", commands / make),
            goal: "printed",
            met: true,
        },
    ])
}

fn row(work: &'static str, ms: f64, goal: &'static str, met: bool) -> Row {
    let (ours, theirs, result) = (format!("{ms:.2} ms"), String::new(), String::new());
    Row { work, against: "", ours, theirs, result, goal, met }
}

/// The median time in milliseconds.
fn timed(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        work()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(&mut times))
}

/// The median time of a run whose steps follow each other.
fn timed_run(gateway: &Gateway, step: impl Fn(usize) -> Value) -> Result<f64> {
    let steps = (0..STEPS).map(|number| {
        let mut step = step(number);
        step["id"] = json!(format!("s{number}"));
        if number > 0 {
            step["input_from"] = json!([format!("s{}", number - 1)]);
        }
        step
    });
    let definition = json!({"definition": {"name": "bench", "steps": steps.collect::<Vec<_>>()}});
    let stored = ask(gateway, "POST", "/v1/pipelines", &definition)?;
    let path = format!("/v1/pipelines/{}/runs", stored["id"].as_str().with_context(|| stored.to_string())?);
    timed(|| {
        let begun = ask(gateway, "POST", &path, &json!({}))?;
        let id = begun["outcome"]["runId"].as_str().with_context(|| begun.to_string())?;
        let ended = ask(gateway, "GET", &format!("/v1/pipeline-runs/{id}?waitMs=60000"), &Value::Null)?;
        ensure!(ended["outcome"]["status"] == "completed", "the run failed: {ended}");
        Ok(())
    })
}

fn makefile(folder: &Path) -> Result<std::path::PathBuf> {
    let path = folder.join("Makefile");
    let mut text = format!("all: s{}\n", STEPS - 1);
    for number in 0..STEPS {
        let before = if number > 0 { format!(" s{}", number - 1) } else { String::new() };
        text.push_str(&format!("s{number}:{before}\n\t@true\n"));
    }
    std::fs::write(&path, text)?;
    Ok(path)
}

/// Sends a request and parses the JSON answer.
fn ask(gateway: &Gateway, method: &str, path: &str, body: &Value) -> Result<Value> {
    let host = gateway.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host)?;
    stream.set_nodelay(true)?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        gateway.token()?,
        body.len(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, json) = answer.split_once("\r\n\r\n").context("the answer has no body")?;
    Ok(serde_json::from_str(json)?)
}
