//! Lists the content of a directory, entry by entry, so that it can be sent and recreated
//! elsewhere.
//!
//! Links are sent as links and never walked through. An entry that cannot be sent is a
//! [`ManifestKind::Skipped`] with the reason, so that a copy never looks more complete than it is.
//! Memory holds the names of one directory per level.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::FileError;
use crate::handle::{self, FileId};
use crate::place::{LastLink, Missing};
use crate::replace::file_name;
use crate::scope::{FileMeta, OpenDir, Scope};

/// Deeper directories are skipped, because each level holds a handle.
const MAX_DEPTH: usize = 128;
/// A directory with more names is an error, because names are sorted in memory.
const MAX_NAMES: usize = 1_000_000;
const MAX_TARGET_BYTES: usize = 4096;

/// `Manifest` iterates over the entries below a directory: parents before their content, names in
/// byte order.
#[derive(Debug)]
pub struct Manifest {
    scope: Scope,
    root: PathBuf,
    closed: Vec<FileId>,
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    dir: OwnedFd,
    /// The path from the root: empty, or with a final slash.
    prefix: String,
    /// In reverse order; the last one is next.
    names: Vec<OsString>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The path below the directory, with `/` between names.
    pub path: String,
    pub kind: ManifestKind,
    /// The permission bits; for a directory also the sticky bit.
    pub mode: u32,
    /// The bytes of a file; 0 for other entries.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: i128,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestKind {
    File,
    Directory,
    Symlink { target: String },
    Skipped { reason: String },
}

impl Scope {
    /// Starts to walk a directory.
    pub fn manifest(self, path: impl AsRef<Path>) -> Result<Manifest, FileError> {
        let OpenDir { fd, path } = self.open_dir(path)?;
        let closed = self.files.closed_ids();
        let names = names_in(&fd, &path)?;
        let levels = vec![Level { dir: fd, prefix: String::new(), names }];
        Ok(Manifest { scope: self, root: path, closed, levels })
    }

    /// Creates a symbolic link of a received tree. `relative` and `target` come from a manifest. A
    /// target that leaves the tree is refused, and so is a name that is taken by another file.
    pub fn make_link(&self, tree: &Path, relative: &str, target: &str) -> Result<(), FileError> {
        let asked = tree.join(relative);
        check_relative(relative).and_then(|()| check_target(relative, target)).map_err(|reason| {
            FileError::io(
                "create the link",
                &asked,
                std::io::Error::new(std::io::ErrorKind::InvalidInput, reason),
            )
        })?;
        let fail = |err: Errno| FileError::io("create the link", &asked, err);
        let place = self.place(&asked, LastLink::Keep, Missing::Make)?;
        let name = file_name(&place, &asked)?;
        match rustix::fs::symlinkat(target, &place.dir, name) {
            Ok(()) => handle::sync_dir(&place.dir).map_err(fail),
            Err(Errno::EXIST)
                if handle::read_link(&place.dir, name).map_err(fail)?.as_deref()
                    == Some(target.as_bytes()) =>
            {
                Ok(())
            }
            Err(err) => Err(fail(err)),
        }
    }

    /// Sets the permission bits and the sticky bit of a received directory. Callers do this last,
    /// because the mode may forbid writing into the directory.
    pub fn set_directory_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<(), FileError> {
        let OpenDir { fd, path } = self.open_dir(path)?;
        let mode = Mode::from_raw_mode((mode & 0o1777) as rustix::fs::RawMode);
        rustix::fs::fchmod(&fd, mode).map_err(|err| FileError::io("set the mode of", &path, err))
    }
}

