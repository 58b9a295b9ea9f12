//! Directories and files that no tool may touch, recognised by handle and not by path text.
//!
//! Whatever path led to a directory, walking up from its open handle meets the identity of the
//! closed directory. Two cases are not detected: a bind mount of a directory *inside* a closed one,
//! and a second hard link to a file inside it. Creating either takes access that the sandbox
//! already refuses.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use crate::error::FileError;
use crate::handle::{self, FileId};
use crate::place::Place;

/// A handle deeper than this is refused, so that the walk up stays bounded.
const MAX_DEPTH: usize = 4096;

/// How many levels one handle covers. A `../` path costs one system call a level, not three (open,
/// stat, close). The kernel limits the length of a path.
const LEVELS_AT_ONCE: usize = 16;
const UP: &str = "../../../../../../../../../../../../../../../../";

#[derive(Debug, Default)]
pub(crate) struct Closed {
    entries: Vec<ClosedPath>,
}

#[derive(Debug)]
struct ClosedPath {
    /// The path as configured. It is resolved at each check, because the entry may be created or
    /// replaced later.
    path: PathBuf,
    /// Held open, so that its inode number cannot be reused.
    held: Option<(OwnedFd, FileId)>,
    /// The nearest existing ancestor at the start, and the names from there.
    ancestor: FileId,
    below: Vec<OsString>,
}

impl Closed {
    pub(crate) fn new(paths: &[PathBuf]) -> Result<Closed, FileError> {
        paths
            .iter()
            .map(|path| ClosedPath::new(path))
            .collect::<Result<_, _>>()
            .map(|entries| Closed { entries })
    }

    /// Returns the identities that are closed at this moment.
    pub(crate) fn ids(&self) -> Vec<FileId> {
        let mut ids = Vec::new();
        for entry in &self.entries {
            ids.extend(entry.held.as_ref().map(|(_, id)| *id));
            let now = rustix::fs::statat(CWD, &entry.path, AtFlags::empty());
            ids.extend(now.ok().as_ref().map(FileId::of));
        }
        ids.dedup();
        ids
    }

    /// Refuses a place in a closed directory, and one that would become a closed path once created.
    pub(crate) fn check_place(&self, place: &Place) -> Result<(), FileError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let ids = self.ids();
        if let Some(Ok(stat)) = place.stat()
            && ids.contains(&FileId::of(&stat))
        {
            return Err(FileError::Closed { path: place.path.clone() });
        }
        let names: Vec<&OsStr> = place.all_names().map(OsString::as_os_str).collect();
        self.check(&ids, &place.dir, &names, place.names.len(), &place.path)
    }

    /// Refuses a directory that is closed or is inside a closed one.
    pub(crate) fn check_dir(&self, dir: &OwnedFd, path: &Path) -> Result<(), FileError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.check(&self.ids(), dir, &[], 0, path)
    }

    /// Refuses a closed single file, whatever its name here is.
    pub(crate) fn check_id(&self, id: FileId, path: &Path) -> Result<(), FileError> {
        if !self.entries.is_empty() && self.ids().contains(&id) {
            return Err(FileError::Closed { path: path.into() });
        }
        Ok(())
    }

    /// Refuses to move a directory that contains a closed one.
    pub(crate) fn check_contains_none(&self, moved: FileId, path: &Path) -> Result<(), FileError> {
        for entry in &self.entries {
            if entry.ancestor == moved {
                return Err(FileError::Closed { path: path.into() });
            }
            let Some(parent) = entry.path.parent() else { continue };
            let Ok(dir) = handle::open_path_dir(parent) else { continue };
            let above = ancestors(&dir).map_err(|err| FileError::io("check", path, err))?;
            if above.contains(&moved) {
                return Err(FileError::Closed { path: path.into() });
            }
        }
        Ok(())
    }

    /// `ids` are closed. `names` lead from the tree's root to the place, the first `depth` of them
    /// to `dir`.
    fn check(
        &self,
        ids: &[FileId],
        dir: &OwnedFd,
        names: &[&OsStr],
        depth: usize,
        path: &Path,
    ) -> Result<(), FileError> {
        let refused = || FileError::Closed { path: path.into() };
        let above = ancestors(dir).map_err(|err| FileError::io("check", path, err))?;
        for (height, id) in above.into_iter().enumerate() {
            if ids.contains(&id) {
                return Err(refused());
            }
            let below = depth.checked_sub(height).and_then(|from| names.get(from..));
            let would_be_closed = |entry: &ClosedPath| {
                entry.ancestor == id && below.is_some_and(|below| starts_with(below, &entry.below))
            };
            if self.entries.iter().any(would_be_closed) {
                return Err(refused());
            }
        }
        Ok(())
    }
}

