//! The gateway: calls routed to a node against a bare relay, transfers against `nc`, its start and its memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Row;
use super::corpus::Corpus;
use super::measure::{median, median_ms};

const STARTS: usize = 11;
const TRANSFER_BYTES: u64 = 2 << 30;
const TRANSFERS: usize = 3;
const TURNS: usize = 5;
const IDLE_NODES: usize = 500;

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let mut rows = routed(gantry)?;
    rows.extend(transfer(gantry)?);
    rows.extend(start_and_memory(gantry)?);
    Ok(rows)
}

/// A process that is ended with this value.
struct Running {
    child: Child,
    /// Its first line of output.
    said: String,
}

impl Running {
    fn start(mut command: Command) -> Result<Running> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let mut said = String::new();
        let stdout = child.stdout.as_mut().context("no output")?;
        BufReader::new(stdout).read_line(&mut said)?;
        ensure!(!said.is_empty(), "{command:?} printed nothing");
        Ok(Running { child, said: said.trim().to_owned() })
    }

    fn memory_kib(&self, field: &str) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .context("the process status has no memory field")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM first, so that a gateway and its nodes end their processes.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        for _ in 0..300 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) struct Gateway {
    gantry: PathBuf,
    data: tempfile::TempDir,
    running: Running,
    pub(super) url: String,
}

impl Gateway {
    fn start(gantry: &Path) -> Result<Gateway> {
        Gateway::on(gantry, tempfile::tempdir()?)
    }

    pub(super) fn on(gantry: &Path, data: tempfile::TempDir) -> Result<Gateway> {
        let mut command = Command::new(gantry);
        // The data directory itself is closed to tools, so the workspace is elsewhere.
        command.args(["up", "--listen", "127.0.0.1:0", "--json", "--workspace", "/"]);
        command.env("GANTRY_DATA_DIR", data.path());
        let running = Running::start(command)?;
        let announced: Value = serde_json::from_str(&running.said)?;
        let url = announced["url"].as_str().context("no url")?.to_owned();
        Ok(Gateway { gantry: gantry.to_owned(), data, running, url })
    }

    /// Kills the gateway and starts another one on its data. Returns it with the time until it listens.
    pub(super) fn killed_and_restarted(self) -> Result<(Gateway, Instant)> {
        let Gateway { gantry, data, mut running, .. } = self;
        running.child.kill()?;
        running.child.wait()?;
        drop(running);
        let began = Instant::now();
        Ok((Gateway::on(&gantry, data)?, began))
    }

    pub(super) fn pid(&self) -> u32 {
        self.running.child.id()
    }

