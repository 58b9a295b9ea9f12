//! An MCP server on standard input and output: ours against the reference server for files.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Row;
use super::corpus::Corpus;
use super::measure::median;
use crate::setup;

const COUNT_TOKENS: &str = include_str!("count_tokens.mjs");
const CALLS: usize = 10_000;
const STARTS: usize = 11;

pub(super) fn run(gantry: &Path, corpus: &Corpus) -> Result<Vec<Row>> {
    let folder = corpus.tree.parent().context("the corpus has no folder")?.join("mcp");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("file.txt");
    std::fs::write(&file, "a line of text that is read again and again\n".repeat(20))?;
    let ours = || {
        let mut command = Command::new(gantry);
        command.args(["mcp", "--local"]).env("GANTRY_DATA_DIR", &corpus.data).current_dir(&folder);
        command
    };
    let theirs = || {
        let mut command = Command::new(setup::node());
        command.arg(setup::package("@modelcontextprotocol/server-filesystem/dist/index.js")).arg(&folder);
        command
    };
    let (mut our_starts, mut their_starts) = (Vec::new(), Vec::new());
    let (mut our_tools, mut their_tools) = (Value::Null, Value::Null);
    for _ in 0..STARTS {
        our_tools = cold_start(ours(), &mut our_starts)?;
        their_tools = cold_start(theirs(), &mut their_starts)?;
    }
    let our_reads = reads(ours(), &json!({"name": "Read", "arguments": {"path": "file.txt"}}))?;
    let their_reads = reads(theirs(), &json!({"name": "read_text_file", "arguments": {"path": file}}))?;

    let against = "server-filesystem";
    let (start, their_start) = (median(&mut our_starts), median(&mut their_starts));
    let (cost, their_cost) = (tokens(&our_tools)?, tokens(&their_tools)?);
    let speed = our_reads.per_second / their_reads.per_second;
    let memory = our_reads.memory_mib / their_reads.memory_mib;
    let mut rows = vec![
        Row {
            work: "10,000 reads of a file over MCP",
            against,
            ours: format!("{:.0} /s", our_reads.per_second),
            theirs: format!("{:.0} /s", their_reads.per_second),
            result: format!("{speed:.1} ×"),
            goal: "≥ 5 ×",
            met: speed >= 5.0,
        },
        Row {
            work: "  its memory, at most",
            against,
            ours: format!("{:.1} MiB", our_reads.memory_mib),
            theirs: format!("{:.1} MiB", their_reads.memory_mib),
            result: format!("{memory:.2} ×"),
            goal: "≤ 0.2 ×",
            met: memory <= 0.2,
        },
        Row {
            work: "MCP cold start to first tools/list",
            against,
            ours: format!("{start:.1} ms"),
            theirs: format!("{their_start:.1} ms"),
            result: format!("{:.2} ×", start / their_start),
            goal: "≤ 0.1 ×",
            met: start / their_start <= 0.1,
        },
        token_row(against, cost, their_cost),
        Row {
            work: "  the same by itself",
            against: "",
            ours: cost.to_string(),
            theirs: String::new(),
            result: String::new(),
            goal: "≤ 1,600",
            met: cost <= 1_600,
        },
    ];
    // Not every registry has all it needs.
    let commander = setup::package("@wonderwhy-er/desktop-commander/dist/index.js");
    if commander.is_file() {
        let mut command = Command::new(setup::node());
        command.arg(commander).env("HOME", &folder);
        let tools = cold_start(command, &mut Vec::new())?;
        rows.push(token_row("Desktop Commander", cost, tokens(&tools)?));
    }
    Ok(rows)
}

fn token_row(against: &'static str, ours: usize, theirs: usize) -> Row {
    Row {
        work: "tokens of the default tools/list",
        against,
        ours: ours.to_string(),
        theirs: theirs.to_string(),
        result: format!("{:.2} ×", ours as f64 / theirs as f64),
        goal: "fewer",
        met: ours < theirs,
    }
}

/// Counts the tokens of a tool list with the o200k vocabulary: names, descriptions and input schemas.
fn tokens(tools: &Value) -> Result<usize> {
    // Node.js resolves imports from the folder of the script, so it is next to the installed packages.
    let script = setup::package("../count_tokens.mjs");
    std::fs::write(&script, COUNT_TOKENS)?;
    let mut counter =
        Command::new(setup::node()).arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    counter.stdin.take().context("no standard input")?.write_all(tools.to_string().as_bytes())?;
    let counted = counter.wait_with_output()?;
    ensure!(counted.status.success(), "the tokens could not be counted");
    Ok(String::from_utf8(counted.stdout)?.trim().parse()?)
}

/// Starts a server, asks for its tools, and ends it. Gives the tools.
fn cold_start(command: Command, times: &mut Vec<f64>) -> Result<Value> {
    let started = Instant::now();
    let mut server = Server::start(command)?;
    let tools = server.ask("tools/list", &json!({}))?["tools"].take();
    times.push(started.elapsed().as_secs_f64() * 1e3);
    Ok(tools)
}

struct Reads {
    per_second: f64,
    memory_mib: f64,
}

fn reads(command: Command, call: &Value) -> Result<Reads> {
    let mut server = Server::start(command)?;
    for _ in 0..100 {
        server.ask("tools/call", call)?;
    }
    let started = Instant::now();
    for _ in 0..CALLS {
        let answer = server.ask("tools/call", call)?;
        ensure!(answer["isError"] != true, "the server cannot read: {answer}");
    }
    let per_second = CALLS as f64 / started.elapsed().as_secs_f64();
    Ok(Reads { per_second, memory_mib: server.memory_mib()? })
}

struct Server {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn start(mut command: Command) -> Result<Server> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut server = Server { child, stdin, stdout, next: 1 };
        let info = json!({"name": "bench", "version": "1"});
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
        server.ask("initialize", &params)?;
        server.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(server)
    }

    fn say(&mut self, message: &Value) -> Result<()> {
        self.stdin.write_all(format!("{message}\n").as_bytes())?;
        Ok(self.stdin.flush()?)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.next;
        self.next += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.stdout.read_line(&mut line)? > 0, "the server went away during {method}");
            // Some servers also print lines that are not messages.
            let Ok(mut message) = serde_json::from_str::<Value>(&line) else { continue };
            if message["id"] == id {
                return Ok(message["result"].take());
            }
        }
    }

    /// The most it ever had.
    fn memory_mib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kib / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
