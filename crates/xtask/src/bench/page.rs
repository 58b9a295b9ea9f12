//! The web page in a browser: bytes at start, time until usable, long sessions, streams and logs.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Row;
use super::corpus::Corpus;
use crate::{page, setup, shell};

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    setup::for_page()?;
    let script = format!("{}/bench.js", page::FOLDER);
    let printed = shell::output(&["node", &script], &[("GANTRY_BINARY", &gantry.to_string_lossy())])?;
    let line = printed.lines().last().context("the benchmark of the page printed nothing")?;
    let found: Value = serde_json::from_str(line)?;
    let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
    let row = |work, value: f64, unit: &str, at_most: f64, goal| Row {
        work,
        against: "",
        ours: format!("{value:.0} {unit}"),
        theirs: String::new(),
        result: String::new(),
        goal,
        met: value <= at_most,
    };
    let open = row("page: a session of 10,000 entries opens", number("openLongMs"), "ms", 300.0, "≤ 300 ms");
    Ok(vec![
        row("page: bytes at start, gzipped", number("startBytes") / 1024.0, "KB", 60.0, "≤ 60 KB"),
        row("page: usable after navigation", number("usableMs"), "ms", 300.0, "≤ 300 ms"),
        open,
        row("page: a key in a long session", number("keyMs"), "ms", 50.0, "≤ 50 ms"),
        row("page: longest task, 1,000 tokens/s", number("streamLongestTaskMs"), "ms", 50.0, "≤ 50 ms"),
        row("page: the same, 4 × slower CPU", number("streamSlowLongestTaskMs"), "ms", 50.0, "≤ 50 ms"),
        row("page: heap grown by a 100 MB log", number("logHeapGrowthMegabytes"), "MB", 50.0, "≤ 50 MB"),
    ])
}
