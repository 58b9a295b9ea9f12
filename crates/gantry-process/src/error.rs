//! `ProcessError` lists what can go wrong, grouped by who must act.

use std::io::Error;
use std::path::PathBuf;

use crate::session::SessionId;

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot start `{program}`: {source}")]
    Program { program: String, source: Error },
    #[error("cannot start a command in {directory}: {source}")]
    Directory { directory: String, source: Error },
    #[error("invalid command: {0}")]
    Invalid(&'static str),
    #[error("the sandbox cannot be enforced, so the command was not started: {reason}")]
    SandboxUnavailable { reason: String },
    #[error("cannot create a network for the sandbox: {0}")]
    Network(String),
    #[error("cannot look into the session's network: {0}")]
    NetworkVisit(String),
    #[error("cannot start the keeper {}: {source}", keeper.display())]
    Keeper { keeper: PathBuf, source: Error },
    #[error("cannot prepare the command: {0}")]
    Prepare(Error),
    #[error("no session {0}")]
    NoSession(SessionId),
    #[error("`{0}` is not a session id")]
    NotAnId(String),
    #[error("{0} sessions are already running")]
    TooManySessions(usize),
    #[error("session {0} is still running")]
    StillRunning(SessionId),
    #[error("session {0} has ended")]
    HasEnded(SessionId),
    #[error("standard input of session {0} is closed")]
    StdinClosed(SessionId),
    #[error("standard input of session {0} is temporarily unavailable")]
    StdinBusy(SessionId),
    #[error("cannot use the log {}: {cause}", path.display())]
    Log { path: PathBuf, cause: Error },
    #[error("the sessions in {} belong to another engine, process {holder}", path.display())]
    InUse { path: PathBuf, holder: String },
    #[error("cannot detach session {id}: {reason}")]
    NotDetached { id: SessionId, reason: String },
    #[error("cancelled before the command started")]
    Cancelled,
    #[error("the engine is shutting down")]
    ShuttingDown,
}

impl ProcessError {
    /// Suggests what to do next, where there is something to do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Program { source, .. } => {
                match source.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                    Some(rustix::io::Errno::NOENT) => {
                        Some("check that the program is installed and its name is right")
                    }
                    Some(rustix::io::Errno::ACCESS) => Some("check that the file may be executed"),
                    Some(rustix::io::Errno::TOOBIG) => {
                        Some("put the long argument into a file and pass its path")
                    }
                    _ => None,
                }
            }
            Self::Directory { .. } => Some("check that the directory exists and may be entered"),
            Self::SandboxUnavailable { .. } => Some(
                "use a kernel with Landlock (Linux 6.2 or later), or let the operator configure this tool to run without a sandbox",
            ),
            Self::TooManySessions(_) => {
                Some("end a session that is not needed any more, or wait for one to finish")
            }
            Self::NoSession(_) => {
                Some("finished sessions are removed after a while; list the sessions that remain")
            }
            Self::InUse { .. } => {
                Some("stop that process first, or give this one a data directory of its own")
            }
            Self::Keeper { .. } => {
                Some("the gantry program may have been moved or replaced while it ran; start it again")
            }
            _ => None,
        }
    }
}
