//! Google Workspace: mails against Python's `email` package, and reads against Google's client library.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::corpus::Corpus;
use super::measure::{Side, median_ms, turns};
use super::{RUNS, Row};
use crate::shell;

const THEIR_SCRIPT: &str = include_str!("google_mails.py");
const READS_SCRIPT: &str = include_str!("google_reads.py");
const MAILS: &str = "1000";

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let folder = shell::root().join("target/bench");
    let script = folder.join("google_mails.py");
    std::fs::write(&script, THEIR_SCRIPT)?;
    let ours = gantry.with_file_name("examples").join("mails");
    let mut sides = [Side::new(ours, &[MAILS]), Side::new("python3", &[&script.to_string_lossy(), MAILS])];
    let times = turns(RUNS, &mut sides)?;
    let (ours, theirs) = (median_ms(&times[0]), median_ms(&times[1]));
    let ratio = theirs / ours;
    let mut rows = vec![Row {
        work: "build and read 1,000 mails with attachments",
        against: "Python's email package",
        ours: format!("{ours:.0} ms"),
        theirs: format!("{theirs:.0} ms"),
        result: format!("{ratio:.1} × faster"),
        goal: "≥ 5 × faster",
        met: ratio >= 5.0,
    }];
    rows.extend(reads(gantry, &folder)?);
    Ok(rows)
}

/// 1,000 reads through the gateway, and what the domain costs while nobody is signed in.
fn reads(gantry: &Path, folder: &Path) -> Result<Vec<Row>> {
    let script = folder.join("google_reads.py");
    std::fs::write(&script, READS_SCRIPT)?;
    let example = gantry.with_file_name("examples").join("reads");
    let command = [&*example.to_string_lossy(), &gantry.to_string_lossy(), &script.to_string_lossy()];
    let printed = shell::output(&command, &[])?;
    let found: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())?;
    let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
    let (ours, theirs, tools) = (number("ours"), number("theirs"), number("toolsWithout"));
    let (ratio, grown) = (theirs / ours, number("idleKb") / 1024.0);
    let own = |work, ours, goal, met| Row {
        work,
        against: "",
        ours,
        theirs: String::new(),
        result: String::new(),
        goal,
        met,
    };
    Ok(vec![
        Row {
            work: "read 1,000 mails through the tool, over HTTP",
            against: "google-api-python-client",
            ours: format!("{ours:.0} ms"),
            theirs: format!("{theirs:.0} ms"),
            result: format!("{ratio:.1} × faster"),
            goal: "≥ 3 × faster",
            met: ratio >= 3.0,
        },
        own("tools shown when Google is not configured", format!("{tools:.0}"), "0", tools == 0.0),
        own("memory of the domain, nobody signed in", format!("+ {grown:.1} MB"), "≤ + 0.5 MB", grown <= 0.5),
    ])
}
