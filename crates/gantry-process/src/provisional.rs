//! The log of a session that is about to start, in a folder of its own where sessions can be detached.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::ProcessError;
use crate::log::Log;
use crate::log_directory::LogDirectory;
use crate::session::SessionId;
use crate::session_folder::SessionFolder;
use crate::sessions_directory::SessionsDirectory;

/// Removed again unless it is kept: a log whose command never started is of no use to anyone.
pub(crate) struct Provisional {
    pub(crate) log: Arc<Log>,
    pub(crate) folder: Option<Arc<SessionFolder>>,
    keep: bool,
}

impl Provisional {
    /// Also gives the file to write to and, for its keeper, the handle of the folder. Blocking, but short.
    pub(crate) fn create(
        logs: &LogDirectory,
        surviving: Option<&SessionsDirectory>,
        id: SessionId,
    ) -> Result<(File, Option<OwnedFd>, Self), ProcessError> {
        let Some(directory) = surviving else {
            let (file, log) = logs.create(id)?;
            return Ok((file, None, Self { log: Arc::new(log), folder: None, keep: false }));
        };
        let path = directory.folder(id);
        let failed = |cause| ProcessError::Log { path: path.clone(), cause };
        let (folder, handle) = SessionFolder::create(path.clone()).map_err(failed)?;
        let made = folder.create_log().and_then(|file| Ok((file.try_clone()?, file)));
        let (reader, file) = made.map_err(|source| {
            folder.remove();
            failed(source)
        })?;
        let log = Arc::new(Log::new(reader, folder.log(), logs.budget.reserve()));
        Ok((file, Some(handle), Self { log, folder: Some(Arc::new(folder)), keep: false }))
    }

    pub(crate) fn keep(mut self) -> (Arc<Log>, Option<Arc<SessionFolder>>) {
        self.keep = true;
        (Arc::clone(&self.log), self.folder.clone())
    }
}

impl Drop for Provisional {
    fn drop(&mut self) {
        match &self.folder {
            _ if self.keep => {}
            Some(folder) => folder.remove(),
            None => {
                let _ = std::fs::remove_file(&self.log.path);
            }
        }
    }
}
