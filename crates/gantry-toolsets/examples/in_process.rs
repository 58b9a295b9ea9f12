//! Measures in one process: the gate around an empty tool with a real audit log, and `Bash` against
//! a bare shell. Prints one line of JSON for `cargo xtask bench`.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement, not the product"
)]

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gantry_store::{AuditLog, KeptResults};
use gantry_tool::testing::echo_tool;
use gantry_tool::{
    Answer, AuditError, AuditRecord, AuditSink, Call, Durability, Gate, GateParts, Principal, Registry,
    Surface, Toolset,
};
use gantry_toolsets::testing::Bench;
use serde_json::json;

const CALLS: usize = 2_000;
const SHELLS: usize = 101;

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let audit = Arc::new(Counting {
        log: AuditLog::open(&folder.path().join("audit.log")).unwrap(),
        now: AtomicUsize::new(0),
    });
    let registry = Registry::default();
    registry.replace(echo_tool("reads", Toolset::Node).read_only());
    registry.replace(echo_tool("writes", Toolset::Node));
    let results = Arc::new(KeptResults::new(folder.path().join("results")));
    let gate = Gate::new(GateParts { registry, ..GateParts::new(audit.clone(), results) });

    let reading = gate_median(&gate, "reads").await;
    let before = audit.now.load(Ordering::SeqCst);
    let writing = gate_median(&gate, "writes").await;
    // Outcome records share a later sync, so a call costs one sync of its own and at most one more.
    let syncs = (audit.now.load(Ordering::SeqCst) - before) as f64 / CALLS as f64;
    let function = median((0..CALLS).map(|_| timed(|| drop(black_box(json!({"text": "x"}))))).collect());
    let (bash, direct) = bash_and_shell(audit.clone()).await;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{}",
        json!({
            "readOnlyUs": micros(reading), "writingUs": micros(writing), "functionUs": micros(function),
            "syncUs": micros(sync_median(folder.path())), "syncsPerCall": syncs,
            "bashMs": bash.as_secs_f64() * 1e3, "directShellMs": direct.as_secs_f64() * 1e3,
        })
    );
}

/// Wraps the real audit log and counts how often a call waited for the disk.
struct Counting {
    log: AuditLog,
    now: AtomicUsize,
}

impl AuditSink for Counting {
    fn append(&self, record: AuditRecord, durability: Durability) -> Result<(), AuditError> {
        if durability == Durability::Now {
            self.now.fetch_add(1, Ordering::SeqCst);
        }
        self.log.append(record, durability)
    }

    fn flush(&self) -> Result<(), AuditError> {
        self.log.flush()
    }
}

async fn gate_median(gate: &Gate, tool: &str) -> Duration {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let call = Call::new(Principal::Operator, Surface::Cli, "/".into());
        let started = Instant::now();
        let outcome = gate.call(call, tool, json!({"text": "x"})).await;
        times.push(started.elapsed());
        assert!(matches!(outcome.answer, Answer::Success(_)));
    }
    median(times)
}

fn sync_median(folder: &std::path::Path) -> Duration {
    let mut file = std::fs::File::options().append(true).create(true).open(folder.join("sync")).unwrap();
    let one = || {
        file.write_all(&[b'x'; 400]).unwrap();
        timed(|| file.sync_data().unwrap())
    };
    median(std::iter::repeat_with(one).take(300).collect())
}

/// Measures `Bash true` through the gate and the same shell started directly, alternately. An empty
/// HOME keeps this machine's login files from hiding the difference.
async fn bash_and_shell(audit: Arc<dyn AuditSink>) -> (Duration, Duration) {
    let shell = "/bin/bash";
    let bench = Bench::with(|parts| {
        parts.variables = vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("HOME".into(), "/nonexistent".into()),
            ("SHELL".into(), shell.into()),
        ];
    });
    // The bench's own gate keeps its audit log in memory. This gate waits for the disk, as the
    // product does.
    let registry = bench.gate.registry().clone();
    let gate = Gate::new(GateParts { registry, ..GateParts::new(audit, bench.results.clone()) });
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..SHELLS {
        let call = bench.operator_call();
        let started = Instant::now();
        let outcome = gate.call(call, "Bash", json!({"command": "true"})).await;
        ours.push(started.elapsed());
        assert!(matches!(outcome.answer, Answer::Success(_)));
        // The engine prepares its next keeper in advance. Waiting keeps that out of both
        // measurements.
        tokio::time::sleep(Duration::from_millis(5)).await;
        theirs.push(timed(|| {
            let mut command = std::process::Command::new(shell);
            command.args(["-lc", "true"]).env_clear().envs([
                ("PATH", "/usr/bin:/bin"),
                ("HOME", "/nonexistent"),
                ("SHELL", shell),
            ]);
            command.stdin(std::process::Stdio::null());
            assert!(command.output().unwrap().status.success());
        }));
    }
    (median(ours), median(theirs))
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
