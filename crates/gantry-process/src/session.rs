//! A command the engine knows by id, and what is told about it.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::error::ProcessError;
use crate::exit::{Exit, Signal};
use crate::log::Log;
use crate::record::{Cause, EndRecord, SessionRecord};
use crate::session_folder::SessionFolder;
use crate::supervise::Ask;
use crate::text;

/// Characters of output that a snapshot carries.
pub(crate) const TAIL_CHARS: usize = 4_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// A command that is over, with its output.
#[derive(Debug, Clone)]
pub struct Finished {
    pub id: SessionId,
    pub pid: i32,
    pub started_at: SystemTime,
    pub ended: Ended,
    /// With `Capture::Merged`, standard error as well, in the order it was written.
    pub stdout: Stream,
    /// Empty with `Capture::Merged`.
    pub stderr: Stream,
    /// Whether `log` can read the whole output under this id, for as long as sessions are retained.
    pub logged: bool,
}

impl Finished {
    /// The last 4,000 characters of standard output.
    pub fn tail(&self) -> String {
        text::tail(self.stdout.text.as_bytes(), TAIL_CHARS).0
    }
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub exit: Exit,
    pub ended_at: SystemTime,
    pub duration: Duration,
    pub timed_out: bool,
    /// Somebody asked for the end: the token, a dropped call, `terminate` or `shutdown`.
    pub cancelled: bool,
    /// `kill` was called.
    pub killed: bool,
    /// The keeper died first, so how the command ended is not known. What it left was ended all the same.
    pub keeper_lost: bool,
    /// Processes that even SIGKILL did not end in time.
    pub survivors: usize,
    /// Bytes of output that the log lacks, because of its size limit or of an error.
    pub log_dropped: u64,
    pub log_error: Option<String>,
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
        }
    }
}

/// What was kept of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    pub text: String,
    pub total_bytes: u64,
    /// Whether `text` lacks a part.
    pub truncated: bool,
}

/// A session at one moment.
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
    pub total_bytes: u64,
}

/// What of the data reached standard input; less than all of it when the command did not read in time.
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
    pub(crate) log: Arc<Log>,
    /// Taken by whoever is about to connect to its keeper, until it has.
    pub(crate) stdin: Arc<tokio::sync::Mutex<Option<pipe::Sender>>>,
    pub(crate) asks: mpsc::Sender<Ask>,
    pub(crate) ended: watch::Receiver<Option<Ended>>,
    /// Bytes of output that the last poll saw.
    pub(crate) polled: AtomicU64,
    /// Of a session that can outlive the engine.
    pub(crate) kept: Option<Kept>,
}

pub(crate) struct Kept {
    pub(crate) folder: Arc<SessionFolder>,
    pub(crate) timeout_ms: Option<u64>,
    /// The process we started to keep it.
    pub(crate) guard: Option<i32>,
    /// There once it is about to be detached.
    pub(crate) record: OnceLock<Arc<SessionRecord>>,
}

impl Session {
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// What its caller left with it.
    pub(crate) fn record(&self) -> Option<&Arc<SessionRecord>> {
        self.kept.as_ref()?.record.get()
    }

    pub(crate) async fn snapshot(&self) -> Result<Snapshot, ProcessError> {
        // Looked at before the output, so that the tail of an ended session is always its last.
        let ended = self.ended.borrow().clone();
        let (tail, total_bytes) = self.log.tail(TAIL_CHARS).await?;
        Ok(Snapshot {
            id: self.id,
            pid: self.pid,
            command: self.command.clone(),
            started_at: self.started_at,
            ended,
            tail,
            total_bytes,
        })
    }

    /// Waits until the session is over, at most `limit`.
    pub(crate) async fn wait(&self, limit: Duration) -> Option<Ended> {
        let mut ended = self.ended.clone();
        match tokio::time::timeout(limit, ended.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => ended.clone(),
            _ => self.ended.borrow().clone(),
        }
    }

    pub(crate) async fn finished(&self, ended: Ended) -> Result<Finished, ProcessError> {
        let (text, total) = self.log.tail(self.keep_tail).await?;
        let logged = total.min(self.log.limit());
        let truncated = ended.log_dropped > 0
            || total > logged
            || (total > self.keep_tail as u64 && self.log.chars().await? > self.keep_tail as u64);
        // After a failed write the keeper knows of more than the file does. The lines that say so there are counted too.
        let total_bytes = total.max(logged + ended.log_dropped);
        let stdout = Stream { text, total_bytes, truncated };
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