    pub(super) fn token(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.data.path().join("operator.token"))?.trim().to_owned())
    }

    fn cli(&self, args: &[&str]) -> Result<Value> {
        let output =
            Command::new(&self.gantry).args(args).env("GANTRY_DATA_DIR", self.data.path()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "gantry {args:?} failed: {errors}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn add_node(&self, id: &str) -> Result<String> {
        let added = self.cli(&["nodes", "add", id, "--token", "--json"])?;
        Ok(added["token"].as_str().context("no token")?.to_owned())
    }

    /// A real node with a workspace of its own, connected.
    fn node(&self, id: &str, workspace: &Path) -> Result<(Child, tempfile::TempDir)> {
        let token = self.add_node(id)?;
        let data = tempfile::tempdir()?;
        let mut command = Command::new(&self.gantry);
        command.args(["node", "--gateway", &self.url, "--id", id]).arg("--workspace").arg(workspace);
        command.env("GANTRY_DATA_DIR", data.path()).env("GANTRY_TOKEN", token);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        for _ in 0..500 {
            let nodes = self.cli(&["nodes", "list", "--json"])?;
            let online = |node: &Value| node["id"] == id && node["online"] == true;
            if nodes.as_array().into_iter().flatten().any(online) {
                return Ok((child, data));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        anyhow::bail!("the node {id} did not connect")
    }
}

fn example(gantry: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(gantry.with_file_name("examples").join("routed"));
    command.args(args);
    command
}

fn routed(gantry: &Path) -> Result<Vec<Row>> {
    let gateway = Gateway::start(gantry)?;
    let token = gateway.add_node("bench")?;
    let echo = Running::start(example(gantry, &["echo"]))?;
    let relay = Running::start(example(gantry, &["relay", &echo.said]))?;
    let _node = Running::start(example(gantry, &["node", &gateway.url, "bench", &token]))?;
    let measured = |args: &[&str]| -> Result<Value> {
        let output = example(gantry, args).output()?;
        ensure!(output.status.success(), "measuring failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // In turns, each in a process of its own: one that has just made routed calls is scheduled differently.
    for _ in 0..TURNS {
        ours.push(measured(&["routed", &gateway.url, &gateway.token()?, "bench__Empty"])?);
        theirs.push(measured(&["relayed", &relay.said])?);
    }
    // The best round counts, because the placement of the processes on cores changes from round to round. The report also
    // has the median.
    let usual = |found: &[Value]| {
        let mut times: Vec<f64> = found.iter().filter_map(|found| found["us"].as_f64()).collect();
        median(&mut times)
    };
    let best = |found: &[Value], name: &str, better: fn(f64, f64) -> f64| {
        let numbers = found.iter().filter_map(|found| found[name].as_f64());
        numbers.reduce(better).unwrap_or(f64::NAN)
    };
    let (call, echo) = (best(&ours, "us", f64::min), best(&theirs, "us", f64::min));
    let (calls, echoes) = (best(&ours, "perSecond", f64::max), best(&theirs, "perSecond", f64::max));
    Ok(vec![
        Row {
            work: "routed empty call",
            against: "WebSocket echo through one relay",
            ours: format!("{call:.1} µs (usually {:.1})", usual(&ours)),
            theirs: format!("{echo:.1} µs (usually {:.1})", usual(&theirs)),
            result: format!("{:.2} ×", call / echo),
            goal: "≤ 1.5 ×",
            met: call <= 1.5 * echo,
        },
        Row {
            work: "routed calls, 64 in flight",
            against: "the same relay",
            ours: format!("{calls:.0} /s"),
            theirs: format!("{echoes:.0} /s"),
            result: format!("{:.2} ×", calls / echoes),
            goal: "≥ 0.6 ×",
            met: calls >= 0.6 * echoes,
        },
    ])
}

fn transfer(gantry: &Path) -> Result<Vec<Row>> {
    let shared = tempfile::Builder::new().prefix("gantry-bench-").tempdir_in("/dev/shm")?;
    let (from, to) = (shared.path().join("from"), shared.path().join("to"));
    std::fs::create_dir(&from)?;
    std::fs::create_dir(&to)?;
    write_random(&from.join("file"), TRANSFER_BYTES)?;
    let gateway = Gateway::start(gantry)?;
    let (mut source, _source_data) = gateway.node("source", &from)?;
    let (mut destination, _destination_data) = gateway.node("destination", &to)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..TRANSFERS {
        let started = Instant::now();
        let moved = gateway.cli(&["transfer", "source:file", "destination:file", "--json"])?;
        ours.push(started.elapsed());
        ensure!(moved["bytesTransferred"] == TRANSFER_BYTES, "not all was transferred: {moved}");
        std::fs::remove_file(to.join("file"))?;
        theirs.push(netcat(&from.join("file"), &to.join("nc"))?);
        std::fs::remove_file(to.join("nc"))?;
    }
    let peak = |pid: u32| -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let anonymous = text
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .context("the process status has no memory field")?;
        Ok(anonymous.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    };
    let memory =
        [peak(source.id())?, peak(destination.id())?, gateway.running.memory_kib("VmHWM:")? / 1024.0];
    for child in [&mut source, &mut destination] {
        Command::new("kill").arg(child.id().to_string()).status()?;
        child.wait()?;
    }
    let rate = |times: &mut Vec<Duration>| {
        times.sort();
        TRANSFER_BYTES as f64 / 1e6 / times[times.len() / 2].as_secs_f64()
    };
    let (ours, theirs) = (rate(&mut ours), rate(&mut theirs));
    let most = memory.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        Row {
            work: "transfer 2 GiB node → node, tmpfs, hashed",
            against: "cat and nc through one hop",
            ours: format!("{ours:.0} MB/s"),
            theirs: format!("{theirs:.0} MB/s"),
            result: format!("{:.2} ×", ours / theirs),
            goal: "≥ 0.7 ×",
            met: ours >= 0.7 * theirs,
        },
        Row {
            work: "  memory of source, destination, gateway",
            against: "",
            ours: memory.map(|mib| format!("{mib:.0}")).join(", ") + " MiB",
            theirs: String::new(),
            result: format!("{most:.0} MiB"),
            goal: "< 64 MiB each",
            met: most < 64.0,
        },
    ])
}

/// The same bytes over two connections, with one process in between.
fn netcat(from: &Path, to: &Path) -> Result<Duration> {
    let (near, far) = (free_port()?, free_port()?);
    let shell = |script: String| Command::new("sh").args(["-c", &script]).spawn().context("cannot run sh");
    let mut receiver = shell(format!("nc -l 127.0.0.1 {far} > {}", to.display()))?;
    wait_for_listener(far)?;
    let mut relay = shell(format!("nc -l 127.0.0.1 {near} | nc -N 127.0.0.1 {far}"))?;
    wait_for_listener(near)?;
    let started = Instant::now();
    let mut sender = shell(format!("cat {} | nc -N 127.0.0.1 {near}", from.display()))?;
    for child in [&mut sender, &mut relay, &mut receiver] {
        ensure!(child.wait()?.success(), "nc failed");
    }
    let took = started.elapsed();
    ensure!(std::fs::metadata(to)?.len() == TRANSFER_BYTES, "nc lost something");
    Ok(took)
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Without connecting: `nc` takes one connection only.
fn wait_for_listener(port: u16) -> Result<()> {
    let wanted = format!(":{port:04X} 00000000:0000 0A");
    for _ in 0..500 {
        if std::fs::read_to_string("/proc/net/tcp")?.contains(&wanted) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    anyhow::bail!("nc does not listen")
}

fn write_random(path: &Path, bytes: u64) -> Result<()> {
    let mut source = std::fs::File::open("/dev/urandom")?.take(64 << 20);
    let mut block = Vec::new();
    source.read_to_end(&mut block)?;
    let mut file = std::fs::File::create(path)?;
    for _ in 0..bytes / block.len() as u64 {
        file.write_all(&block)?;
    }
    Ok(())
}

fn start_and_memory(gantry: &Path) -> Result<Vec<Row>> {
    let mut gateway = Gateway::start(gantry)?;
    let (mut listening, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let Gateway { data, running, .. } = gateway;
        drop(running);
        let started = Instant::now();
        gateway = Gateway::on(gantry, data)?;
        listening.push(started.elapsed());
        first_call(&gateway)?;
        answered.push(started.elapsed());
    }
    let (listening, answered) = (median_ms(&listening), median_ms(&answered));
    std::thread::sleep(Duration::from_secs(2));
    let idle = gateway.running.memory_kib("VmRSS:")?;
    let count = IDLE_NODES.to_string();
    let nodes = Running::start(example(gantry, &["nodes", &gateway.url, &gateway.token()?, &count]))?;
    std::thread::sleep(Duration::from_secs(2));
    let each = (gateway.running.memory_kib("VmRSS:")? - idle) / IDLE_NODES as f64;
    drop(nodes);
    let row = |work, ours: String, goal, met| Row {
        work,
        against: "",
        ours,
        theirs: String::new(),
        result: String::new(),
        goal,
        met,
    };
    Ok(vec![
        row("start of `gantry up` to listening", format!("{listening:.1} ms"), "≤ 50 ms", listening <= 50.0),
        row("  to the first answered call", format!("{answered:.1} ms"), "≤ 100 ms", answered <= 100.0),
        row("idle memory of `gantry up`", format!("{:.1} MB", idle / 1e3), "< 30 MB", idle < 30_000.0),
        row("memory of an idle connected node, of 500", format!("{each:.1} KB"), "< 48 KB", each < 48.0),
    ])
}

/// One call over HTTP, on a connection of its own.
fn first_call(gateway: &Gateway) -> Result<()> {
    let address = gateway.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address)?;
    let body = r#"{"pattern":"*.none"}"#;
    write!(
        stream,
        "POST /v1/tools/local__Glob HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        gateway.token()?,
        body.len(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "the first call was not answered: {answer}");
    Ok(())
}
