//! How an engine is set up.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct ProcessesOptions {
    /// The program whose `main` is [`crate::keeper::main`] when it is given `keeper_args`.
    pub keeper: PathBuf,
    pub keeper_args: Vec<OsString>,
    /// Made when the first log is.
    pub log_dir: PathBuf,
    /// How long a finished session and its log are kept.
    pub retention: Duration,
    /// Output beyond this is counted and its newest part kept as the tail, but pages of the log do not show it.
    pub max_log_bytes: u64,
    /// What all logs together may take on disk. Finished ones get half of it, and beyond that are forgotten, oldest
    /// first; when much of it is taken, a new log may not grow to `max_log_bytes`, but always to 16 MiB.
    pub max_total_log_bytes: u64,
    pub max_sessions: usize,
    /// Finished sessions beyond this are forgotten, oldest first.
    pub max_finished: usize,
    /// How long `write` waits for a command that does not read.
    pub stdin_timeout: Duration,
    /// Keep one keeper started ahead of the next command. Not worth it for an engine that runs one command and ends.
    pub spare_keeper: bool,
}

impl ProcessesOptions {
    pub fn new(keeper: PathBuf, log_dir: PathBuf) -> Self {
        Self {
            keeper,
            keeper_args: Vec::new(),
            log_dir,
            retention: Duration::from_secs(30 * 60),
            max_log_bytes: 1 << 30,
            max_total_log_bytes: 4 << 30,
            max_sessions: 64,
            max_finished: 256,
            stdin_timeout: Duration::from_secs(5),
            spare_keeper: true,
        }
    }
}
