//! Running commands: echoed, in the project's root, an error when they fail.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

pub(crate) fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).map(PathBuf::from).unwrap_or(manifest)
}

pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(root());
    command
}

/// Runs a step and prints its duration.
pub(crate) fn step(words: &[&str]) -> Result<()> {
    step_with(words, &[])
}

pub(crate) fn step_with(words: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    println!("\n$ {}", words.join(" "));
    let started = Instant::now();
    let status = command(words).envs(variables.iter().copied()).status();
    let status = status.with_context(|| format!("cannot run {}", words[0]))?;
    ensure!(status.success(), "`{}` failed ({status})", words.join(" "));
    println!("  done in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The output of a command.
pub(crate) fn output(words: &[&str], variables: &[(&str, &str)]) -> Result<String> {
    let output = command(words).envs(variables.iter().copied()).output();
    let output = output.with_context(|| format!("cannot run {}", words[0]))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "`{}` failed: {errors}", words.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) fn exists(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}
