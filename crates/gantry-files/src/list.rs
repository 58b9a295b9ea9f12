//! Lists a directory by handle, flat or recursively, in path order.
//!
//! Links are not walked through, so there are no loops. Names that are not valid UTF-8 are shown
//! with replacement characters.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use crate::error::FileError;
use crate::handle::{self, FileId};
use crate::place::{LastLink, Missing};
use crate::scope::{FileMeta, Scope};

pub const MAX_ENTRIES: usize = 10_000;
/// Counting stops here. A larger total is reported as "at least".
const MAX_COUNTED: usize = 1_000_000;
/// Deeper directories are listed but not entered.
const MAX_DEPTH: usize = 128;

#[derive(Debug, Clone, Copy)]
pub struct ListOptions {
    pub recursive: bool,
    /// The largest number of entries; never more than [`MAX_ENTRIES`].
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The directory's real absolute path.
    pub path: PathBuf,
    /// Sorted by path.
    pub entries: Vec<Entry>,
    /// How many entries there are, counted up to a million.
    pub total: usize,
    /// `entries` is incomplete: there are more than the limit, or directories were not entered.
    pub truncated: bool,
    /// How many entries the scope refuses, links to them included. They are not in `total`.
    pub left_out: usize,
    /// Directories that could not be read, or were too deep or closed, by relative path.
    pub not_entered: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the listed directory, with `/` between names.
    pub path: String,
    pub kind: EntryKind,
    pub meta: FileMeta,
    /// `path` is not the real name, which is not valid UTF-8.
    pub lossy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    /// A link that is broken or leads out of the scope. Other links are reported as what they lead
    /// to.
    Symlink,
    /// FIFO, socket or device.
    Other,
}

impl Scope {
    /// Lists a directory.
    pub fn list(
        &self,
        path: impl AsRef<Path>,
        options: ListOptions,
        cancelled: &AtomicBool,
    ) -> Result<Listing, FileError> {
        let dir = self.open_dir(path.as_ref())?;
        let mut walk = ListWalk {
            scope: self,
            closed: self.files.closed_ids(),
            recursive: options.recursive,
            limit: options.limit.min(MAX_ENTRIES),
            cancelled,
            listing: Listing {
                path: dir.path.clone(),
                entries: Vec::new(),
                total: 0,
                left_out: 0,
                truncated: false,
                not_entered: Vec::new(),
            },
        };
        walk.directory(&dir.fd, Vec::new(), 0).map_err(|stop| match stop {
            Stop::Cancelled => FileError::Cancelled,
            Stop::Failed(err) => FileError::io("list", &dir.path, err),
        })?;
        let mut listing = walk.listing;
        listing.truncated |= listing.total > listing.entries.len() || !listing.not_entered.is_empty();
        Ok(listing)
    }
}

struct ListWalk<'a> {
    scope: &'a Scope,
    closed: Vec<FileId>,
    recursive: bool,
    limit: usize,
    cancelled: &'a AtomicBool,
    listing: Listing,
}

/// `Linked` says where a link leads.
enum Linked {
    /// It leads to something in the scope.
    To(EntryKind, FileMeta),
    /// It leads out of the scope, into something closed, or nowhere.
    Elsewhere,
    /// It leads to something that the scope refuses.
    Refused,
}

enum Stop {
    Cancelled,
    Failed(Errno),
}

/// `ListStep` is one step in a directory: an entry, or what is below one.
enum ListStep {
    Entry(OsString),
    Below(OsString),
}

