//! The log of a session that is starting. If sessions can be detached, the log gets its own folder.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::ProcessError;
use crate::log::Log;
use crate::log::directory::LogDirectory;
use crate::session::SessionId;
use crate::session::directory::SessionsDirectory;
use crate::session::folder::SessionFolder;

/// `StartingLog` removes the log on drop unless it is kept, because a log of a command that never
/// started is useless.
pub(crate) struct StartingLog {
    pub(crate) log: Arc<Log>,
    pub(crate) folder: Option<Arc<SessionFolder>>,
    keep: bool,
}

impl StartingLog {
    /// Also returns the file to write to and the folder's handle for the keeper. This blocks, but
    /// only briefly.
    pub(crate) fn create(
        logs: &LogDirectory,
        sessions_directory: Option<&SessionsDirectory>,
        id: SessionId,
    ) -> Result<(File, Option<OwnedFd>, Self), ProcessError> {
        let Some(directory) = sessions_directory else {
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

impl Drop for StartingLog {
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
