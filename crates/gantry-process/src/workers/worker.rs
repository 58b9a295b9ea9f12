//! The engine's side of one worker process.

use std::io::Error;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::process::Child;

use super::frame::Frame;
use super::{END_LIMIT, WorkersOptions};
use crate::exit::{Exit, Signal};

/// How long a worker that closed its connection may take to exit.
const EXIT_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    stream: UnixStream,
    /// Which setup it got.
    pub(super) generation: u64,
}

pub(super) enum JobError {
    Send(Error),
    /// The worker ended without an answer.
    Lost,
}

impl Worker {
    /// Starts a worker and waits until it has accepted its setup.
    pub(super) async fn start(
        options: &WorkersOptions,
        setup: &[u8],
        generation: u64,
    ) -> Result<Worker, Error> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = tokio::process::Command::new(&options.program)
            .args(&options.args)
            .env_clear()
            // Reserved memory must not count as used, or the limit would not bind.
            .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut worker = Worker { child, stream: UnixStream::from_std(ours)?, generation };
        let header = options.memory_bytes.to_string().into_bytes();
        let setup = Frame { header, body: setup.to_vec(), descriptors: Vec::new() };
        setup.send(&mut worker.stream).await?;
        match Frame::receive(&mut worker.stream).await? {
            Some(answer) if answer.header.is_empty() => Ok(worker),
            Some(answer) => Err(Error::other(String::from_utf8_lossy(&answer.header).into_owned())),
            None => {
                let status = worker.child.wait().await?;
                Err(Error::other(format!("it ended at once ({status})")))
            }
        }
    }

    pub(super) async fn run(&mut self, job: Frame) -> Result<Frame, JobError> {
        match job.send(&mut self.stream).await {
            Ok(()) => {}
            Err(err) if err.kind() == std::io::ErrorKind::InvalidInput => return Err(JobError::Send(err)),
            Err(_) => return Err(JobError::Lost),
        }
        Frame::receive(&mut self.stream).await.ok().flatten().ok_or(JobError::Lost)
    }

    /// Asks the worker to end its job. Returns the answer, if the worker still sends one.
    pub(super) async fn finish(&mut self) -> Option<Frame> {
        let _ = self.stream.shutdown().await;
        let answer = tokio::time::timeout(END_LIMIT, Frame::receive(&mut self.stream)).await;
        answer.ok()?.ok()?
    }

    /// How a lost worker ended.
    pub(super) async fn exit(&mut self) -> Exit {
        match tokio::time::timeout(EXIT_LIMIT, self.child.wait()).await {
            Ok(Ok(status)) => Exit { code: status.code(), signal: status.signal().map(Signal) },
            Ok(Err(_)) | Err(_) => Exit { code: None, signal: None },
        }
    }

    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Closes the connection, which ends the worker. Kills it if it does not end.
    pub(super) async fn end(self) {
        let Worker { mut child, stream, .. } = self;
        drop(stream);
        if tokio::time::timeout(END_LIMIT, child.wait()).await.is_err() {
            let _ = child.start_kill();
            let _ = child.wait().await;
        }
    }
}
