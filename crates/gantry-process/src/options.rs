//! The settings of an engine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct ProcessesOptions {
    /// The program that runs [`crate::keeper::main`] when it gets `keeper_args`.
    pub keeper: PathBuf,
    pub keeper_args: Vec<OsString>,
    /// Created with the first log.
    pub log_dir: PathBuf,
    /// How long a finished session and its log are kept.
    pub retention: Duration,
    /// Output beyond this is counted, and its newest part is kept as the tail. Pages of the log do
    /// not show it.
    pub max_log_bytes: u64,
    /// How much disk space all logs may take together. Finished logs get half of it; beyond that
    /// the oldest are removed. When space is short, a new log may not grow to `max_log_bytes`, but
    /// always to 16 MiB.
    pub max_total_log_bytes: u64,
    pub max_sessions: usize,
    /// When there are more finished sessions, the oldest are removed.
    pub max_finished: usize,
    /// How long `write` waits for a command that does not read.
    pub stdin_timeout: Duration,
    /// Starts one keeper ahead of the next command. An engine that runs only one command does not
    /// benefit.
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
