//! The long suites at full length, then each fuzz target for a while.

use anyhow::Result;

use crate::{page, setup, shell};

/// How long each fuzz target runs.
const FUZZ_SECONDS: &str = "60";

pub(crate) fn run() -> Result<()> {
    setup::run()?;
    shell::step(&["cargo", "build", "-p", "gantry-process", "--bins"])?;
    shell::step_with(
        &["cargo", "nextest", "run", "--workspace", "--all-features", "--no-fail-fast"],
        &[("GANTRY_SOAK", "1")],
    )?;
    shell::step(&["cargo", "build", "-p", "gantry"])?;
    page::soak()?;
    fuzz()
}

fn fuzz() -> Result<()> {
    if !shell::exists("cargo-fuzz") {
        shell::step(&["cargo", "install", "--locked", "cargo-fuzz"])?;
    }
    let targets = shell::output(&["cargo", "+nightly", "fuzz", "list"], &[])?;
    for target in targets.lines() {
        let limit = format!("-max_total_time={FUZZ_SECONDS}");
        shell::step(&[
            "cargo",
            "+nightly",
            "fuzz",
            "run",
            target,
            "--",
            &limit,
            "-max_len=65536",
            "-rss_limit_mb=2048",
        ])?;
    }
    Ok(())
}
