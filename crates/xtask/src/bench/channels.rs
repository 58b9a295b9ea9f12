//! Measures channels: messages in and answers out, a burst, and the cost of accounts that wait.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::Row;
use super::corpus::Corpus;
use crate::shell;

pub(super) fn run(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let example = gantry.with_file_name("examples").join("chats");
    let printed = shell::output(&[&example.to_string_lossy(), &gantry.to_string_lossy()], &[])?;
    let found: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())?;
    let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
    let (started, sent) = (number("startedMs"), number("sentMs"));
    let (accepted, grown) = (number("acceptedS"), number("grownKb") / 1024.0);
    let (share, added) = (number("idlePercent"), number("idleAddedKb") / 1024.0);
    Ok(vec![
        row("inbound message to run started, p50", format!("{started:.1} ms"), "≤ 5 ms", started <= 5.0),
        row("model's answer to send attempt, p50", format!("{sent:.1} ms"), "≤ 5 ms", sent <= 5.0),
        row("1,000 messages at once over 100 chats", format!("{accepted:.2} s"), "≤ 5 s", accepted <= 5.0),
        row("  memory, with their runs", format!("+ {grown:.1} MB"), "≤ + 20 MB", grown <= 20.0),
        row("7 idle channels, processor", format!("{share:.2} %"), "≤ 0.5 %", share <= 0.5),
        row("  memory", format!("+ {added:.1} MB"), "≤ + 10 MB", added <= 10.0),
    ])
}

fn row(work: &'static str, ours: String, goal: &'static str, met: bool) -> Row {
    Row { work, against: "", ours, theirs: String::new(), result: String::new(), goal, met }
}
