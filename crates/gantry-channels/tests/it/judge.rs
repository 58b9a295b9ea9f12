//! Runs a script with an official client library.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `judges/NAME.py`, which must end with the line `ok`. Returns what it printed.
pub(crate) async fn run(name: &str, args: &[&str]) -> String {
    let python = installed("venv-chat/bin/python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/judges").join(format!("{name}.py"));
    // Isolated, because a script may have the name of the library that it uses.
    let child = Command::new(python)
        .arg("-I")
        .arg(script)
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, child).await.expect("the judge takes too long").unwrap();
    let reported = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && reported.trim_end().ends_with("ok"), "{reported}\n{errors}");
    reported.into_owned()
}

fn installed(path: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().find(|folder| folder.join("mcp").is_dir());
    let path = target.expect("target/mcp is missing; `cargo xtask setup` makes it").join("mcp").join(path);
    assert!(path.exists(), "{} is missing; `cargo xtask setup` installs it", path.display());
    path
}
