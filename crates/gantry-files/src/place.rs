//! Resolves a path to the open handle of its parent directory and the last name.
//!
//! A [`Tree`] is a root handle and the place where relative paths start. This module follows links
//! by hand. Every directory is opened beneath the handle above it without following links. A link
//! that is swapped in at the wrong moment is therefore seen as a link and never walked through.
//! Where available, the kernel (`openat2`) enforces this.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::error::FileError;
use crate::handle::{self, FileId};

/// The longest accepted path, which is the kernel's own limit.
const MAX_PATH_BYTES: usize = 4095;
/// The kernel follows as many links.
const MAX_LINKS: usize = 40;

/// `Tree` is the root that bounds a scope, and where its relative paths start.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Arc<OwnedFd>,
    /// The root's real path.
    root_path: PathBuf,
    /// The root as the caller wrote it. Absolute paths may use either form.
    given: PathBuf,
    /// The names from the root to where relative paths start; empty in a contained tree.
    start: Vec<OsString>,
    /// The handle of the directory where relative paths start.
    base: Arc<OwnedFd>,
    /// In a contained tree, a path that leaves the root is refused. In a free one, `..` at the top
    /// stays there, as in the kernel.
    contained: bool,
}

/// `Place` is what a path leads to.
#[derive(Debug)]
pub(crate) struct Place {
    /// The directory that contains `name`, or the place itself if there is no name.
    pub(crate) dir: Arc<OwnedFd>,
    /// The names from the tree's root to `dir`, none of which is a link.
    pub(crate) names: Vec<OsString>,
    pub(crate) name: Option<OsString>,
    /// The real absolute path of the place.
    pub(crate) path: PathBuf,
    /// The names below `name` that do not exist yet. Only [`Missing::Note`] fills this.
    missing: Vec<OsString>,
    /// The metadata of `name`, if the lookup needed it.
    seen: Option<Stat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Keep,
}

/// `Missing` says what to do about directories that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Refuse,
    Make,
    Note,
}

impl Place {
    /// Returns the metadata of `name`, now or at the time of the lookup. A caller that opens it
    /// must check the opened file again.
    pub(crate) fn stat(&self) -> Option<Result<Stat, Errno>> {
        let name = self.name.as_ref()?;
        Some(self.seen.map_or_else(|| handle::stat_at(&self.dir, name), Ok))
    }

    /// Returns the identity of `name` at the time of the lookup.
    pub(crate) fn found(&self) -> Option<FileId> {
        self.seen.as_ref().map(FileId::of)
    }

    /// Returns the real path, including what does not exist yet.
    pub(crate) fn full_path(&self) -> PathBuf {
        let mut path = self.path.clone();
        path.extend(&self.missing);
        path
    }

    /// Iterates over all names from the root to the place.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = &OsString> {
        self.names.iter().chain(&self.name).chain(&self.missing)
    }
}

impl Tree {
    pub(crate) fn contained(given: &Path, real: &Path, root: OwnedFd) -> Tree {
        let (root_path, given) = (real.to_path_buf(), given.to_path_buf());
        let root = Arc::new(root);
        Tree { root: root.clone(), root_path, given, start: Vec::new(), base: root, contained: true }
    }

    /// `top` is the handle of `/`, and `base` that of `real_base`.
    pub(crate) fn free(top: Arc<OwnedFd>, real_base: &Path, base: Arc<OwnedFd>) -> Tree {
        let start = real_base.iter().skip(1).map(OsString::from).collect();
        let path = PathBuf::from("/");
        Tree { root: top, root_path: path.clone(), given: path, start, base, contained: false }
    }

    /// Finds where `path` leads. Nothing is created unless `missing` says so.
    pub(crate) fn place(&self, path: &Path, last: LastLink, missing: Missing) -> Result<Place, FileError> {
        check_spelling(path)?;
        let (dir, start, relative) = if path.is_absolute() {
            let relative = self.strip(path).ok_or_else(|| FileError::Outside { path: path.into() })?;
            (&self.root, Vec::new(), relative)
        } else {
            (&self.base, self.start.clone(), path)
        };
        let mut walk = PathWalk {
            tree: self,
            asked: path,
            dir: Some(dir.clone()),
            names: start,
            missing: Vec::new(),
            todo: components(relative),
            links: 0,
        };
        if let Some(place) = walk.resolve_direct(last)? {
            return Ok(place);
        }
        walk.run(last, missing)
    }

    /// Returns an absolute path relative to the root, if its text is inside the root.
    fn strip<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        path.strip_prefix(&self.root_path).or_else(|_| path.strip_prefix(&self.given)).ok()
    }

    /// Opens a directory by names that contain no link. A link gives `ELOOP` or `ENOTDIR`.
    fn open_names(&self, names: &[OsString]) -> Result<OwnedFd, Errno> {
        handle::open_beneath(self.root.as_fd(), names)
    }
}

/// `PathWalk` follows one path from the tree's root.
struct PathWalk<'a> {
    tree: &'a Tree,
    asked: &'a Path,
    /// The handle of `names`, opened when first needed.
    dir: Option<Arc<OwnedFd>>,
    names: Vec<OsString>,
    /// The names below `names` that do not exist.
    missing: Vec<OsString>,
    todo: VecDeque<OsString>,
    links: usize,
}

