//! Agents install dependencies with the default configuration: cargo, npm and pip reach their registries unasked.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::border::{Stage, is_error};
use super::isolated::Internet;

/// Hosts of the built-in list from which packages may be downloaded.
const REGISTRIES: [&str; 5] =
    ["index.crates.io", "static.crates.io", "registry.npmjs.org", "pypi.org", "files.pythonhosted.org"];

/// Runs one command line in a session of its own. Fails on a question and on an error.
fn installs(stage: &Stage, name: &str, command: &str, expected: &str) {
    let calls = json!([["Bash", {"command": command, "timeout": 120_000}]]);
    let (questions, results) = stage.run(&format!("agent:main:install-{name}"), &calls);
    assert_eq!(questions.len(), 0, "{name}: {questions:?}");
    let printed = results[0].to_string();
    assert!(!is_error(&results[0]) && printed.contains(expected), "{name}: {printed}");
}

#[test]
fn dependencies_are_installed_without_a_question() {
    let stage = Stage::on(Internet::serving(include_str!("registry.py"), &REGISTRIES), "");
    let toolchain = Path::new(env!("CARGO")).parent().unwrap().display().to_string();
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let python = String::from_utf8(python.stdout).unwrap().trim().to_owned();
    // npm first: its registry also accepts uploads, so a session that read downloaded files is asked about it.
    let npm = "export npm_config_cafile=$PWD/ca.pem && echo '{}' > package.json && npm install --no-audit --no-fund tiny && \
               node -e 'console.log(\"npm says\", require(\"tiny\"))'";
    installs(&stage, "npm", npm, "npm says 42");
    let cargo = format!(
        "export PATH={toolchain}:$PATH CARGO_HTTP_CAINFO=$PWD/ca.pem && cargo init -q --name app . && cargo add -q tiny && \
         echo 'fn main() {{ println!(\"cargo says {{}}\", tiny::ANSWER); }}' > src/main.rs && cargo run -q"
    );
    installs(&stage, "cargo", &format!("mkdir app && cp ca.pem app && cd app && {cargo}"), "cargo says 42");
    let pip = format!(
        "export PIP_CERT=$PWD/ca.pem && {python} -m pip install -q --disable-pip-version-check --target lib tiny && \
         PYTHONPATH=lib {python} -c 'import tiny; print(\"pip says\", tiny.ANSWER)'"
    );
    installs(&stage, "pip", &pip, "pip says 42");
    let hosts = stage.internet.hosts();
    for registry in REGISTRIES {
        assert!(hosts.contains(&format!("{registry}:443")), "{registry} was not asked: {hosts:?}");
    }
}
