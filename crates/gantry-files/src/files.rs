//! The door itself: what is closed, what is under way, and the scopes it hands out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::closed::Closed;
use crate::error::FileError;
use crate::handle::{self, FileId};
use crate::lock::Locks;
use crate::pending::Pending;
use crate::place::{LastLink, Missing, Tree};
use crate::scope::{OpenDir, Scope};

/// The door to files. Cheap to clone; clones share locks, so one process should have one.
#[derive(Debug, Clone)]
pub struct Files {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) closed: Closed,
    pub(crate) locks: Locks,
    pub(crate) pending: Pending,
}

#[derive(Debug, Clone, Default)]
pub struct FilesOptions {
    /// Absolute paths of directories and files that no scope may touch. They need not exist yet.
    pub closed: Vec<PathBuf>,
    /// Where temp files under way are recorded, so that the next start removes what a killed process left.
    pub pending_dir: Option<PathBuf>,
}

impl Files {
    /// Opens the door, after removing the temp files of processes that died.
    pub fn new(options: FilesOptions) -> Result<Files, FileError> {
        let pending = Pending::open(options.pending_dir.as_deref())?;
        let closed = Closed::new(&options.closed)?;
        Ok(Files { inner: Arc::new(Inner { closed, locks: Locks::new(), pending }) })
    }

    /// A scope in which every path stays beneath `root`.
    pub fn contained(&self, root: &Path) -> Result<Scope, FileError> {
        let OpenDir { fd, path } = self.base(root)?;
        Ok(Scope::new(self.clone(), Tree::contained(root, &path, fd), path))
    }

    /// A scope in which absolute paths mean what they say, and relative ones start at `base`.
    pub fn free(&self, base: &Path) -> Result<Scope, FileError> {
        let OpenDir { path, .. } = self.base(base)?;
        Ok(Scope::new(self.clone(), Tree::free(&path)?, path))
    }

    /// What is closed now, for walkers that ask often.
    pub(crate) fn closed_ids(&self) -> Vec<FileId> {
        self.inner.closed.ids()
    }

    /// Opens the directory a scope starts from, by handle, so that its path is the one of what was opened.
    fn base(&self, given: &Path) -> Result<OpenDir, FileError> {
        let fail = |err| FileError::io("open", given, err);
        let absolute = std::path::absolute(given).map_err(|err| FileError::io("open", given, err))?;
        let place = Tree::free(Path::new("/"))?.place(&absolute, LastLink::Follow, Missing::Refuse)?;
        let fd = match &place.name {
            None => place.dir,
            Some(name) => handle::open_child_dir(&place.dir, name).map_err(fail)?,
        };
        self.inner.closed.check_dir(&fd, given)?;
        Ok(OpenDir { fd, path: place.path })
    }
}
