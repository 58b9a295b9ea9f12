//! The directory of logs. Each engine has its own, locked while the engine lives. The next engine
//! sweeps the directory of a dead one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Error;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::FlockOperation;
use uuid::Uuid;

use crate::error::ProcessError;
use crate::log::Log;
use crate::log::budget::LogBudget;
use crate::session::SessionId;

const PREFIX: &str = "engine-";

#[derive(Debug)]
pub(crate) struct LogDirectory {
    root: PathBuf,
    pub(crate) budget: Arc<LogBudget>,
    /// Created with the first log, so an engine that logs nothing leaves no trace.
    own: Mutex<Option<OwnDirectory>>,
}

#[derive(Debug)]
struct OwnDirectory {
    path: PathBuf,
    /// The lock shows that this engine is alive. The kernel releases it when the process ends.
    _lock: File,
}

impl LogDirectory {
    /// Also removes the logs of dead engines. What cannot be removed is left for the next engine.
    pub(crate) fn new(root: PathBuf, budget: Arc<LogBudget>) -> Self {
        if let Ok(lock) = File::open(&root)
            && rustix::fs::flock(&lock, FlockOperation::LockExclusive).is_ok()
        {
            sweep(&root);
        }
        Self { root, budget, own: Mutex::new(None) }
    }

    /// Creates a log, private to this user, and the file to write it to. This blocks, but only
    /// briefly.
    pub(crate) fn create(&self, id: SessionId) -> Result<(File, Log), ProcessError> {
        let directory = self.own().map_err(|cause| ProcessError::Log { path: self.root.clone(), cause })?;
        let path = directory.join(format!("{id}.log"));
        let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        match opened.and_then(|file| Ok((file.try_clone()?, file))) {
            Ok((reader, writer)) => Ok((writer, Log::new(reader, path, self.budget.reserve()))),
            Err(cause) => Err(ProcessError::Log { path, cause }),
        }
    }

    fn own(&self) -> Result<PathBuf, Error> {
        let mut own = self.own.lock().unwrap_or_else(|err| err.into_inner());
        if let Some(own) = &*own {
            return Ok(own.path.clone());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        // Held until the engine's own directory is locked too, so that no sweep can run in between.
        let root = File::open(&self.root)?;
        rustix::fs::flock(&root, FlockOperation::LockExclusive)?;
        let path = self.root.join(format!("{PREFIX}{}", Uuid::new_v4()));
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = File::open(&path)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        *own = Some(OwnDirectory { path: path.clone(), _lock: lock });
        Ok(path)
    }
}

impl Drop for LogDirectory {
    fn drop(&mut self) {
        if let Some(own) = self.own.get_mut().unwrap_or_else(|err| err.into_inner()) {
            let _ = std::fs::remove_dir_all(&own.path);
        }
    }
}

fn sweep(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        if let Ok(lock) = File::open(&path)
            && rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(root: &Path) -> LogDirectory {
        LogDirectory::new(root.to_owned(), LogBudget::new(0, 0))
    }

    #[test]
    fn logs_of_dead_engines_are_swept_and_live_ones_kept() {
        let root = tempfile::tempdir().unwrap();
        let living = directory(root.path());
        let living_log = living.create(SessionId::new()).unwrap().1.path;
        let dead = root.path().join("engine-dead");
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join("a.log"), "old").unwrap();
        std::fs::write(root.path().join("foreign"), "kept").unwrap();

        let second = directory(root.path());
        assert!(!dead.exists() && living_log.exists() && root.path().join("foreign").exists());
        let second_log = second.create(SessionId::new()).unwrap().1.path;
        drop(living);
        assert!(!living_log.exists() && second_log.exists());
    }
}
