//! A lock for changing a configuration file: a process holds it from reading the file to writing it.
//!
//! The folder is locked, not the file, because every change replaces the file. No lock file is left behind.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long to wait for the lock. A change takes milliseconds.
const WAIT_LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// Released when dropped, or when its process ends.
#[derive(Debug)]
pub struct ConfigLock {
    _folder: File,
}

impl ConfigLock {
    /// Waits until no other process changes the file.
    pub fn take(file: &Path) -> io::Result<ConfigLock> {
        let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let folder = real.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let opened = File::open(folder)?;
        let until = Instant::now() + WAIT_LIMIT;
        loop {
            match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
                // The file system has no locks on folders; the change goes on without one.
                Ok(()) | Err(Errno::BADF | Errno::NOTSUP | Errno::NOLCK | Errno::INVAL | Errno::NOSYS) => {
                    return Ok(ConfigLock { _folder: opened });
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => std::thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let message = "another command has been changing it for a while; try again";
                    return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
                }
                Err(err) => return Err(err.into()),
            }
        }
    }
}
