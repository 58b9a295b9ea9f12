//! Runs a command whose three standard streams the caller reads and writes as pipes.
//!
//! Like every command it runs under a keeper, which ends it and everything it started when the
//! engine is gone. This module neither interprets nor limits what goes through the pipes.

use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use crate::capture::Collector;
use crate::command::{Capture, Command, Stdin};
use crate::error::ProcessError;
use crate::keeper::control_protocol::Output;
use crate::processes::{Processes, START_LIMIT, supervisor_gone};
use crate::session::Ended;
use crate::supervise::{Supervised, SupervisorRequest, Wiring, supervise};

/// Longer than a keeper needs to end everything it keeps.
const END_LIMIT: Duration = Duration::from_secs(20);

/// `Piped` is a running command with its streams. Dropping `process` ends it and everything it
/// started.
#[derive(Debug)]
pub struct Piped {
    pub stdin: pipe::Sender,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
    pub process: PipedProcess,
}

#[derive(Debug)]
pub struct PipedProcess {
    pid: i32,
    requests: mpsc::Sender<SupervisorRequest>,
    ended: watch::Receiver<Option<Ended>>,
}

impl Processes {
    /// Starts a command whose pipes belong to the caller. It ends with the engine at the latest.
    pub async fn pipe(&self, command: Command) -> Result<Piped, ProcessError> {
        command.check()?;
        if command.stdin != Stdin::Pipe || !matches!(command.capture, Capture::Separate { .. }) {
            return Err(ProcessError::Invalid(
                "a piped command needs a standard input pipe and separate output",
            ));
        }
        if self.is_stopping() {
            return Err(ProcessError::ShuttingDown);
        }
        let (source, feed) = std::io::pipe().map_err(ProcessError::Prepare)?;
        let (stdout, stdout_sink) = std::io::pipe().map_err(ProcessError::Prepare)?;
        let (stderr, stderr_sink) = std::io::pipe().map_err(ProcessError::Prepare)?;
        let stdin = pipe::Sender::from_owned_fd(feed.into()).map_err(ProcessError::Prepare)?;
        let stdout = pipe::Receiver::from_owned_fd(stdout.into()).map_err(ProcessError::Prepare)?;
        let stderr = pipe::Receiver::from_owned_fd(stderr.into()).map_err(ProcessError::Prepare)?;
        let wiring = Wiring {
            stdin: Some(source.into()),
            sinks: vec![stdout_sink.into(), stderr_sink.into()],
            output: Output::Separate,
            keep: None,
            collector: Collector::Nothing,
        };
        let Supervised { started, ended, requests } = supervise(self.inner.keepers.clone(), command, wiring);
        // Giving up drops `requests`, which ends whatever may have started.
        let started = tokio::time::timeout(START_LIMIT, started).await.map_err(|_| ProcessError::Keeper {
            keeper: self.inner.keepers.options.keeper.clone(),
            source: std::io::Error::other("the keeper does not answer"),
        })?;
        let pid = supervisor_gone(started)??.pid;
        let (ended_tx, ended_rx) = watch::channel(None);
        // This is a weak handle, so that dropping the last strong one still ends the command.
        let (stop, requests_weak) = (self.inner.stop.clone(), requests.downgrade());
        self.inner.piped.spawn(async move {
            tokio::pin!(ended);
            let over = tokio::select! {
                over = &mut ended => over,
                () = stop.cancelled() => {
                    if let Some(requests) = requests_weak.upgrade() {
                        let _ = requests.send(SupervisorRequest::Terminate).await;
                    }
                    ended.await
                }
            };
            if let Ok(over) = over {
                ended_tx.send_replace(Some(over.ended));
            }
        });
        Ok(Piped { stdin, stdout, stderr, process: PipedProcess { pid, requests, ended: ended_rx } })
    }
}

impl PipedProcess {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// How the command ended; `None` while it runs.
    pub fn ended(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    /// Waits at most `up_to` for the command to end.
    pub async fn wait(&self, up_to: Duration) -> Option<Ended> {
        let mut ended = self.ended.clone();
        match tokio::time::timeout(up_to, ended.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => ended.clone(),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// Sends SIGTERM to the group, then SIGKILL to everything left. Returns when all are gone.
    pub async fn terminate(&self) -> Option<Ended> {
        let _ = self.requests.send(SupervisorRequest::Terminate).await;
        self.wait(END_LIMIT).await
    }
}
