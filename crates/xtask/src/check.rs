//! The whole check, as CI runs it.

use anyhow::Result;

use crate::{docs, page, setup, shell};

pub(crate) fn run() -> Result<()> {
    setup::run()?;
    shell::step(&["cargo", "fmt", "--all", "--check"])?;
    shell::step(&[
        "cargo",
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ])?;
    // The toolsets' tests run real commands under this keeper.
    shell::step(&["cargo", "build", "-p", "gantry-process", "--bins"])?;
    shell::step(&["cargo", "nextest", "run", "--workspace", "--all-features", "--no-fail-fast"])?;
    // They start the program that the tests before them were built with.
    page::check()?;
    docs::run(true)?;
    shell::step_with(
        &["cargo", "doc", "--workspace", "--no-deps", "--quiet"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )?;
    shell::step(&["cargo", "deny", "--all-features", "check", "bans", "licenses", "sources"])?;
    println!("\nall checks passed");
    Ok(())
}
