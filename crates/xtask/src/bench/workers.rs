//! The worker pool: what a call costs more in a worker process than in the gateway's own.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Row;
use super::corpus::Corpus;
use crate::shell;

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let example = gantry.with_file_name("examples").join("workers").to_string_lossy().into_owned();
    let printed = shell::output(&[&example], &[])?;
    let found: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())?;
    let number = |name: &str| found[name].as_f64().context("workers prints its medians");
    let row = |work, unit: &str, names: [&str; 2], at_most: f64, goal| -> Result<Row> {
        let (without, with) = (number(names[0])?, number(names[1])?);
        let added = with - without;
        Ok(Row {
            work,
            against: "the same call without workers",
            ours: format!("{with:.2} {unit}"),
            theirs: format!("{without:.2} {unit}"),
            result: format!("{added:+.2} {unit}"),
            goal,
            met: added <= at_most,
        })
    };
    Ok(vec![
        row("read_file of 1 KB in a worker", "µs", ["readUs", "readInWorkerUs"], 200.0, "≤ +200 µs")?,
        row("bash `true` in a worker", "ms", ["bashMs", "bashInWorkerMs"], 1.0, "≤ +1 ms")?,
        row(
            "first call, which starts a worker",
            "ms",
            ["firstCallMs", "firstCallInWorkerMs"],
            50.0,
            "≤ +50 ms",
        )?,
    ])
}