impl ListWalk<'_> {
    /// Lists one directory. `prefix` is its path below the listed one, with a final slash.
    fn directory(&mut self, dir: &OwnedFd, prefix: Vec<u8>, depth: usize) -> Result<(), Stop> {
        for step in self.steps(dir)? {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(Stop::Cancelled);
            }
            if self.listing.total + self.listing.left_out >= MAX_COUNTED {
                self.listing.truncated = true;
                return Ok(());
            }
            match step {
                ListStep::Entry(name) => self.entry(dir, &prefix, &name),
                ListStep::Below(name) => self.below(dir, &prefix, &name, depth)?,
            }
        }
        Ok(())
    }

    /// Returns the steps of a directory, ordered so that the paths come out in byte order: `a`,
    /// `a.txt`, `a/b`.
    fn steps(&self, dir: &OwnedFd) -> Result<Vec<ListStep>, Stop> {
        let mut steps: Vec<(Vec<u8>, ListStep)> = Vec::new();
        for entry in Dir::read_from(dir).map_err(Stop::Failed)? {
            let entry = entry.map_err(Stop::Failed)?;
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            let name = OsString::from_vec(bytes.to_vec());
            let is_dir = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => handle::stat_at(dir, &name)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
                _ => false,
            };
            if is_dir && self.recursive {
                steps.push(([bytes, b"/"].concat(), ListStep::Below(name.clone())));
            }
            steps.push((bytes.to_vec(), ListStep::Entry(name)));
            if self.listing.total + steps.len() > MAX_COUNTED * 2 {
                break;
            }
        }
        steps.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(steps.into_iter().map(|(_, step)| step).collect())
    }

    fn entry(&mut self, dir: &OwnedFd, prefix: &[u8], name: &OsStr) {
        let bytes = [prefix, name.as_bytes()].concat();
        if self.leaves_out(&bytes) {
            self.listing.left_out += 1;
            return;
        }
        if self.listing.entries.len() >= self.limit {
            self.listing.total += 1;
            return;
        }
        // The entry disappeared since the directory was read.
        let Ok(stat) = handle::stat_at(dir, name) else { return };
        let (mut kind, mut meta) = (kind_of(FileType::from_raw_mode(stat.st_mode)), FileMeta::of(&stat));
        if kind == EntryKind::Symlink {
            match self.linked(&bytes) {
                Linked::To(target_kind, target) => (kind, meta) = (target_kind, target),
                Linked::Elsewhere => {}
                Linked::Refused => {
                    self.listing.left_out += 1;
                    return;
                }
            }
        } else if kind != EntryKind::Directory && self.closed.contains(&meta.id) {
            return;
        }
        self.listing.total += 1;
        let path = String::from_utf8_lossy(&bytes);
        let lossy = matches!(path, std::borrow::Cow::Owned(_));
        self.listing.entries.push(Entry { path: path.into_owned(), kind, meta, lossy });
    }

    /// Reports whether the scope refuses a path below the listed directory.
    fn leaves_out(&self, below: &[u8]) -> bool {
        self.scope.is_refusing() && self.scope.refuses(&self.listing.path.join(OsStr::from_bytes(below)))
    }

    fn linked(&self, below: &[u8]) -> Linked {
        let path = self.listing.path.join(OsStr::from_bytes(below));
        let place = match self.scope.place(&path, LastLink::Follow, Missing::Refuse) {
            Ok(place) => place,
            Err(FileError::Sensitive { .. }) => return Linked::Refused,
            Err(_) => return Linked::Elsewhere,
        };
        let stat = match &place.name {
            Some(name) => handle::stat_at(&place.dir, name),
            None => rustix::fs::fstat(&place.dir),
        };
        match stat {
            Ok(stat) if !self.closed.contains(&FileId::of(&stat)) => {
                Linked::To(kind_of(FileType::from_raw_mode(stat.st_mode)), FileMeta::of(&stat))
            }
            _ => Linked::Elsewhere,
        }
    }

    fn below(&mut self, dir: &OwnedFd, prefix: &[u8], name: &OsStr, depth: usize) -> Result<(), Stop> {
        let mut prefix = [prefix, name.as_bytes()].concat();
        let closed = |child: &OwnedFd| handle::id_of(child).map_or(true, |id| self.closed.contains(&id));
        let child = handle::open_child_dir(dir, name).and_then(handle::readable);
        match child {
            Ok(child) if depth < MAX_DEPTH && !closed(&child) => {
                prefix.push(b'/');
                self.directory(&child, prefix, depth + 1)
            }
            // The entry was removed or replaced by a link since the directory was read.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => Ok(()),
            // A refused directory is not named in `not_entered` either.
            _ if self.leaves_out(&prefix) => Ok(()),
            _ => {
                self.listing.not_entered.push(String::from_utf8_lossy(&prefix).into_owned());
                Ok(())
            }
        }
    }
}

fn kind_of(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}
