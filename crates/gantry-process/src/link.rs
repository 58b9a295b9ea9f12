//! The engine's end of one keeper: starts it, hands over the order, carries requests down and reports up.

use std::io::{Error, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;

use crate::order::{MAX_DESCRIPTORS, MAX_ORDER_BYTES, Order, Report};
use crate::processes::ProcessesOptions;

pub(crate) struct Link {
    child: Child,
    reports: BufReader<OwnedReadHalf>,
    requests: OwnedWriteHalf,
    /// A report as far as it has arrived; kept here so that `report` may be cancelled.
    line: Vec<u8>,
}

impl Link {
    /// Starts a keeper. Its standard input is the control socket, so that no descriptor has to be moved between fork
    /// and exec and the fast way of starting a process stays open.
    pub(crate) fn start(options: &ProcessesOptions) -> Result<Self, Error> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = tokio::process::Command::new(&options.keeper)
            .args(&options.keeper_args)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let (reports, requests) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { child, reports: BufReader::new(reports), requests, line: Vec::new() })
    }

    /// Sends the order; the descriptors travel with its first bytes and are closed here afterwards.
    pub(crate) async fn order(&mut self, order: &Order, descriptors: Vec<OwnedFd>) -> Result<(), Error> {
        debug_assert!(descriptors.len() <= MAX_DESCRIPTORS);
        let json = serde_json::to_vec(order)?;
        if json.len() > MAX_ORDER_BYTES {
            return Err(rustix::io::Errno::TOOBIG.into());
        }
        let length = u32::try_from(json.len()).map_err(Error::other)?.to_le_bytes();
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let socket: &UnixStream = self.requests.as_ref();
        let sent = socket
            .async_io(tokio::io::Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
                    return Err(ErrorKind::InvalidInput.into());
                }
                let parts = [IoSlice::new(&length), IoSlice::new(&json)];
                Ok(rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?)
            })
            .await?;
        let (length_sent, json_sent) = (sent.min(length.len()), sent.saturating_sub(length.len()));
        self.requests.write_all(&length[length_sent..]).await?;
        self.requests.write_all(&json[json_sent..]).await
    }

    /// The next report, or `None` when the keeper is gone. May be cancelled without losing anything.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        match self.reports.read_until(b'\n', &mut self.line).await {
            Ok(count) if count > 0 && self.line.ends_with(b"\n") => {
                let report = serde_json::from_slice(&self.line).ok();
                self.line.clear();
                report
            }
            _ => None,
        }
    }

    /// Asks the keeper for something; a keeper that is gone will be noticed by `report`.
    pub(crate) async fn request(&mut self, request: u8) {
        let _ = self.requests.write_all(&[request]).await;
    }

    /// Whether the keeper still runs; only a spare may have ended without our noticing.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn keeper_pid(&self) -> Option<i32> {
        self.child.id().and_then(|pid| i32::try_from(pid).ok())
    }

    /// Ends a keeper that does not answer.
    pub(crate) fn kill_keeper(&mut self) {
        let _ = self.child.start_kill();
    }

    /// Waits until the keeper is reaped.
    pub(crate) async fn reap(mut self) {
        drop(self.requests);
        let _ = self.child.wait().await;
    }
}