impl Manifest {
    /// The real absolute path of the directory that is walked.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn entry(&mut self, level: usize, name: &OsStr) -> Option<Result<ManifestEntry, FileError>> {
        let Level { dir, prefix, .. } = &self.levels[level];
        let lossy = format!("{prefix}{}", name.to_string_lossy());
        let stat = match handle::stat_at(dir, name) {
            Ok(stat) => stat,
            // The entry disappeared since its directory was read, so it is not part of the tree.
            Err(Errno::NOENT) => return None,
            Err(err) => return Some(Ok(skipped(lossy, unreadable(err)))),
        };
        let Some(name_text) = name.to_str() else {
            return Some(Ok(skipped(lossy, "its name is not valid UTF-8".to_owned())));
        };
        let path = format!("{prefix}{name_text}");
        if self.scope.is_refusing() && self.scope.refuses(&self.root.join(&path)) {
            return Some(Ok(skipped(path, "it may hold keys or credentials".to_owned())));
        }
        let meta = FileMeta::of(&stat);
        if self.closed.contains(&meta.id) {
            return Some(Ok(skipped(path, "it belongs to Gantry itself".to_owned())));
        }
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(ManifestKind::File),
            FileType::Symlink => link(dir, name, &path),
            FileType::Directory => open_below(dir, name).and_then(|fd| {
                if self.levels.len() >= MAX_DEPTH {
                    return Err(format!("it is more than {MAX_DEPTH} directories deep"));
                }
                let names = names_in(&fd, &self.root.join(&path)).map_err(|err| err.to_string())?;
                self.levels.push(Level { dir: fd, prefix: format!("{path}/"), names });
                Ok(ManifestKind::Directory)
            }),
            _ => Err(format!("it is {}", handle::kind_name(&stat).unwrap_or("not a file"))),
        };
        Some(Ok(match kind {
            Ok(kind) => {
                let size = if kind == ManifestKind::File { meta.size } else { 0 };
                // In a directory that everybody may write to, the sticky bit prevents users from
                // removing each other's files.
                let bits = if kind == ManifestKind::Directory { 0o1777 } else { 0o777 };
                ManifestEntry { path, kind, mode: meta.mode & bits, size, modified_ns: meta.modified_ns }
            }
            Err(reason) => skipped(path, reason),
        }))
    }
}

impl Iterator for Manifest {
    type Item = Result<ManifestEntry, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let level = self.levels.len().checked_sub(1)?;
            let Some(name) = self.levels[level].names.pop() else {
                self.levels.pop();
                continue;
            };
            if let Some(entry) = self.entry(level, &name) {
                return Some(entry);
            }
        }
    }
}

fn skipped(path: String, reason: String) -> ManifestEntry {
    ManifestEntry { path, kind: ManifestKind::Skipped { reason }, mode: 0, size: 0, modified_ns: 0 }
}

fn open_below(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(unreadable)
}

fn unreadable(err: Errno) -> String {
    format!("it cannot be read: {err}")
}

fn link(dir: &OwnedFd, name: &OsStr, path: &str) -> Result<ManifestKind, String> {
    let target = handle::read_link(dir, name).map_err(unreadable)?.unwrap_or_default();
    let target = String::from_utf8(target).map_err(|_| "its target is not valid UTF-8".to_owned())?;
    check_target(path, &target)?;
    Ok(ManifestKind::Symlink { target })
}

/// Checks that a link at `path` of a tree stays in the tree. After its leading `..` a target may
/// only go down, so that no other link on its way can redirect it.
fn check_target(path: &str, target: &str) -> Result<(), String> {
    if target.is_empty() || target.len() > MAX_TARGET_BYTES || target.contains('\0') {
        return Err("it is a link without a usable target".to_owned());
    }
    let mut height = path.matches('/').count();
    let mut descending = false;
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir if height > 0 && !descending => height -= 1,
            Component::Normal(_) => descending = true,
            Component::CurDir => {}
            _ => return Err(format!("it is a link that leaves the directory: {target}")),
        }
    }
    Ok(())
}

/// Checks that a path of a received manifest stays below its tree.
fn check_relative(path: &str) -> Result<(), String> {
    let plain = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains('\0');
    if path.split('/').all(plain) {
        Ok(())
    } else {
        Err(format!("{path:?} is not a relative path below the directory"))
    }
}

/// Returns the names in a directory, in reverse order.
fn names_in(dir: &OwnedFd, path: &Path) -> Result<Vec<OsString>, FileError> {
    let fail = |err| FileError::io("list", path, err);
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let bytes = entry.file_name().to_bytes();
        if bytes != b"." && bytes != b".." {
            names.push(OsString::from_vec(bytes.to_vec()));
        }
        if names.len() > MAX_NAMES {
            let message = format!("it holds more than {MAX_NAMES} entries");
            return Err(FileError::io("list", path, std::io::Error::other(message)));
        }
    }
    names.sort_unstable_by(|one, other| other.as_bytes().cmp(one.as_bytes()));
    Ok(names)
}
