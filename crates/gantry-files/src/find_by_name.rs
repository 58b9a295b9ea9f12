//! Finds files below a directory whose names pass a test, by handle and in path order.
//!
//! It serves changes to many files at once, so it is careful. Links are neither walked through nor
//! found, and `.git` and closed directories are not entered. Depth and number are bounded, and
//! everything left out is counted.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use crate::error::FileError;
use crate::handle::{self, FileId};
use crate::scope::{FileMeta, Scope};

/// A walk examines at most this many entries.
const MAX_SEEN: usize = 1_000_000;

#[derive(Clone, Copy)]
pub struct FindByName<'a> {
    /// Decides which file names are wanted. It is not asked about names that are not valid UTF-8.
    pub wanted: &'a dyn Fn(&str) -> bool,
    /// Decides which files and directories, by real path, are skipped.
    pub skip: &'a dyn Fn(&Path) -> bool,
    /// How many levels of directories below the first one are entered.
    pub depth: usize,
    /// The walk ends when it finds more files than this.
    pub limit: usize,
    pub cancelled: &'a AtomicBool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct FoundFiles {
    /// The real absolute path of the directory.
    pub directory: PathBuf,
    pub files: Vec<FoundFile>,
    /// The result is incomplete: there are more files than the limit, or too many entries.
    pub truncated: bool,
    /// How many links have a wanted name.
    pub links: usize,
    /// How many entries `skip` excluded.
    pub skipped: usize,
    /// How many files have a name that is not valid UTF-8.
    pub odd_names: usize,
    /// How many directories are too deep.
    pub too_deep: usize,
    /// How many directories could not be read.
    pub unreadable: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// The real absolute path.
    pub path: PathBuf,
    pub name: String,
    pub meta: FileMeta,
}

impl Scope {
    /// Finds the files of a directory, and of those below it, whose names are wanted.
    pub fn find_by_name(
        &self,
        directory: impl AsRef<Path>,
        options: FindByName<'_>,
    ) -> Result<FoundFiles, FileError> {
        let directory = self.open_dir(directory.as_ref())?;
        let found = FoundFiles { directory: directory.path.clone(), ..FoundFiles::default() };
        let mut walk = NameWalk { options, closed: self.files.closed_ids(), seen: 0, found };
        match walk.directory(&directory.fd, &directory.path, 0) {
            Ok(()) => Ok(walk.found),
            Err(Stop::Cancelled) => Err(FileError::Cancelled),
            Err(Stop::Unreadable(err)) => Err(FileError::io("list", &directory.path, err)),
            Err(Stop::Full) => {
                walk.found.truncated = true;
                Ok(walk.found)
            }
        }
    }
}

struct NameWalk<'a> {
    options: FindByName<'a>,
    closed: Vec<FileId>,
    seen: usize,
    found: FoundFiles,
}

enum Stop {
    Cancelled,
    Full,
    Unreadable(Errno),
}

