//! Runs a script with Google's client libraries.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gantry_testkit::google::installed;
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `judges/NAME.py`, which must end with the line `ok`.
pub(crate) async fn run(name: &str, args: &[&str]) {
    let python = installed("venv-google/bin/python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/judges").join(format!("{name}.py"));
    let child = Command::new(python).arg(script).args(args).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(LIMIT, child).await.expect("the judge takes too long").unwrap();
    let reported = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && reported.trim_end().ends_with("ok"), "{reported}\n{errors}");
}
