//! The keeper's view of the folder of a session that can be detached. It leaves records for later
//! engines there.

use std::io::Error;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use rustix::fs::{AtFlags, Mode};

use crate::session::key::SessionKey;
use crate::session::record::{self, CONTROL, ENDED, EndRecord, SESSION};

/// The engine that created the folder locked it. The keeper inherits the lock, which proves that it
/// is alive.
pub(super) struct Folder(pub(super) OwnedFd);

impl Folder {
    /// Writes the record, a socket to connect to, and the key to show there. The session is
    /// detached once this succeeds.
    pub(super) fn detach(&self, record: &[u8]) -> Result<(UnixListener, SessionKey), Error> {
        let key = SessionKey::create_in(&self.0)?;
        // A path relative to the folder is short enough for a socket, wherever the folder is.
        rustix::process::fchdir(&self.0)?;
        let listener = UnixListener::bind(CONTROL)?;
        // The folder already keeps other users out. The socket's mode says the same, whatever the
        // umask.
        let owner = Mode::RUSR | Mode::WUSR;
        rustix::fs::chmodat(&self.0, CONTROL, owner, AtFlags::empty())?;
        listener.set_nonblocking(true)?;
        record::write(&self.0, SESSION, record)?;
        Ok((listener, key))
    }

    /// Syncs the record so that it survives a power failure. A separate thread does it, because
    /// nobody needs to wait.
    pub(super) fn sync(&self) {
        if let Ok(file) = rustix::fs::openat(
            &self.0,
            SESSION,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            let _ = rustix::fs::fsync(file);
            let _ = rustix::fs::fsync(&self.0);
        }
    }

    /// Reports whether the folder was removed. No engine can find this keeper then.
    pub(super) fn was_removed(&self) -> bool {
        rustix::fs::fstat(&self.0).is_ok_and(|folder| folder.st_nlink == 0)
    }

    /// Errors are ignored: if this fails, the next engine finds that the keeper was lost.
    pub(super) fn write_end(&self, end: &EndRecord) {
        if let Ok(json) = serde_json::to_vec(end) {
            let _ = record::write_durably(&self.0, ENDED, &json);
        }
    }
}
