//! Where sessions that outlive their engine live: one folder each, and one engine at a time for all of them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Error, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::error::ProcessError;
use crate::session::SessionId;
use crate::session_folder::SessionFolder;

const NAME: &str = "sessions";
/// Locked by the engine, whose number it holds.
const LOCK: &str = "engine";

#[derive(Debug)]
pub(crate) struct SessionsDirectory {
    path: PathBuf,
    /// The kernel drops it with us, however we end.
    _lock: File,
}

impl SessionsDirectory {
    /// Refuses while another engine has it.
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

    /// Every folder that goes by the name of a session.
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

/// How many sessions of a directory have a keeper that lives, whether an engine runs there or not. Nothing is made or taken.
pub fn living_sessions(log_dir: &Path) -> usize {
    let folders = folders(&log_dir.join(NAME)).unwrap_or_default();
    folders.iter().filter(|(_, folder)| folder.keeper_lives()).count()
}

/// Moves sessions that one engine left to the directory of another, and says how many. Refuses while an engine has either
/// directory. Their keepers do not notice: they hold their folders, not their names.
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
