//! The web: a page through the guarded client against the HTTP library alone.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::Row;
use super::corpus::Corpus;
use crate::shell;

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let example = gantry.with_file_name("examples").join("fetch");
    let printed = shell::output(&[&example.to_string_lossy()], &[])?;
    let found: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())?;
    let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
    let (guarded, plain) = (number("guardedUs"), number("plainUs"));
    let ratio = guarded / plain;
    Ok(vec![Row {
        work: "fetch of a 1 MB page, guarded, warm",
        against: "the plain HTTP client",
        ours: format!("{guarded:.0} µs"),
        theirs: format!("{plain:.0} µs"),
        result: format!("{ratio:.2} ×"),
        goal: "≤ 1.2 ×",
        met: ratio <= 1.2,
    }])
}
