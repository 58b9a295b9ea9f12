//! Google Workspace: mails against Python's `email` package.

use std::path::Path;

use anyhow::Result;

use super::corpus::Corpus;
use super::measure::{Side, median_ms, turns};
use super::{RUNS, Row};
use crate::shell;

const THEIR_SCRIPT: &str = include_str!("google_mails.py");
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
    Ok(vec![Row {
        work: "build and read 1,000 mails with attachments",
        against: "Python's email package",
        ours: format!("{ours:.0} ms"),
        theirs: format!("{theirs:.0} ms"),
        result: format!("{ratio:.1} × faster"),
        goal: "≥ 5 × faster",
        met: ratio >= 5.0,
    }])
}
