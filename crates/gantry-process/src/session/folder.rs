//! The engine's view of one session's folder. It is created for a session that can be detached, and
//! read by later engines.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Error, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use crate::keeper::control_protocol::WELCOME;
use crate::session::key::SessionKey;
use crate::session::record::{self, CONTROL, ENDED, EndRecord, LOG, SESSION, SessionRecord, VERSION};

/// Its presence means that the caller has acknowledged the exit.
const ACKNOWLEDGED: &str = "acknowledged";
/// The end of the output, kept when the log is removed before the exit is reported.
const TAIL: &str = "tail";

/// A keeper that is not busy answers at once.
const WELCOME_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct SessionFolder {
    path: PathBuf,
}

impl SessionFolder {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Creates the folder. The handle holds its lock and goes to the keeper; the lock then shows
    /// that the keeper is alive.
    pub(crate) fn create(path: PathBuf) -> Result<(Self, OwnedFd), Error> {
        DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Self { path };
        let handle = folder.open()?;
        rustix::fs::flock(&handle, FlockOperation::NonBlockingLockExclusive)?;
        Ok((folder, handle))
    }

    pub(crate) fn create_log(&self) -> Result<File, Error> {
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(self.log())
    }

    pub(crate) fn open_log(&self) -> Result<File, Error> {
        crate::log::open(&self.log())
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the session's record; `None` if it was never detached.
    pub(crate) fn record(&self) -> Result<Option<SessionRecord>, Error> {
        let record: Option<SessionRecord> = self.read(SESSION)?;
        match &record {
            Some(record) if record.version != VERSION => Err(Error::other(format!(
                "the record has version {}, but this engine needs {VERSION}",
                record.version
            ))),
            Some(record) if record.event_id().is_none() => {
                Err(Error::other("the record has an invalid event id"))
            }
            _ => Ok(record),
        }
    }

    /// Reads how the session ended; `None` if that is not recorded.
    pub(crate) fn end(&self) -> Option<EndRecord> {
        self.read(ENDED).ok().flatten()
    }

    pub(crate) fn write_end(&self, end: &EndRecord) -> Result<(), Error> {
        record::write_durably(self.open()?, ENDED, &serde_json::to_vec(end)?)
    }

    pub(crate) fn write_record(&self, record: &SessionRecord) -> Result<(), Error> {
        record::write_durably(self.open()?, SESSION, &serde_json::to_vec(record)?)
    }

    /// Reports whether somebody holds the folder's lock. Errors count as yes.
    pub(crate) fn keeper_lives(&self) -> bool {
        match self.open() {
            Ok(handle) => rustix::fs::flock(handle, FlockOperation::NonBlockingLockExclusive).is_err(),
            Err(err) => err.kind() != ErrorKind::NotFound,
        }
    }

    /// Reads the key that the keeper expects; `None` if it is missing.
    pub(crate) fn key(&self) -> Result<Option<SessionKey>, Error> {
        SessionKey::read(&self.path)
    }

    /// Connects to the keeper of a detached session. Also returns the write end of standard input,
    /// if it is still open.
    pub(crate) async fn connect(&self) -> Result<(UnixStream, Option<OwnedFd>), Error> {
        let key = self.key()?.ok_or_else(|| Error::other("the session's key is missing"))?;
        // Connects through the folder's handle, because the path of a socket must be short.
        #[cfg(target_os = "linux")]
        let handle = self.open()?;
        #[cfg(target_os = "linux")]
        let socket = format!("/proc/self/fd/{}/{CONTROL}", std::os::fd::AsRawFd::as_raw_fd(&handle));
        #[cfg(not(target_os = "linux"))]
        let socket = self.path.join(CONTROL);
        let connected = async {
            let mut stream = UnixStream::connect(socket).await?;
            stream.write_all(key.bytes()).await?;
            let feed = stream.async_io(tokio::io::Interest::READABLE, || welcomed(&stream)).await?;
            Ok((stream, feed))
        };
        tokio::time::timeout(WELCOME_LIMIT, connected)
            .await
            .unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    pub(crate) fn acknowledge(&self) -> Result<(), Error> {
        record::write_durably(self.open()?, ACKNOWLEDGED, b"")
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        self.path.join(ACKNOWLEDGED).exists()
    }

    /// Removes the log and keeps the end of its text for the report.
    pub(crate) fn shrink(&self, tail: &str) -> Result<(), Error> {
        record::write(self.open()?, TAIL, tail.as_bytes())?;
        std::fs::remove_file(self.log())
    }

    /// Reads what `shrink` kept.
    pub(crate) fn tail(&self) -> Option<String> {
        let bytes = record::read(&self.path, TAIL).ok().flatten()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) fn remove(&self) {
        // Removes the session's record first, so that a half-removed folder is never taken for a
        // session.
        let _ = std::fs::remove_file(self.path.join(SESSION));
        let _ = std::fs::remove_dir_all(&self.path);
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let bytes = record::read(&self.path, name)?;
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose()?)
    }

    fn open(&self) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&self.path, flags, Mode::empty())?)
    }
}

/// Reads the keeper's greeting, one byte.
fn welcomed(stream: &UnixStream) -> Result<Option<OwnedFd>, Error> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let received = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    let mut feed = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message {
            feed = files.next();
        }
    }
    if received.bytes == 1 && byte[0] == WELCOME { Ok(feed) } else { Err(ErrorKind::InvalidData.into()) }
}
