//! The directory of sessions that outlive their engine. Each session has a folder, and one engine
//! at a time owns them all.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Error, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::error::ProcessError;
use crate::session::SessionId;
use crate::session::folder::SessionFolder;

const NAME: &str = "sessions";
/// The engine locks this file, which holds its PID.
const LOCK: &str = "engine";

#[derive(Debug)]
pub(crate) struct SessionsDirectory {
    path: PathBuf,
    /// The kernel releases the lock when the process ends, however it ends.
    _lock: File,
}

impl SessionsDirectory {
    /// Fails while another engine uses the directory.
    pub(crate) fn open(log_dir: &Path) -> Result<Self, ProcessError> {
        let path = log_dir.join(NAME);
        let failed = |cause| ProcessError::Log { path: path.clone(), cause };
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = Read::take(&lock, 32).read_to_string(&mut holder);
                return Err(ProcessError::InUse { path, holder: holder.trim().to_owned() });
            }
            Err(err) => return Err(failed(err.into())),
        }
        write_number(&mut lock).map_err(failed)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn folder(&self, id: SessionId) -> PathBuf {
        self.path.join(id.to_string())
    }

    /// Lists every folder whose name is a session id.
    pub(crate) fn folders(&self) -> Result<Vec<(SessionId, SessionFolder)>, ProcessError> {
        folders(&self.path).map_err(|cause| ProcessError::Log { path: self.path.clone(), cause })
    }
}

fn folders(path: &Path) -> Result<Vec<(SessionId, SessionFolder)>, Error> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(id) = id.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            folders.push((id, SessionFolder::at(entry.path())));
        }
    }
    Ok(folders)
}

/// Counts the sessions of a directory whose keeper is alive, whether or not an engine runs there.
/// It creates and locks nothing.
pub fn living_sessions(log_dir: &Path) -> usize {
    let folders = folders(&log_dir.join(NAME)).unwrap_or_default();
    folders.iter().filter(|(_, folder)| folder.keeper_lives()).count()
}

/// Moves the sessions of one engine's directory to another directory, and returns how many. Fails
/// while an engine uses either directory. The keepers do not notice, because they hold handles of
/// their folders, not names.
pub fn move_sessions(from: &Path, to: &Path) -> Result<usize, ProcessError> {
    let (from, to) = (SessionsDirectory::open(from)?, SessionsDirectory::open(to)?);
    let folders = from.folders()?;
    for (id, folder) in &folders {
        let target = to.folder(*id);
        let failed = |cause| ProcessError::Log { path: target.clone(), cause };
        std::fs::rename(folder.path(), &target).map_err(failed)?;
    }
    Ok(folders.len())
}

fn write_number(lock: &mut File) -> Result<(), Error> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}
