//! The two results of `Bash` and `Process`: an ended command and a running one.

use std::time::{SystemTime, UNIX_EPOCH};

use gantry_process::{Ended, Finished, Snapshot, TAIL_CHARS};
use gantry_tool::Masker;
use schemars::JsonSchema;
use serde::Serialize;

use super::paths;
use super::sessions::Session;
use crate::whole_secrets::cut_start;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("type" = "object"))]
pub(super) enum ShellRun {
    Completed(Completed),
    Running(Running),
}

#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// Exit code 0.
    Completed,
    /// Another exit code, a signal, or the timeout.
    Failed,
    Running,
}

impl Status {
    pub(super) fn of(ended: Option<&Ended>) -> Status {
        match ended {
            None => Status::Running,
            Some(ended) if ended.exit.success() && !ended.timed_out => Status::Completed,
            Some(_) => Status::Failed,
        }
    }
}

/// A command that has ended.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Completed {
    /// `completed` for exit code 0; `failed` for another one, a signal or the timeout.
    status: Status,
    /// The id for `Process`, while the session is kept.
    session_id: String,
    /// Null if a signal killed the command.
    exit_code: Option<i32>,
    /// The signal that killed the command, such as `SIGTERM`; else null.
    signal: Option<String>,
    /// Whether the command timed out.
    timed_out: bool,
    /// Milliseconds since 1970.
    started_at: u64,
    /// Milliseconds since 1970.
    ended_at: u64,
    /// Duration in milliseconds.
    duration_ms: u64,
    /// Standard output and standard error, interleaved; the last 200,000 characters if there are
    /// more.
    output: String,
    /// The last 4,000 characters.
    tail: String,
    /// Whether `output` lacks its beginning; action `log` of `Process` with this `sessionId`
    /// returns everything.
    truncated: bool,
    /// The real absolute path of the working directory.
    workdir: String,
    /// `denied` if the network policy denied sockets; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'static str>,
    /// Problems with running the command; absent if there were none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// A command that runs in the background.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Running {
    /// Always `running`.
    status: Status,
    /// The id for `Process`.
    session_id: String,
    /// The shell's process id.
    pid: i32,
    /// Milliseconds since 1970.
    started_at: u64,
    /// The last 4,000 characters of output so far.
    tail: String,
    /// The real absolute path of the working directory.
    workdir: String,
    /// `denied` if the network policy denies sockets; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'static str>,
}

impl ShellRun {
    pub(super) fn completed(finished: Finished, session: &Session, masker: &Masker) -> ShellRun {
        let (ended, stdout) = (&finished.ended, &finished.stdout);
        ShellRun::Completed(Completed {
            status: Status::of(Some(ended)),
            session_id: finished.id.to_string(),
            exit_code: ended.exit.code,
            signal: ended.exit.signal.map(|signal| signal.to_string()),
            timed_out: ended.timed_out,
            started_at: milliseconds(finished.started_at),
            ended_at: milliseconds(ended.ended_at),
            duration_ms: u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
            tail: cut_start(masker, &stdout.beyond, &stdout.text, TAIL_CHARS),
            truncated: stdout.truncated,
            warnings: warnings(ended),
            output: cut_start(masker, &stdout.beyond, &stdout.text, usize::MAX),
            workdir: paths::text(&session.workdir),
            network: network(session),
        })
    }

    pub(super) fn running(snapshot: Snapshot, session: &Session, masker: &Masker) -> ShellRun {
        ShellRun::Running(Running {
            status: Status::Running,
            session_id: snapshot.id.to_string(),
            pid: snapshot.pid,
            started_at: milliseconds(snapshot.started_at),
            tail: cut_start(masker, &snapshot.before_tail, &snapshot.tail, TAIL_CHARS),
            workdir: paths::text(&session.workdir),
            network: network(session),
        })
    }
}

pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn network(session: &Session) -> Option<&'static str> {
    session.offline.then_some("denied")
}

fn warnings(ended: &Ended) -> Vec<String> {
    let mut warnings = Vec::new();
    if ended.keeper_lost {
        warnings.push("the command's keeper process died; the exit code is unknown".into());
    }
    if ended.survivors > 0 {
        warnings.push(format!("{} processes could not be killed", ended.survivors));
    }
    warnings.extend(ended.quarantined.iter().cloned());
    warnings.extend(log_warnings(ended));
    warnings
}

/// Lists what the log of a command lacks.
pub(super) fn log_warnings(ended: &Ended) -> Vec<String> {
    let mut warnings = Vec::new();
    if ended.log_dropped > 0 {
        warnings.push(format!("the log is missing {} bytes of output", ended.log_dropped));
    }
    if let Some(reason) = &ended.log_error {
        warnings.push(format!("the log could not be written: {reason}"));
    }
    warnings
}