impl ClosedPath {
    fn new(path: &Path) -> Result<ClosedPath, FileError> {
        let fail = |err| FileError::io("open", path, err);
        let held = match handle::open_any(path) {
            Ok(fd) => {
                let id = handle::id_of(&fd).map_err(fail)?;
                Some((fd, id))
            }
            Err(Errno::NOENT) => None,
            Err(err) => return Err(fail(err)),
        };
        // This also applies to existing entries: if one is removed, its successor of the same name
        // is closed too.
        let mut below: Vec<OsString> = Vec::new();
        let mut ancestor = path;
        loop {
            let (Some(parent), Some(name)) = (ancestor.parent(), ancestor.file_name()) else {
                return Err(fail(Errno::INVAL));
            };
            below.insert(0, name.into());
            ancestor = parent;
            if let Ok(stat) = rustix::fs::statat(CWD, ancestor, AtFlags::empty()) {
                return Ok(ClosedPath { path: path.into(), held, ancestor: FileId::of(&stat), below });
            }
        }
    }
}

/// Reports whether an open directory is one of `closed` or inside one. An error counts as closed.
pub(crate) fn lies_in(closed: &[FileId], dir: impl AsFd) -> bool {
    !closed.is_empty() && ancestors(dir).map_or(true, |above| above.iter().any(|id| closed.contains(id)))
}

/// Returns the identities of a directory and of everything above it, by climbing from its handle.
fn ancestors(dir: impl AsFd) -> Result<Vec<FileId>, Errno> {
    let mut ids = vec![handle::id_of(&dir)?];
    let mut from = None;
    while ids.len() < MAX_DEPTH {
        for levels in 1..=LEVELS_AT_ONCE {
            let up = &UP[..levels * "../".len() - 1];
            let from = from.as_ref().map_or(dir.as_fd(), OwnedFd::as_fd);
            let id = FileId::of(&rustix::fs::statat(from, up, AtFlags::empty())?);
            // The top directory is its own parent.
            if ids.last() == Some(&id) {
                return Ok(ids);
            }
            ids.push(id);
        }
        from = Some(handle::open_place(from.as_ref().map_or(dir.as_fd(), OwnedFd::as_fd), UP)?);
    }
    Err(Errno::NAMETOOLONG)
}

fn starts_with(names: &[&OsStr], prefix: &[OsString]) -> bool {
    names.len() >= prefix.len() && names.iter().zip(prefix).all(|(name, wanted)| name == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At any depth, every directory on the way is met once, in order.
    #[test]
    fn climbing_visits_every_parent_in_order() {
        assert_eq!(UP.len(), LEVELS_AT_ONCE * "../".len());
        let dir = tempfile::tempdir().unwrap();
        let mut path = dir.path().canonicalize().unwrap();
        for level in 0..3 * LEVELS_AT_ONCE + 1 {
            path.push(level.to_string());
            std::fs::create_dir(&path).unwrap();
            let handle = handle::open_path_dir(&path).unwrap();
            let by_name: Vec<FileId> = path
                .ancestors()
                .map(|path| handle::id_of(handle::open_path_dir(path).unwrap()).unwrap())
                .collect();
            assert_eq!(ancestors(&handle).unwrap(), by_name, "{level}");
        }
    }
}
