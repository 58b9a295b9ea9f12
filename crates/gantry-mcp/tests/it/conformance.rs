//! Runs every scenario of the public conformance suite. A file lists the expected failures with their reasons. An unexpected
//! failure or an unexpected pass fails the test. `cargo xtask setup` installs the suite.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The server with the suite's fixtures. It is ended when dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start() -> Server {
        let program = build_folder().join("examples/conformance");
        let mut child = Command::new(&program)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|err| panic!("{}: {err}; cargo build --examples", program.display()));
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Server { child, url: url.trim().to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns `target/debug`, or the folder that is used instead.
fn build_folder() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

/// Scenarios that measure time. On a busy machine they may be retried.
const TIMED: [&str; 1] = ["sse-retry"];
const TRIES: usize = 3;

/// Runs the suite and returns its output.
fn suite(arrange: impl Fn(&mut Command)) -> String {
    let tools = build_folder().parent().unwrap().join("mcp/node_modules");
    let suite = tools.join("@modelcontextprotocol/conformance/dist/index.js");
    assert!(suite.is_file(), "{} is missing; `cargo xtask setup` installs it", suite.display());
    // Suites run one after another, because some scenarios measure time and each suite runs its own in parallel.
    let turn = File::create(tools.join(".conformance-turn")).unwrap();
    turn.lock().unwrap();
    let mut tried = 0;
    loop {
        let mut command = Command::new(tools.join("node/bin/node"));
        arrange(command.arg(&suite));
        let ran = command.output().unwrap();
        let output =
            format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        tried += 1;
        if ran.status.success() {
            return output;
        }
        assert!(tried < TRIES && was_only_late(&output), "{output}");
        println!("tried again: {TIMED:?} came too late");
    }
}

/// Returns whether only scenarios that measure time failed unexpectedly.
fn was_only_late(output: &str) -> bool {
    // The headline is always colored.
    let unexpected = output.lines().skip_while(|line| !line.contains("Unexpected failures ("));
    let names: Vec<&str> =
        unexpected.skip(1).map_while(|line| line.trim_start().strip_prefix("✗ ")).map(str::trim).collect();
    !names.is_empty() && names.iter().all(|name| TIMED.contains(name))
}

#[test]
fn only_timing_scenarios_are_retried() {
    let output = |names: &str| {
        format!("Total: 1\n\n\x1b[31mUnexpected failures (not in baseline):\x1b[0m\n{names}\nUnexpected")
    };
    assert!(was_only_late(&output("  ✗ sse-retry\n")));
    assert!(!was_only_late(&output("  ✗ sse-retry\n  ✗ tools_call\n")));
    assert!(!was_only_late(&output("")) && !was_only_late("it did not start"));
}

fn check(revision: &str, args: &[&str]) {
    let server = Server::start();
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/conformance/{revision}.yaml"));
    let output = tempfile::tempdir().unwrap();
    let output = suite(|command| {
        command.args(["server", "--url", &server.url, "--expected-failures"]).arg(&expected);
        command.arg("-o").arg(output.path()).args(args);
    });
    let total = output.lines().rev().find(|line| line.contains("Total")).unwrap_or_default();
    println!("{revision}: {total}");
    assert!(output.contains("tools-call-simple-text"), "it has run: {output}");
}

/// Runs the client's scenarios. The suite starts the client for each, with the URL of its own server.
fn check_client(revision: &str, args: &[&str]) {
    let client = build_folder().join("examples/conformance_client");
    assert!(client.is_file(), "{} is missing; cargo build --examples", client.display());
    let expected =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/conformance/client-{revision}.yaml"));
    let output = tempfile::tempdir().unwrap();
    let output = suite(|command| {
        command.arg("client").arg("--command").arg(&client).arg("--expected-failures").arg(&expected);
        command.arg("-o").arg(output.path()).args(args);
    });
    let total = output.lines().rev().find(|line| line.contains("Total")).unwrap_or_default();
    println!("client {revision}: {total}");
    assert!(output.contains("tools_call"), "it has run: {output}");
}

#[test]
fn client_2025_06_18() {
    check_client("2025-06-18", &["--suite", "all", "--spec-version", "2025-06-18"]);
}

#[test]
fn client_2025_11_25() {
    check_client("2025-11-25", &["--requirements", "2025-11-25"]);
}

#[test]
fn client_2026_07_28() {
    check_client("2026-07-28", &["--requirements", "2026-07-28"]);
}

#[test]
fn revision_2025_06_18() {
    check("2025-06-18", &["--spec-version", "2025-06-18"]);
}

#[test]
fn revision_2025_11_25() {
    check("2025-11-25", &["--requirements", "2025-11-25"]);
}

#[test]
fn revision_2026_07_28() {
    check("2026-07-28", &["--requirements", "2026-07-28"]);
}