impl NameWalk<'_> {
    fn directory(&mut self, dir: &OwnedFd, path: &Path, level: usize) -> Result<(), Stop> {
        for name in self.names(dir)? {
            if self.options.cancelled.load(Ordering::Relaxed) {
                return Err(Stop::Cancelled);
            }
            // The entry disappeared since the directory was read.
            let Ok(stat) = handle::stat_at(dir, &name) else { continue };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.below(dir, path, &name, level)?,
                FileType::RegularFile => self.file(path, name, FileMeta::of(&stat))?,
                FileType::Symlink => {
                    self.found.links += usize::from(name.to_str().is_some_and(self.options.wanted));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn names(&mut self, dir: &OwnedFd) -> Result<Vec<OsString>, Stop> {
        let mut names = Vec::new();
        for entry in Dir::read_from(dir).map_err(Stop::Unreadable)? {
            let entry = entry.map_err(Stop::Unreadable)?;
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            self.seen += 1;
            if self.seen > MAX_SEEN {
                return Err(Stop::Full);
            }
            names.push(OsString::from_vec(bytes.to_vec()));
        }
        names.sort();
        Ok(names)
    }

    fn file(&mut self, parent: &Path, name: OsString, meta: FileMeta) -> Result<(), Stop> {
        let path = parent.join(&name);
        let Ok(name) = name.into_string() else {
            self.found.odd_names += 1;
            return Ok(());
        };
        if !(self.options.wanted)(&name) || self.closed.contains(&meta.id) {
            return Ok(());
        }
        if (self.options.skip)(&path) {
            self.found.skipped += 1;
            return Ok(());
        }
        if self.found.files.len() >= self.options.limit {
            return Err(Stop::Full);
        }
        self.found.files.push(FoundFile { path, name, meta });
        Ok(())
    }

    fn below(&mut self, dir: &OwnedFd, parent: &Path, name: &OsString, level: usize) -> Result<(), Stop> {
        let path = parent.join(name);
        if name == ".git" {
            return Ok(());
        }
        if (self.options.skip)(&path) {
            self.found.skipped += 1;
            return Ok(());
        }
        if level >= self.options.depth {
            self.found.too_deep += 1;
            return Ok(());
        }
        let child = match handle::open_child_dir(dir, name).and_then(handle::readable) {
            Ok(child) => child,
            // The entry was removed or replaced since the directory was read.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => return Ok(()),
            Err(_) => {
                self.found.unreadable += 1;
                return Ok(());
            }
        };
        if handle::id_of(&child).map_or(true, |id| self.closed.contains(&id)) {
            return Ok(());
        }
        match self.directory(&child, &path, level + 1) {
            Err(Stop::Unreadable(_)) => {
                self.found.unreadable += 1;
                Ok(())
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::{Files, FilesOptions};

    fn find_by_name(root: &Path, closed: &str, depth: usize, limit: usize) -> (Vec<String>, FoundFiles) {
        let files = Files::new(FilesOptions { closed: vec![root.join(closed)], pending_dir: None }).unwrap();
        let options = FindByName {
            wanted: &|name| name.ends_with(".txt"),
            skip: &|path| path.ends_with("private") || path.ends_with("secret.txt"),
            depth,
            limit,
            cancelled: &AtomicBool::new(false),
        };
        let mut found = files.free(root).unwrap().find_by_name(".", options).unwrap();
        let paths = std::mem::take(&mut found.files).into_iter();
        (paths.map(|file| file.path.strip_prefix(root).unwrap().display().to_string()).collect(), found)
    }

    #[test]
    fn wanted_files_are_found_in_order_and_others_counted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for file in [
            "b.txt",
            "a.txt",
            "a.rs",
            "sub/c.txt",
            "sub/deep/d.txt",
            ".git/e.txt",
            "closed/f.txt",
            "private/g.txt",
            "secret.txt",
            ".hidden.txt",
        ] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), "").unwrap();
        }
        symlink("a.txt", root.join("link.txt")).unwrap();
        symlink("sub", root.join("linked")).unwrap();
        std::fs::write(root.join(std::ffi::OsStr::from_bytes(b"\xff.txt")), "").unwrap();
        let rest = FoundFiles {
            directory: root.clone(),
            links: 1,
            skipped: 2,
            odd_names: 1,
            ..FoundFiles::default()
        };
        let (paths, found) = find_by_name(&root, "closed", 10, 100);
        assert_eq!(paths, [".hidden.txt", "a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]);
        assert_eq!(found, rest);
        assert_eq!(find_by_name(&root, "closed", 10, 5), (paths.clone(), found), "exactly the limit");
        let (some, found) = find_by_name(&root, "closed", 10, 4);
        assert_eq!((&some[..], found.truncated), (&paths[..4], true));
        let (some, found) = find_by_name(&root, "closed", 1, 100);
        assert_eq!((&some[..], found.too_deep), (&paths[..4], 1));
    }
}
