//! `Command` describes what to run. It is plain data, checked at launch.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::ProcessError;
use crate::network::SessionNetwork;
use crate::sandbox::Sandbox;

/// `Command` is a program with everything it receives. Nothing else reaches the program.
#[derive(Debug)]
pub struct Command {
    /// An absolute path, or a bare name that is looked up in the `PATH` of `env`.
    pub program: OsString,
    pub args: Vec<OsString>,
    pub cwd: Cwd,
    /// The whole environment. The engine adds nothing to it; [`crate::env`] has the filters.
    pub env: Vec<(OsString, OsString)>,
    pub stdin: Stdin,
    /// When this time is over, the process group receives SIGTERM and, 250 ms later, SIGKILL.
    pub timeout: Option<Duration>,
    pub capture: Capture,
    /// How much output beyond a cut is returned separately, so that the caller can move the cut: bytes after the cut, or
    /// characters before it with `Capture::Merged`. At most 131,072.
    pub beyond_cut: usize,
    pub sandbox: Sandbox,
    /// The network that the command joins. Without one, an isolated command gets an empty network,
    /// and any other command uses the machine's network.
    pub network: Option<Arc<SessionNetwork>>,
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
            beyond_cut: 0,
            sandbox: Sandbox::None,
            network: None,
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
    pub(crate) fn command_line(&self) -> Vec<String> {
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        std::iter::once(text(&self.program)).chain(self.args.iter().map(text)).collect()
    }

    /// Rejects what no kernel accepts: empty names and NUL bytes.
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
                    "an environment variable has an empty or invalid name, or contains a NUL byte",
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
    /// An open directory handle, so that nobody can replace the directory between check and start.
    Dir(OwnedFd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    /// Standard input is at end of file from the start.
    Empty,
    /// `write` feeds standard input until `close_stdin`. Only sessions support this.
    Pipe,
}

/// `Capture` says how much output is kept, and whether the two streams are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Capture {
    /// stdout and stderr share one pipe, which preserves their order. The last `keep_tail`
    /// characters are returned.
    Merged { keep_tail: usize },
    /// The first bytes of each stream are returned. The rest is drained and counted.
    Separate { stdout: usize, stderr: usize },
}

/// The most that [`Command::beyond_cut`] has an effect for. A stored tail with as much before it still fits into a record.
pub(crate) const MAX_BEYOND_CUT: usize = 128 * 1024;

/// How many characters of output a reply carries by default.
pub const DEFAULT_KEEP_TAIL: usize = 200_000;

impl Default for Capture {
    fn default() -> Self {
        Self::Merged { keep_tail: DEFAULT_KEEP_TAIL }
    }
}
