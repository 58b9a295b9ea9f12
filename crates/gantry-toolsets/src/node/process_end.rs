//! The end of a background command, as it is reported to a gateway.

use std::time::{SystemTime, UNIX_EPOCH};

use gantry_process::{ExitReport, TAIL_CHARS};
use gantry_protocol::ProcessEnd;
use gantry_tool::Masker;

use super::CommandNote;
use crate::whole_secrets::cut_start;

/// Converts the exit report of a `Bash` background command for the gateway, and masks known secrets.
pub fn process_end(report: &ExitReport, masker: &Masker) -> ProcessEnd {
    let mut tail = cut_start(masker, &report.before_tail, &report.tail, TAIL_CHARS);
    masker.mask_text(&mut tail);
    let note = CommandNote::parse(&report.note);
    let (mut command, principal, agent) = match note {
        Some(note) => (note.command, note.principal, note.agent),
        None => Default::default(),
    };
    masker.mask_text(&mut command);
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
        tail,
    }
}

fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
