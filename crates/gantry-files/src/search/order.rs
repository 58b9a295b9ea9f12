//! Lists the files below a directory in path order: the names of each directory sorted, depth
//! first. It holds one sorted list per level, never the whole tree.

use std::{ffi::CStr, ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf, sync::Arc};

use globset::GlobMatcher;

use super::File;
use crate::walk::{Folder, Kind, NotEntered, Skipped, Walk, is_git};

/// How many entries of one directory are sorted and searched.
pub const MAX_DIRECTORY_ENTRIES: usize = 1_000_000;

pub(super) struct Ordered<'a> {
    /// The base; `None` once it was read.
    root: Option<Arc<Folder>>,
    levels: Vec<Level>,
    include: Option<&'a GlobMatcher>,
    buffer: Vec<u8>,
}

/// `Level` is a directory whose entries are being returned.
struct Level {
    folder: Arc<Folder>,
    names: SortedNames,
    next: usize,
}

/// `SortedNames` is the sorted entries of a directory. Their names are in one buffer, each terminated by
/// NUL.
#[derive(Default)]
struct SortedNames {
    bytes: Vec<u8>,
    entries: Vec<(usize, usize, Kind)>,
}

impl<'a> Ordered<'a> {
    pub(super) fn new(root: Arc<Folder>, include: Option<&'a GlobMatcher>) -> Self {
        Self { root: Some(root), levels: Vec::new(), include, buffer: Vec::new() }
    }

    pub(super) fn next(&mut self, walk: &Walk<'_>, skipped: &mut Skipped) -> Option<File> {
        if let Some(root) = self.root.take() {
            self.push(walk, root, skipped);
        }
        while !walk.is_cancelled() {
            let level = self.levels.last_mut()?;
            let Some((name, kind)) = level.names.get(level.next) else {
                self.levels.pop();
                continue;
            };
            level.next += 1;
            let entered = match kind {
                Kind::File if walk.leaves_out(&level.folder, name) => Err(NotEntered::LeftOut),
                Kind::File => return Some(File::new(&level.folder, name, kind)),
                Kind::Folder => walk.enter(&level.folder, name),
                Kind::Link => match walk.link_kind(&level.folder, name) {
                    Kind::File if included(self.include, name) => {
                        return Some(File::new(&level.folder, name, kind));
                    }
                    Kind::Folder if !is_git(name) => walk.enter_link(&level.folder, name),
                    _ => continue,
                },
                Kind::Other => continue,
            };
            match entered {
                Ok(folder) => self.push(walk, folder, skipped),
                Err(reason) => reason.count(skipped, || level.folder.path_of(name)),
            }
        }
        None
    }

    fn push(&mut self, walk: &Walk<'_>, folder: Arc<Folder>, skipped: &mut Skipped) {
        let mut names = SortedNames::default();
        let mut crowded = false;
        let include = self.include;
        let result = walk.read(&folder, &mut self.buffer, |name, kind| {
            let wanted = match kind {
                Kind::File => included(include, name),
                Kind::Folder => !is_git(name),
                Kind::Link => true,
                Kind::Other => false,
            };
            crowded = wanted && names.entries.len() >= MAX_DIRECTORY_ENTRIES;
            if wanted && !crowded {
                names.push(name, kind);
            }
            !crowded
        });
        let path = || PathBuf::clone(&folder.path);
        if let Err(errno) = result {
            NotEntered::Unreadable(errno).count(skipped, path);
        }
        if crowded {
            skipped.crowded_directories += 1;
            skipped.note(path);
        }
        names.sort();
        self.levels.push(Level { folder, names, next: 0 });
    }
}

fn included(include: Option<&GlobMatcher>, name: &CStr) -> bool {
    include.is_none_or(|glob| glob.is_match(OsStr::from_bytes(name.to_bytes())))
}

impl SortedNames {
    fn push(&mut self, name: &CStr, kind: Kind) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
        self.entries.push((start, self.bytes.len(), kind));
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        // NUL ends every name and is smaller than any other byte, so a name sorts before names that
        // it is a prefix of.
        self.entries
            .sort_unstable_by(|left, right| bytes.get(left.0..left.1).cmp(&bytes.get(right.0..right.1)));
    }

    fn get(&self, index: usize) -> Option<(&CStr, Kind)> {
        let &(start, end, kind) = self.entries.get(index)?;
        Some((CStr::from_bytes_with_nul(self.bytes.get(start..end)?).ok()?, kind))
    }
}
