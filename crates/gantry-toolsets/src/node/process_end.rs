//! The end of a background command, as it is reported to a gateway.

use std::time::{SystemTime, UNIX_EPOCH};

use gantry_process::ExitReport;
use gantry_protocol::ProcessEnd;

use super::CommandNote;

/// Converts the exit report of a `Bash` background command for the gateway.
pub fn process_end(report: &ExitReport) -> ProcessEnd {
    let note = CommandNote::parse(&report.note);
    let (command, principal, agent) = match note {
        Some(note) => (note.command, note.principal, note.agent),
        None => Default::default(),
    };
    ProcessEnd {
        event_id: report.event_id.to_string(),
        session_id: report.id.to_string(),
        command,
        principal,
        agent,
        exit_code: report.ended.exit.code,
        signal: report.ended.exit.signal.map(|signal| signal.to_string()),
        timed_out: report.ended.timed_out,
        started_at: milliseconds(report.started_at),
        ended_at: milliseconds(report.ended.ended_at),
        tail: report.tail.clone(),
    }
}

fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
