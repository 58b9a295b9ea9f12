//! `Files` holds the closed paths, the locks and the records of temp files, and hands out scopes.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::closed_paths::Closed;
use crate::error::FileError;
use crate::handle::{self, FileId};
use crate::lock::Locks;
use crate::place::{LastLink, Missing, Tree};
use crate::scope::{OpenDir, Scope};
use crate::temp_records::Pending;

/// `Files` is the entry point of this crate. Clones are cheap and share locks, so a process should
/// have one for each pending directory.
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
    /// The directory where temp files are recorded, so that the next start removes what a killed
    /// process left. Engines with the same directory write a file one at a time.
    pub pending_dir: Option<PathBuf>,
}

impl Files {
    /// Creates the engine, after removing the temp files of dead processes.
    pub fn new(options: FilesOptions) -> Result<Files, FileError> {
        let pending = Pending::open(options.pending_dir.as_deref())?;
        let locks = pending.locks_folder()?;
        let closed = Closed::new(&options.closed)?;
        let top = Path::new("/");
        let top = handle::open_path_dir(top).map_err(|err| FileError::io("open", top, err))?;
        Ok(Files {
            inner: Arc::new(Inner {
                closed,
                locks: Locks::new(locks.as_deref()),
                pending,
                top: Arc::new(top),
            }),
        })
    }

    /// Returns a scope in which every path stays beneath `root`.
    pub fn contained(&self, root: &Path) -> Result<Scope, FileError> {
        let OpenDir { fd, path } = self.base(root)?;
        self.inner.closed.check_dir(&fd, root)?;
        Ok(Scope::new(self.clone(), Tree::contained(root, &path, fd), path))
    }

    /// Returns a scope that accepts all absolute paths, and resolves relative ones from `base`. The
    /// base may itself be closed: the check applies to every place that is reached from it.
    pub fn free(&self, base: &Path) -> Result<Scope, FileError> {
        let OpenDir { fd, path } = self.base(base)?;
        Ok(Scope::new(self.clone(), Tree::free(self.inner.top.clone(), &path, Arc::new(fd)), path))
    }

    /// Returns what is closed now, for walkers that check often.
    pub(crate) fn closed_ids(&self) -> Vec<FileId> {
        self.inner.closed.ids()
    }

    /// Opens a directory by its names from `/`, following no link.
    pub(crate) fn open_plain_dir(&self, names: &[OsString]) -> Result<OwnedFd, Errno> {
        handle::open_beneath(self.inner.top.as_fd(), names)
    }

    /// Opens the directory that a scope starts from, by handle, so that its path is that of the
    /// opened directory.
    fn base(&self, given: &Path) -> Result<OpenDir, FileError> {
        let fail = |err| FileError::io("open", given, err);
        let absolute = std::path::absolute(given).map_err(|err| FileError::io("open", given, err))?;
        let top = Path::new("/");
        // The common case: there is no link on the way, and nothing to walk by hand.
        let names: Option<Vec<OsString>> = absolute.components().skip(1).map(plain_name).collect();
        if let Some(names) = names
            && let Ok(fd) = handle::open_beneath(self.inner.top.as_fd(), &names)
        {
            return Ok(OpenDir {
                fd,
                path: top.iter().chain(names.iter().map(OsString::as_os_str)).collect(),
            });
        }
        let tree = Tree::free(self.inner.top.clone(), top, self.inner.top.clone());
        let place = tree.place(&absolute, LastLink::Follow, Missing::Refuse)?;
        let fd = match &place.name {
            None => handle::same_dir(&place.dir),
            Some(name) => handle::open_child_dir(&place.dir, name),
        };
        let fd = fd.map_err(fail)?;
        Ok(OpenDir { fd, path: place.path })
    }
}

fn plain_name(component: Component<'_>) -> Option<OsString> {
    match component {
        Component::Normal(name) => Some(name.into()),
        _ => None,
    }
}
