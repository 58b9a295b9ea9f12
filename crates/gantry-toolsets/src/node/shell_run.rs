//! The two shapes in which `Bash` and `Process` tell of a command: over, or running.

use std::time::{SystemTime, UNIX_EPOCH};

use gantry_process::{Ended, Finished, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

use super::paths;
use super::sessions::Session;

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

/// A command that is over.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Completed {
    /// `completed` for exit code 0; `failed` for another one, a signal or the timeout.
    status: Status,
    /// What `Process` knows it by, while it is kept.
    session_id: String,
    /// Null when a signal ended it.
    exit_code: Option<i32>,
    /// The signal that ended it, by name, such as `SIGTERM`; null otherwise.
    signal: Option<String>,
    /// Whether the timeout ended it.
    timed_out: bool,
    /// Milliseconds since 1970.
    started_at: u64,
    /// Milliseconds since 1970.
    ended_at: u64,
    /// Milliseconds from its start to its end.
    duration_ms: u64,
    /// Standard output and standard error as they came; the last 200,000 characters when there are more.
    output: String,
    /// The last 4,000 characters.
    tail: String,
    /// Whether `output` lacks its beginning; action `log` of `Process` with this `sessionId` reads the whole.
    truncated: bool,
    /// The real absolute path of the directory it ran in.
    workdir: String,
    /// `denied` when the network policy let it open no sockets; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'static str>,
    /// What went wrong around the command; absent when nothing did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// A command that runs in the background.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Running {
    /// Always `running`.
    status: Status,
    /// What `Process` knows it by.
    session_id: String,
    /// The shell's process id.
    pid: i32,
    /// Milliseconds since 1970.
    started_at: u64,
    /// The last 4,000 characters of output so far.
    tail: String,
    /// The real absolute path of the directory it runs in.
    workdir: String,
    /// `denied` when the network policy lets it open no sockets; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'static str>,
}

impl ShellRun {
    pub(super) fn completed(finished: Finished, session: &Session) -> ShellRun {
        let ended = &finished.ended;
        ShellRun::Completed(Completed {
            status: Status::of(Some(ended)),
            session_id: finished.id.to_string(),
            exit_code: ended.exit.code,
            signal: ended.exit.signal.map(|signal| signal.to_string()),
            timed_out: ended.timed_out,
            started_at: milliseconds(finished.started_at),
            ended_at: milliseconds(ended.ended_at),
            duration_ms: u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
            tail: finished.tail(),
            truncated: finished.stdout.truncated,
            warnings: warnings(ended),
            output: finished.stdout.text,
            workdir: paths::text(&session.workdir),
            network: network(session),
        })
    }

    pub(super) fn running(snapshot: Snapshot, session: &Session) -> ShellRun {
        ShellRun::Running(Running {
            status: Status::Running,
            session_id: snapshot.id.to_string(),
            pid: snapshot.pid,
            started_at: milliseconds(snapshot.started_at),
            tail: snapshot.tail,
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
        warnings
            .push("the process that looked after the command died first; its exit code is not known".into());
    }
    if ended.survivors > 0 {
        warnings.push(format!("{} processes could not be ended", ended.survivors));
    }
    warnings.extend(log_warnings(ended));
    warnings
}

/// What the log of a command lacks.
pub(super) fn log_warnings(ended: &Ended) -> Vec<String> {
    let mut warnings = Vec::new();
    if ended.log_dropped > 0 {
        warnings.push(format!("the log lacks {} bytes of output", ended.log_dropped));
    }
    if let Some(reason) = &ended.log_error {
        warnings.push(format!("the log could not be written: {reason}"));
    }
    warnings
}
