//! The public conformance suite, with every scenario of a revision. Those that are expected to fail stand in a file, each
//! with its reason; one that fails without, or passes in spite of it, fails the test. `cargo xtask setup` installs the suite.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The fixtures' server; ended when dropped.
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

/// `target/debug`, or what stands for it.
fn build_folder() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

fn check(revision: &str, args: &[&str]) {
    let tools = build_folder().parent().unwrap().join("mcp/node_modules");
    let suite = tools.join("@modelcontextprotocol/conformance/dist/index.js");
    assert!(suite.is_file(), "{} is missing; `cargo xtask setup` installs it", suite.display());
    let server = Server::start();
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/conformance/{revision}.yaml"));
    let output = tempfile::tempdir().unwrap();
    let ran = Command::new(tools.join("node/bin/node"))
        .arg(suite)
        .args(["server", "--url", &server.url, "--expected-failures"])
        .arg(expected)
        .arg("-o")
        .arg(output.path())
        .args(args)
        .output()
        .unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{told}");
    let total = told.lines().rev().find(|line| line.contains("Total")).unwrap_or_default();
    println!("{revision}: {total}");
    assert!(told.contains("tools-call-simple-text"), "it has run: {told}");
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
