//! What to run: plain data, checked when it is launched.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::ProcessError;
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

    /// The program and its arguments, as given.
    pub(crate) fn described(&self) -> Vec<String> {
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        std::iter::once(text(&self.program)).chain(self.args.iter().map(text)).collect()
    }

    /// Refuses what no kernel could be told.
    pub(crate) fn check(&self) -> Result<(), ProcessError> {
        let has_nul = |text: &OsStr| text.as_bytes().contains(&0);
        if self.program.is_empty() {
            return Err(ProcessError::Invalid("the program is empty"));
        }
        if has_nul(&self.program) || self.args.iter().any(|arg| has_nul(arg)) {
            return Err(ProcessError::Invalid("an argument contains a NUL byte"));
        }
        if let Cwd::Path(path) = &self.cwd
            && has_nul(path.as_os_str())
        {
            return Err(ProcessError::Invalid("the directory contains a NUL byte"));
        }
        for (name, value) in &self.env {
            if name.is_empty() || has_nul(name) || has_nul(value) || name.as_bytes().contains(&b'=') {
                return Err(ProcessError::Invalid(
                    "an environment variable has an empty or broken name, or a NUL byte",
                ));
            }
        }
        Ok(())
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
