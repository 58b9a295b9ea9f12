//! A session is a command that the engine knows by id. This module holds its state and the types
//! that describe it.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::error::ProcessError;
use crate::exit::{Exit, Signal};
use crate::log::Log;
use crate::session::folder::SessionFolder;
use crate::session::record::{Cause, EndRecord, SessionRecord};
use crate::supervise::SupervisorRequest;
use crate::text::TailSize;

pub(crate) mod directory;
pub(crate) mod folder;
pub(crate) mod key;
pub(crate) mod record;
pub(crate) mod starting_log;

/// How many characters of output a snapshot carries.
pub const TAIL_CHARS: usize = 4_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(Uuid);

impl SessionId {
    pub(crate) fn new() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SessionId {
    type Err = ProcessError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text).map(Self).map_err(|_| ProcessError::NotAnId(text.chars().take(64).collect()))
    }
}

impl TryFrom<String> for SessionId {
    type Error = ProcessError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> String {
        id.to_string()
    }
}

/// `Finished` is an ended command with its output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finished {
    pub id: SessionId,
    pub pid: i32,
    pub started_at: SystemTime,
    pub ended: Ended,
    /// With `Capture::Merged` this includes standard error, in the order of writing.
    pub stdout: Stream,
    /// Empty with `Capture::Merged`.
    pub stderr: Stream,
    /// Whether `log` can read the whole output under this id, while the session is retained.
    pub logged: bool,
}

/// `Ended` says how a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub exit: Exit,
    pub ended_at: SystemTime,
    pub duration: Duration,
    pub timed_out: bool,
    /// Somebody asked for the end: the cancellation token, a dropped call, `terminate` or
    /// `shutdown`.
    pub cancelled: bool,
    /// `kill` was called.
    pub killed: bool,
    /// The keeper died first, so the exit status is unknown. The command's processes were ended
    /// anyway.
    pub keeper_lost: bool,
    /// How many processes even SIGKILL did not end in time.
    pub survivors: usize,
    /// How many bytes of output the log lacks, because of its size limit or an error.
    pub log_dropped: u64,
    pub log_error: Option<String>,
    /// A line for each protected path that an isolated command created. Each was renamed.
    pub quarantined: Vec<String>,
}

impl From<&EndRecord> for Ended {
    fn from(end: &EndRecord) -> Self {
        Self {
            exit: Exit { code: end.code, signal: end.signal.map(Signal) },
            ended_at: end.ended_at.time(),
            duration: Duration::from_millis(end.duration_ms),
            timed_out: end.cause == Cause::TimedOut,
            cancelled: end.cause == Cause::Terminated,
            killed: end.cause == Cause::Killed,
            keeper_lost: end.cause == Cause::KeeperLost,
            survivors: end.survivors,
            log_dropped: end.log.dropped,
            log_error: end.log.error.clone(),
            quarantined: end.quarantined.clone(),
        }
    }
}

/// `Stream` is what was kept of one output stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    pub text: String,
    /// What is next to the cut, at most as much as [`Command::beyond_cut`](crate::Command) asked for:
    /// it follows `text`, or with `Capture::Merged` comes before it.
    pub beyond: String,
    pub total_bytes: u64,
    /// Whether `text` is incomplete.
    pub truncated: bool,
}

/// `Snapshot` is the state of a session at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub id: SessionId,
    pub pid: i32,
    /// The program and its arguments, as given.
    pub command: Vec<String>,
    pub started_at: SystemTime,
    /// `None` while it runs.
    pub ended: Option<Ended>,
    /// The last 4,000 characters of output.
    pub tail: String,
    /// What comes before `tail`, at most as much as [`Command::beyond_cut`](crate::Command) asked for.
    pub before_tail: String,
    pub total_bytes: u64,
}

/// `Written` says how much of the data reached standard input. It is less than everything if the
/// command did not read in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub bytes: usize,
    pub complete: bool,
}

pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) pid: i32,
    pub(crate) command: Vec<String>,
    pub(crate) started_at: SystemTime,
    pub(crate) keep_tail: usize,
    pub(crate) beyond_cut: usize,
    pub(crate) log: Arc<Log>,
    /// Locked by a task that is connecting to the keeper, until it is connected.
    pub(crate) stdin: Arc<tokio::sync::Mutex<Option<pipe::Sender>>>,
    pub(crate) requests: mpsc::Sender<SupervisorRequest>,
    pub(crate) ended: watch::Receiver<Option<Ended>>,
    /// How many bytes of output the last poll saw.
    pub(crate) polled: AtomicU64,
    /// Set for a session that can outlive the engine.
    pub(crate) kept: Option<Kept>,
}

pub(crate) struct Kept {
    pub(crate) folder: Arc<SessionFolder>,
    pub(crate) timeout_ms: Option<u64>,
    /// The PID of the guard, if this engine started it.
    pub(crate) guard: Option<i32>,
    /// Set once a detach begins.
    pub(crate) record: OnceLock<Arc<SessionRecord>>,
}

impl Session {
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Returns the record that `detach` wrote.
    pub(crate) fn record(&self) -> Option<&Arc<SessionRecord>> {
        self.kept.as_ref()?.record.get()
    }

    pub(crate) async fn snapshot(&self) -> Result<Snapshot, ProcessError> {
        // The end is checked before the output, so that the tail of an ended session is final.
        let ended = self.ended.borrow().clone();
        let (tail, total_bytes) = self.log.tail(self.size(TAIL_CHARS)).await?;
        Ok(Snapshot {
            id: self.id,
            pid: self.pid,
            command: self.command.clone(),
            started_at: self.started_at,
            ended,
            tail: tail.text,
            before_tail: tail.before,
            total_bytes,
        })
    }

    fn size(&self, chars: usize) -> TailSize {
        TailSize { chars, before: self.beyond_cut }
    }

    /// Waits at most `limit` for the session to end.
    pub(crate) async fn wait(&self, limit: Duration) -> Option<Ended> {
        let mut ended = self.ended.clone();
        match tokio::time::timeout(limit, ended.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => ended.clone(),
            _ => self.ended.borrow().clone(),
        }
    }

    pub(crate) async fn finished(&self, ended: Ended) -> Result<Finished, ProcessError> {
        let (tail, total) = self.log.tail(self.size(self.keep_tail)).await?;
        let logged = total.min(self.log.limit());
        let truncated = ended.log_dropped > 0
            || total > logged
            || (total > self.keep_tail as u64 && self.log.chars().await? > self.keep_tail as u64);
        // After a failed write the keeper counts more bytes than the file has. The lines that
        // report missing output are counted too.
        let total_bytes = total.max(logged + ended.log_dropped);
        let stdout = Stream { text: tail.text, beyond: tail.before, total_bytes, truncated };
        Ok(Finished {
            id: self.id,
            pid: self.pid,
            started_at: self.started_at,
            ended,
            stdout,
            stderr: Stream::default(),
            logged: true,
        })
    }
}
