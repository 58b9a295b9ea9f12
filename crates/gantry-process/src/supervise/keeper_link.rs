//! The engine's connection to one keeper. It starts the keeper or reconnects to it, sends the order
//! and requests, and receives reports.

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

use crate::keeper::control_protocol::{MAX_DESCRIPTORS, MAX_ORDER_BYTES, MAX_REPORT_BYTES, Order, Report};
use crate::options::ProcessesOptions;

pub(crate) struct Link {
    /// `None` if a previous engine started the keeper.
    child: Option<Child>,
    /// `None` until a recovered keeper has answered.
    connection: Option<Connection>,
}

struct Connection {
    reports: BufReader<OwnedReadHalf>,
    requests: OwnedWriteHalf,
    /// The bytes of an incomplete report. They are kept here so that `report` can be cancelled.
    line: Vec<u8>,
}

impl Link {
    /// Starts a keeper. Its standard input is the control socket: no descriptor has to be moved
    /// between fork and exec, so the standard library can use its fast spawn path.
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
        Ok(Self { child: Some(child), connection: Some(Connection::new(UnixStream::from_std(ours)?)) })
    }

    /// A keeper that another engine started, not connected yet.
    pub(crate) fn unconnected() -> Self {
        Self { child: None, connection: None }
    }

    /// Continues over a new connection.
    pub(crate) fn connect(&mut self, stream: UnixStream) {
        self.connection = Some(Connection::new(stream));
    }

    /// Sends the order. The descriptors travel with its first bytes and are closed here afterwards.
    pub(crate) async fn order(&mut self, order: &Order, descriptors: Vec<OwnedFd>) -> Result<(), Error> {
        debug_assert!(descriptors.len() <= MAX_DESCRIPTORS);
        let Some(Connection { requests, .. }) = &mut self.connection else {
            return Err(ErrorKind::NotConnected.into());
        };
        let json = serde_json::to_vec(order)?;
        if json.len() > MAX_ORDER_BYTES {
            return Err(rustix::io::Errno::TOOBIG.into());
        }
        let length = u32::try_from(json.len()).map_err(Error::other)?.to_le_bytes();
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let socket: &UnixStream = requests.as_ref();
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
        requests.write_all(&length[length_sent..]).await?;
        requests.write_all(&json[json_sent..]).await
    }

    /// Returns the next report, or `None` when the keeper is gone. Cancelling loses nothing.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        let Connection { reports, line, .. } = self.connection.as_mut()?;
        loop {
            let chunk = reports.fill_buf().await.ok().filter(|chunk| !chunk.is_empty())?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            line.extend_from_slice(&chunk[..end.unwrap_or(chunk.len())]);
            let taken = end.map_or(chunk.len(), |end| end + 1);
            reports.consume(taken);
            if end.is_some() {
                let report = serde_json::from_slice(line).ok();
                line.clear();
                return report;
            }
            if line.len() > MAX_REPORT_BYTES {
                return None;
            }
        }
    }

    /// Sends a request. If the keeper is gone, `report` notices it.
    pub(crate) async fn request(&mut self, request: &[u8]) {
        if let Some(connection) = &mut self.connection {
            let _ = connection.requests.write_all(request).await;
        }
    }

    /// Reports whether the keeper still runs. Only a spare can have ended unnoticed.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The PID of the keeper, if this engine started it and has not reaped it.
    pub(crate) fn child_pid(&self) -> Option<i32> {
        self.child.as_ref()?.id().and_then(|pid| i32::try_from(pid).ok())
    }

    /// Kills a keeper of this engine that does not answer.
    pub(crate) fn kill_keeper(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.start_kill();
        }
    }

    /// Waits until a keeper of this engine is reaped.
    pub(crate) async fn reap(mut self) {
        self.connection = None;
        if let Some(child) = &mut self.child {
            let _ = child.wait().await;
        }
    }
}

impl Connection {
    fn new(stream: UnixStream) -> Self {
        let (reports, requests) = stream.into_split();
        Self { reports: BufReader::new(reports), requests, line: Vec::new() }
    }
}
