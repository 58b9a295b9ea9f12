//! The records in the folder of a session that outlives its engine. The keeper writes them; engines
//! read them.
//!
//! A file under its final name is always complete. The folder is locked while its keeper lives.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::keeper::control_protocol::LogReport;

/// Its presence means that the session was detached and may be adopted.
pub(crate) const SESSION: &str = "session.json";
/// Its presence means that the session has ended; it says how.
pub(crate) const ENDED: &str = "ended.json";
pub(crate) const LOG: &str = "log";
/// The socket on which the keeper waits for the next engine.
pub(crate) const CONTROL: &str = "control";

/// The longest record. Anything longer is not read.
pub(crate) const MAX_RECORD_BYTES: usize = 1 << 20;

pub(crate) const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) version: u32,
    /// Identifies the exit of this session in reports.
    pub(crate) event_id: String,
    /// The caller's note, never interpreted.
    pub(crate) note: String,
    /// The command, shortened if it is long.
    pub(crate) command: Vec<String>,
    pub(crate) process: ProcessName,
    pub(crate) guard: Option<ProcessName>,
    /// The boot of the machine that the processes belong to.
    pub(crate) boot: Option<String>,
    pub(crate) started_at: Moment,
    pub(crate) keep_tail: usize,
    #[serde(default)]
    pub(crate) beyond_cut: usize,
    pub(crate) log_limit: u64,
    pub(crate) timeout_ms: Option<u64>,
}

impl SessionRecord {
    pub(crate) fn event_id(&self) -> Option<Uuid> {
        Uuid::try_parse(&self.event_id).ok()
    }
}

/// `ProcessName` is a PID with its start time. Together they are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessName {
    pub(crate) pid: i32,
    pub(crate) started: Option<u64>,
}

/// `EndRecord` says how a command ended, as its keeper saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndRecord {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// How many processes even SIGKILL did not end in time, because they are stuck in the kernel.
    pub(crate) survivors: usize,
    /// What the output log lacks, if the keeper wrote one.
    pub(crate) log: LogReport,
    pub(crate) cause: Cause,
    pub(crate) ended_at: Moment,
    pub(crate) duration_ms: u64,
    /// A line for each protected path that the command created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) quarantined: Vec<String>,
}

/// `Cause` says why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    Own,
    Terminated,
    Killed,
    TimedOut,
    /// The keeper died before the command ended.
    KeeperLost,
}

/// Nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        SystemTime::now().into()
    }

    pub(crate) fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.0)
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Writes a file into a folder, completely or not at all.
pub(crate) fn write(folder: impl AsFd, name: &str, bytes: &[u8]) -> Result<File, Error> {
    let folder = folder.as_fd();
    let unfinished = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(folder, &unfinished, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(bytes)?;
    rustix::fs::renameat(folder, &unfinished, folder, name)?;
    Ok(file)
}

/// Like [`write()`], and durable when it returns.
pub(crate) fn write_durably(folder: impl AsFd, name: &str, bytes: &[u8]) -> Result<(), Error> {
    sync(&write(&folder, name, bytes)?, folder.as_fd())
}

pub(crate) fn sync(file: &File, folder: BorrowedFd<'_>) -> Result<(), Error> {
    file.sync_all()?;
    // A path-only handle of the folder cannot be synced. The record is then as durable as the
    // system makes it.
    match rustix::fs::fsync(folder) {
        Ok(()) | Err(rustix::io::Errno::BADF) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

/// Reads a record; `None` if it does not exist.
pub(crate) fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let file = match rustix::fs::open(
        folder.join(name),
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(err) => return Err(err.into()),
    };
    let mut bytes = Vec::new();
    file.take(MAX_RECORD_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_RECORD_BYTES {
        return Err(Error::new(ErrorKind::InvalidData, "the record is too long"));
    }
    Ok(Some(bytes))
}