impl PathWalk<'_> {
    /// Resolves the common case in one system call: no `..`, and no link before the last name.
    fn resolve_direct(&mut self, last: LastLink) -> Result<Option<Place>, FileError> {
        if self.todo.iter().any(|name| name == "." || name == "..") {
            return Ok(None);
        }
        let Some((name, parents)) = self.todo.make_contiguous().split_last() else { return Ok(None) };
        let Some(start) = self.dir.clone() else { return Ok(None) };
        let dir = match parents {
            [] => start,
            parents => match handle::open_beneath(start.as_fd(), parents) {
                Ok(dir) => Arc::new(dir),
                Err(_) => return Ok(None),
            },
        };
        let names: Vec<OsString> = self.names.iter().chain(parents).cloned().collect();
        let name = name.clone();
        let mut seen = None;
        if last == LastLink::Follow {
            seen = handle::stat_at(&dir, &name).ok();
            if seen.as_ref().is_some_and(handle::is_link) {
                // The path to the link need not be walked again.
                (self.dir, self.names, self.todo) = (Some(dir), names, VecDeque::from([name]));
                return Ok(None);
            }
        }
        Ok(Some(Place { seen, ..self.finish(dir, names, Some(name)) }))
    }

    fn run(&mut self, last: LastLink, missing: Missing) -> Result<Place, FileError> {
        while let Some(name) = self.todo.pop_front() {
            if name == "." {
                continue;
            }
            if name == ".." {
                self.up()?;
                continue;
            }
            if !self.missing.is_empty() {
                self.missing.push(name);
                continue;
            }
            if self.todo.is_empty() {
                if last == LastLink::Follow && self.follow(&name)? {
                    continue;
                }
                let dir = self.take_dir()?;
                let names = std::mem::take(&mut self.names);
                return Ok(self.finish(dir, names, Some(name)));
            }
            self.down(name, missing)?;
        }
        let dir = self.take_dir()?;
        let mut names = std::mem::take(&mut self.names);
        if self.missing.is_empty() {
            return Ok(self.finish(dir, names, None));
        }
        let first_missing = self.missing.remove(0);
        let mut place = self.finish(dir, std::mem::take(&mut names), Some(first_missing));
        place.missing = std::mem::take(&mut self.missing);
        Ok(place)
    }

    fn up(&mut self) -> Result<(), FileError> {
        if self.missing.pop().is_some() {
            return Ok(());
        }
        if self.names.pop().is_none() && self.tree.contained {
            return Err(FileError::Outside { path: self.asked.into() });
        }
        self.dir = None;
        Ok(())
    }

    /// Enters `name`: a directory, a link to follow, or something to create.
    fn down(&mut self, name: OsString, missing: Missing) -> Result<(), FileError> {
        let dir = self.take_dir()?;
        let opened = match handle::open_child_dir(&dir, &name) {
            Err(Errno::NOENT) if missing == Missing::Make => {
                handle::make_dir(&dir, &name).and_then(|()| handle::open_child_dir(&dir, &name))
            }
            other => other,
        };
        match opened {
            Ok(child) => {
                self.dir = Some(Arc::new(child));
                self.names.push(name);
            }
            Err(Errno::NOENT) if missing == Missing::Note => {
                self.dir = Some(dir);
                self.missing.push(name);
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                self.dir = Some(dir);
                if !self.follow(&name)? {
                    return Err(FileError::NotADirectory { path: self.asked.into() });
                }
            }
            Err(err) => return Err(FileError::io("open", self.asked, err)),
        }
        Ok(())
    }

    /// Puts a link's target in front of the remaining path; returns false if `name` is not a link.
    fn follow(&mut self, name: &OsStr) -> Result<bool, FileError> {
        let dir = self.take_dir()?;
        let target = handle::read_link(&dir, name);
        self.dir = Some(dir);
        let target = match target {
            Ok(Some(target)) => PathBuf::from(OsString::from_vec(target)),
            Ok(None) => return Ok(false),
            Err(err) => return Err(FileError::io("follow", self.asked, err)),
        };
        self.links += 1;
        if self.links > MAX_LINKS || target.as_os_str().len() > MAX_PATH_BYTES {
            return Err(FileError::TooManyLinks { path: self.asked.into() });
        }
        let mut relative = target.as_path();
        if target.is_absolute() {
            relative =
                self.tree.strip(&target).ok_or_else(|| FileError::Outside { path: self.asked.into() })?;
            self.names.clear();
            self.dir = None;
        }
        let mut todo = components(relative);
        todo.append(&mut self.todo);
        self.todo = todo;
        Ok(true)
    }

    fn take_dir(&mut self) -> Result<Arc<OwnedFd>, FileError> {
        match self.dir.take() {
            Some(dir) => Ok(dir),
            None => {
                let opened = self.tree.open_names(&self.names);
                opened.map(Arc::new).map_err(|err| FileError::io("open", self.asked, err))
            }
        }
    }

    fn finish(&self, dir: Arc<OwnedFd>, names: Vec<OsString>, name: Option<OsString>) -> Place {
        let mut path = self.tree.root_path.clone();
        path.extend(names.iter().chain(&name));
        Place { dir, names, name, path, missing: Vec::new(), seen: None }
    }
}

fn check_spelling(path: &Path) -> Result<(), FileError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(FileError::EmptyPath);
    }
    if bytes.len() > MAX_PATH_BYTES {
        return Err(FileError::PathTooLong { length: bytes.len(), limit: MAX_PATH_BYTES });
    }
    if bytes.contains(&0) {
        return Err(FileError::NulInPath { path: path.into() });
    }
    Ok(())
}

/// Returns the names of a path. A trailing slash becomes `.`, because it requires a directory.
fn components(path: &Path) -> VecDeque<OsString> {
    let bytes = path.as_os_str().as_bytes();
    let mut names: VecDeque<OsString> = bytes
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
        .map(|name| OsStr::from_bytes(name).to_os_string())
        .collect();
    if bytes.ends_with(b"/") {
        names.push_back(".".into());
    }
    names
}
