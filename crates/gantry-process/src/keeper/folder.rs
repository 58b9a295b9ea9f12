//! The folder of a session that can be detached: where its keeper leaves word for engines to come.

use std::io::Error;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use rustix::fs::{AtFlags, Mode};

use crate::record::{self, CONTROL, ENDED, EndRecord, SESSION};
use crate::session_key::SessionKey;

/// Locked by the engine that made it; the lock is ours from then on, and says that we live.
pub(super) struct Folder(pub(super) OwnedFd);

impl Folder {
    /// Leaves the record, a socket to come to, and the key to show there. The session is detached once this has
    /// succeeded.
    pub(super) fn detach(&self, record: &[u8]) -> Result<(UnixListener, SessionKey), Error> {
        let key = SessionKey::make_in(&self.0)?;
        // A path from here is short enough for a socket, wherever the folder lies.
        rustix::process::fchdir(&self.0)?;
        let listener = UnixListener::bind(CONTROL)?;
        // The folder keeps others out already; the socket says the same, whatever the umask.
        let owner = Mode::RUSR | Mode::WUSR;
        rustix::fs::chmodat(&self.0, CONTROL, owner, AtFlags::empty())?;
        listener.set_nonblocking(true)?;
        record::write(&self.0, SESSION, record)?;
        Ok((listener, key))
    }

    /// Makes the record outlast a power failure. Aside, because nobody has to wait for it.
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

    /// Whether somebody has removed it, and with it every way to find us.
    pub(super) fn was_removed(&self) -> bool {
        rustix::fs::fstat(&self.0).is_ok_and(|folder| folder.st_nlink == 0)
    }

    /// Where this fails there is nobody to tell; the next engine will find the session's keeper lost.
    pub(super) fn leave_end(&self, end: &EndRecord) {
        if let Ok(json) = serde_json::to_vec(end) {
            let _ = record::write_durably(&self.0, ENDED, &json);
        }
    }
}
