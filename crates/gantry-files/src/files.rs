//! The door itself: what is closed, what is under way, and the scopes it hands out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::closed::Closed;
use crate::error::FileError;
use crate::handle::{self, FileId};
use crate::lock::Locks;
use crate::pending::Pending;
use crate::place::Tree;
use crate::scope::Scope;

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
        let real = self.real_dir(root)?;
        Ok(Scope::new(self.clone(), Tree::contained(root, &real)?, real))
    }

    /// A scope in which absolute paths mean what they say, and relative ones start at `base`.
    pub fn free(&self, base: &Path) -> Result<Scope, FileError> {
        let real = self.real_dir(base)?;
        Ok(Scope::new(self.clone(), Tree::free(&real)?, real))
    }

    /// Whether a directory (or file) met in a walk is closed itself. What lies inside it is not asked for.
    pub fn is_closed(&self, id: FileId) -> bool {
        self.closed_ids().contains(&id)
    }

    /// What is closed now, for walkers that ask often.
    pub fn closed_ids(&self) -> Vec<FileId> {
        self.inner.closed.ids()
    }

    fn real_dir(&self, path: &Path) -> Result<PathBuf, FileError> {
        let fail = |err| FileError::io("open", path, err);
        let real = std::fs::canonicalize(path).map_err(fail)?;
        let dir = handle::open_path_dir(&real).map_err(|err| FileError::io("open", path, err))?;
        self.inner.closed.check_dir(&dir, path)?;
        Ok(real)
    }
}
