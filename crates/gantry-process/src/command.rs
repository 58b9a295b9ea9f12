//! What to run: plain data, checked when it is launched.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::sandbox::Sandbox;

/// A program with everything it is given; nothing else reaches it.
#[derive(Debug)]
pub struct Command {
    /// An absolute path, or a bare name that is looked up in the `PATH` of `env`.
    pub program: OsString,
    pub args: Vec<OsString>,
    pub cwd: Cwd,
    /// The whole environment. The engine adds nothing; see [`crate::env`] for the filters.
    pub env: Vec<(OsString, OsString)>,
    pub stdin: Stdin,
    /// After this long the group gets SIGTERM and, 250 ms later, SIGKILL.
    pub timeout: Option<Duration>,
    pub capture: Capture,
    pub sandbox: Sandbox,
}

impl Command {
    pub fn new(program: impl Into<OsString>, cwd: Cwd) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd,
            env: Vec::new(),
            stdin: Stdin::Empty,
            timeout: None,
            capture: Capture::default(),
            sandbox: Sandbox::None,
        }
    }

    pub fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<OsString>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }
}

/// The directory a command starts in.
#[derive(Debug)]
pub enum Cwd {
    Path(PathBuf),
    /// A directory held open, so that nobody can swap it between the check and the start.
    Dir(OwnedFd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    /// At end of file from the start.
    Empty,
    /// Fed by `write` until `close_stdin`; only for sessions.
    Pipe,
}

/// How much output is kept, and in which shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// stdout and stderr share one pipe, so their order is kept; the last `keep_tail` characters are returned.
    Merged { keep_tail: usize },
    /// The first bytes of each stream; the rest is drained and counted.
    Separate { stdout: usize, stderr: usize },
}

/// Characters of output that a reply carries unless the caller says otherwise.
pub const DEFAULT_KEEP_TAIL: usize = 200_000;

impl Default for Capture {
    fn default() -> Self {
        Self::Merged { keep_tail: DEFAULT_KEEP_TAIL }
    }
}
