//! The sandbox of agents: what it adds to a command, and the search for the files that a command changed.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Row;
use super::corpus::Corpus;
use crate::shell;

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let example = |name: &str| gantry.with_file_name("examples").join(name).to_string_lossy().into_owned();
    let keeper = gantry.with_file_name("gantry-keeper").to_string_lossy().into_owned();
    let printed = shell::output(&[&example("latency"), &keeper], &[])?;
    let found: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())?;
    let ms = |name: &str| found[name].as_f64().context("latency prints its medians");
    let (confined, isolated) = (ms("confinedMs")?, ms("isolatedMs")?);
    let added = isolated - confined;
    let scanned = shell::output(&[&example("changed")], &[])?;
    let scanned: Value = serde_json::from_str(scanned.lines().last().unwrap_or_default())?;
    let scan = scanned["scanMs"].as_f64().context("changed prints its median")?;
    let downloaded = shell::output(&[&example("egress_download")], &[])?;
    let downloaded: Value = serde_json::from_str(downloaded.lines().last().unwrap_or_default())?;
    let rate = |name: &str| downloaded[name].as_f64().context("egress_download prints its medians");
    let (proxied, direct) = (rate("proxiedMbPerSecond")?, rate("directMbPerSecond")?);
    let ratio = proxied / direct;
    Ok(vec![
        Row {
            work: "`true` in an agent's sandbox",
            against: "`true` confined, with network",
            ours: format!("{isolated:.1} ms"),
            theirs: format!("{confined:.1} ms"),
            result: format!("+{added:.1} ms"),
            goal: "≤ +3 ms",
            met: added <= 3.0,
        },
        Row {
            work: "files that a command changed, of 10,000",
            against: "",
            ours: format!("{scan:.1} ms"),
            theirs: String::new(),
            result: String::new(),
            goal: "≤ 15 ms",
            met: scan <= 15.0,
        },
        Row {
            work: "download of 1 GiB through the egress proxy",
            against: "curl without a proxy",
            ours: format!("{proxied:.0} MB/s"),
            theirs: format!("{direct:.0} MB/s"),
            result: format!("{ratio:.2} ×"),
            goal: "≥ 0.8 ×",
            met: ratio >= 0.8,
        },
    ])
}
