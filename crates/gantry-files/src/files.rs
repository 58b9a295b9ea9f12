//! The door itself: what is closed, what is under way, and the scopes it hands out.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

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
    /// The handle of `/`, from which every free path is walked.
    top: Arc<OwnedFd>,
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
        let top = Path::new("/");
        let top = handle::open_path_dir(top).map_err(|err| FileError::io("open", top, err))?;
        Ok(Files { inner: Arc::new(Inner { closed, locks: Locks::new(), pending, top: Arc::new(top) }) })
    }

    /// A scope in which every path stays beneath `root`.
    pub fn contained(&self, root: &Path) -> Result<Scope, FileError> {
        let OpenDir { fd, path } = self.base(root)?;
        self.inner.closed.check_dir(&fd, root)?;
        Ok(Scope::new(self.clone(), Tree::contained(root, &path, fd), path))
    }

    /// A scope in which absolute paths mean what they say, and relative ones start at `base`. The base is but the
    /// beginning of a path: whether it is closed is asked of every place that is reached from it.
    pub fn free(&self, base: &Path) -> Result<Scope, FileError> {
        let OpenDir { path, .. } = self.base(base)?;
        Ok(Scope::new(self.clone(), Tree::free(self.inner.top.clone(), &path), path))
    }

    /// What is closed now, for walkers that ask often.
    pub(crate) fn closed_ids(&self) -> Vec<FileId> {
        self.inner.closed.ids()
    }

    /// Opens a directory by its names from `/`, following no link.
    pub(crate) fn open_plain_dir(&self, names: &[OsString]) -> Result<OwnedFd, Errno> {
        handle::open_beneath(self.inner.top.as_fd(), names)
    }

    /// Opens the directory a scope starts from, by handle, so that its path is the one of what was opened.
    fn base(&self, given: &Path) -> Result<OpenDir, FileError> {
        let fail = |err| FileError::io("open", given, err);
        let absolute = std::path::absolute(given).map_err(|err| FileError::io("open", given, err))?;
        let top = Path::new("/");
        // The common case: no link on the way, and nothing to walk by hand.
        let names: Option<Vec<OsString>> = absolute.components().skip(1).map(plain_name).collect();
        if let Some(names) = names
            && let Ok(fd) = handle::open_beneath(self.inner.top.as_fd(), &names)
        {
            return Ok(OpenDir {
                fd,
                path: top.iter().chain(names.iter().map(OsString::as_os_str)).collect(),
            });
        }
        let tree = Tree::free(self.inner.top.clone(), top);
        let place = tree.place(&absolute, LastLink::Follow, Missing::Refuse)?;
        let fd = match &place.name {
            None => place.dir,
            Some(name) => handle::open_child_dir(&place.dir, name).map_err(fail)?,
        };
        Ok(OpenDir { fd, path: place.path })
    }
}

fn plain_name(component: Component<'_>) -> Option<OsString> {
    match component {
        Component::Normal(name) => Some(name.into()),
        _ => None,
    }
}
