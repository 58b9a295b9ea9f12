//! A command that is spoken with: its three streams are pipes in our hands for as long as it lives.
//!
//! Like every command it runs under a keeper, which ends it and all it started when we are gone. What is said on the
//! pipes is not our business, nor is how much of it is read.

use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use crate::capture::Collector;
use crate::command::{Capture, Command, Stdin};
use crate::error::ProcessError;
use crate::order::Output;
use crate::processes::{Processes, START_LIMIT, gone};
use crate::session::Ended;
use crate::supervise::{Ask, Supervised, Wiring, supervise};

/// Longer than a keeper takes to end whatever it keeps.
const END_LIMIT: Duration = Duration::from_secs(20);

/// A running command and its streams. Dropping `process` ends it, and everything it has started.
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
    asks: mpsc::Sender<Ask>,
    ended: watch::Receiver<Option<Ended>>,
}

impl Processes {
    /// Starts a command that is fed and read by whoever asked. It ends with the engine at the latest.
    pub async fn pipe(&self, command: Command) -> Result<Piped, ProcessError> {
        command.check()?;
        if command.stdin != Stdin::Pipe || !matches!(command.capture, Capture::Separate { .. }) {
            return Err(ProcessError::Invalid("a piped command has three streams of its own"));
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
        let Supervised { started, ended, asks } = supervise(self.inner.keepers.clone(), command, wiring);
        // Giving up drops `asks`, which ends whatever may have been started.
        let started = tokio::time::timeout(START_LIMIT, started).await.map_err(|_| ProcessError::Keeper {
            keeper: self.inner.keepers.options.keeper.clone(),
            source: std::io::Error::other("it does not answer"),
        })?;
        let pid = gone(started)??.pid;
        let (told, ended_rx) = watch::channel(None);
        // Weak, so that the last handle's end is still the command's.
        let (stop, asks_weak) = (self.inner.stop.clone(), asks.downgrade());
        self.inner.piped.spawn(async move {
            tokio::pin!(ended);
            let over = tokio::select! {
                over = &mut ended => over,
                () = stop.cancelled() => {
                    if let Some(asks) = asks_weak.upgrade() {
                        let _ = asks.send(Ask::Terminate).await;
                    }
                    ended.await
                }
            };
            if let Ok(over) = over {
                told.send_replace(Some(over.ended));
            }
        });
        Ok(Piped { stdin, stdout, stderr, process: PipedProcess { pid, asks, ended: ended_rx } })
    }
}

impl PipedProcess {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    /// Waits for its end, at most `up_to`.
    pub async fn wait(&self, up_to: Duration) -> Option<Ended> {
        let mut ended = self.ended.clone();
        match tokio::time::timeout(up_to, ended.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => ended.clone(),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// SIGTERM to the group, then SIGKILL to all that is left; returns when they are gone.
    pub async fn terminate(&self) -> Option<Ended> {
        let _ = self.asks.send(Ask::Terminate).await;
        self.wait(END_LIMIT).await
    }
}
