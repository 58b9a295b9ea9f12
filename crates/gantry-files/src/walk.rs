//! Directories as handles, for Glob and Grep: one reading of a directory, links followed without loops, closed directories
//! never entered. Which entries matter, and in which order, is decided by the callers.

use std::{
    ffi::{CStr, OsStr},
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, stat, statat},
    io::Errno,
};

/// Directory links followed in one walk. Links that point at each other can span more paths than there are atoms.
pub const MAX_LINKED_DIRECTORIES: usize = 100_000;
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
#[cfg(target_os = "linux")]
const CLIMB_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const CLIMB_FLAGS: OFlags = DIRECTORY_FLAGS;
const READ_BUFFER: usize = 32 * 1024;
/// Below this depth directories are opened by their full path, so that a deep tree cannot use up the file descriptors.
const HANDLE_DEPTH: usize = 32;

/// What every walk is told by its caller.
#[derive(Clone, Copy)]
pub struct WalkOptions<'a> {
    /// Directories nobody may look into, by device and inode; not entered by name, mount or link.
    pub closed: &'a [(u64, u64)],
    /// Worker threads; 0 takes one per core, at most eight.
    pub threads: usize,
    /// Set by the caller to end the walk early.
    pub cancelled: &'a AtomicBool,
    /// Real paths the caller wants left out, whatever link leads to them; they are counted.
    pub skip: Option<&'a (dyn Fn(&Path) -> bool + Sync)>,
}

impl WalkOptions<'_> {
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |count| count.get().min(8)),
            count => count.min(64),
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// What a walk did not look at, so that an answer never looks more complete than it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Files and directories that could not be opened or read.
    pub unreadable: u64,
    /// Lines longer than [`crate::MAX_LINE_BYTES`].
    pub long_lines: u64,
    /// Directories with more than [`crate::MAX_DIRECTORY_ENTRIES`] entries; those beyond were not searched.
    pub crowded_directories: u64,
    /// Directory links not followed because [`MAX_LINKED_DIRECTORIES`] was reached.
    pub links: u64,
    /// Files and directories left out because the caller's `skip` said so.
    pub left_out: u64,
    /// One path among them; never one that was left out on the caller's word.
    pub example: Option<PathBuf>,
}

impl Skipped {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.unreadable += other.unreadable;
        self.long_lines += other.long_lines;
        self.crowded_directories += other.crowded_directories;
        self.links += other.links;
        self.left_out += other.left_out;
        if self.example.is_none() {
            self.example = other.example;
        }
    }

    pub(crate) fn note(&mut self, path: impl FnOnce() -> PathBuf) {
        if self.example.is_none() {
            self.example = Some(path());
        }
    }
}

/// A directory of the walk, open unless it lies very deep.
#[derive(Debug)]
pub(crate) struct Folder {
    handle: Option<OwnedFd>,
    pub(crate) path: PathBuf,
    /// Where it really is, if `path` goes through a link and the walk was told to skip something.
    real: Option<PathBuf>,
    id: (u64, u64),
    /// Levels below the base.
    pub(crate) depth: usize,
    /// Whether a link led here or above.
    linked: bool,
    /// The way back to the base, in which a link must not meet itself.
    parent: Option<Arc<Folder>>,
}

/// What a directory entry is, as far as reading the directory tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    Link,
    /// A device, a socket, a pipe.
    Other,
}

/// What a link leads to.
#[derive(Debug)]
pub(crate) enum Target {
    Folder,
    File {
        stat: Stat,
        /// The real path to open, where closed directories make it matter.
        real: Option<PathBuf>,
    },
    /// Broken, looping, closed, or nothing that holds text.
    Nothing,
}

/// The rules of one walk, shared by its threads.
pub(crate) struct Walk<'a> {
    options: &'a WalkOptions<'a>,
    links_left: AtomicUsize,
}

/// Why a directory was not entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotEntered {
    /// Closed, a loop, or gone: nothing to report.
    Quietly,
    Unreadable(Errno),
    TooManyLinks,
    /// The caller's `skip` said so.
    LeftOut,
}

impl NotEntered {
    pub(crate) fn count(self, skipped: &mut Skipped, path: impl FnOnce() -> PathBuf) {
        match self {
            Self::Quietly => return,
            Self::Unreadable(_) => skipped.unreadable += 1,
            Self::TooManyLinks => skipped.links += 1,
            Self::LeftOut => {
                skipped.left_out += 1;
                return;
            }
        }
        skipped.note(path);
    }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(options: &'a WalkOptions<'a>) -> Self {
        Self { options, links_left: AtomicUsize::new(MAX_LINKED_DIRECTORIES) }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.options.is_cancelled()
    }

    /// Opens the directory where the walk begins.
    pub(crate) fn base(&self, path: &Path) -> Result<Arc<Folder>, NotEntered> {
        let handle = openat(CWD, path, DIRECTORY_FLAGS, Mode::empty()).map_err(not_entered)?;
        let id = identity(&fstat(&handle).map_err(not_entered)?);
        if self.options.closed.contains(&id) {
            return Err(NotEntered::Quietly);
        }
        Ok(Arc::new(Folder {
            handle: Some(handle),
            path: path.to_owned(),
            real: None,
            id,
            depth: 0,
            linked: false,
            parent: None,
        }))
    }

    /// Opens a subdirectory that is no link.
    pub(crate) fn enter(&self, parent: &Arc<Folder>, name: &CStr) -> Result<Arc<Folder>, NotEntered> {
        if self.skips(parent, name) {
            return Err(NotEntered::LeftOut);
        }
        let path = parent.path_of(name);
        let flags = DIRECTORY_FLAGS | OFlags::NOFOLLOW;
        let handle = parent.open(name, &path, flags).map_err(not_entered)?;
        let id = identity(&fstat(&handle).map_err(not_entered)?);
        // A link to somewhere above the base leads back into it by plain names.
        if self.options.closed.contains(&id) || (parent.linked && parent.is_inside(id)) {
            return Err(NotEntered::Quietly);
        }
        let real = parent.real.as_ref().map(|real| real.join(OsStr::from_bytes(name.to_bytes())));
        Ok(Folder::below(parent, Place { path, real, linked: parent.linked }, handle, id))
    }

    /// Opens the directory a link leads to, unless the walk is already inside it.
    pub(crate) fn enter_link(&self, parent: &Arc<Folder>, name: &CStr) -> Result<Arc<Folder>, NotEntered> {
        if self.skips(parent, name) {
            return Err(NotEntered::LeftOut);
        }
        let path = parent.path_of(name);
        let handle = parent.open(name, &path, DIRECTORY_FLAGS).map_err(not_entered)?;
        let id = identity(&fstat(&handle).map_err(not_entered)?);
        if parent.is_inside(id) || self.lies_in_closed(&handle, id) {
            return Err(NotEntered::Quietly);
        }
        let real = self.real_of_link(&path)?;
        let spend = |left: usize| left.checked_sub(1);
        if self.links_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_err() {
            return Err(NotEntered::TooManyLinks);
        }
        Ok(Folder::below(parent, Place { path, real, linked: true }, handle, id))
    }

    /// Whether the caller wants an entry that is no link left out.
    pub(crate) fn skips(&self, parent: &Folder, name: &CStr) -> bool {
        self.options.skip.is_some_and(|skip| {
            let name = OsStr::from_bytes(name.to_bytes());
            skip(&parent.real.as_ref().unwrap_or(&parent.path).join(name))
        })
    }

    /// Whether the caller wants what a link leads to, or the link itself, left out.
    pub(crate) fn skips_link(&self, parent: &Folder, name: &CStr) -> bool {
        self.skips(parent, name) || self.real_of_link(&parent.path_of(name)) == Err(NotEntered::LeftOut)
    }

    /// Where a link leads, if the walk has something to skip; what cannot be told counts as left out.
    fn real_of_link(&self, path: &Path) -> Result<Option<PathBuf>, NotEntered> {
        let Some(skip) = self.options.skip else { return Ok(None) };
        match fs::canonicalize(path) {
            Ok(real) if !skip(&real) => Ok(Some(real)),
            _ => Err(NotEntered::LeftOut),
        }
    }

    /// Finds out where a link leads.
    pub(crate) fn follow(&self, parent: &Folder, name: &CStr) -> Target {
        let Ok(stat) = parent.stat(name) else { return Target::Nothing };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Target::Folder,
            FileType::RegularFile if self.options.closed.is_empty() => Target::File { stat, real: None },
            FileType::RegularFile => match self.real_open_path(&parent.path_of(name)) {
                Some(real) => Target::File { stat, real: Some(real) },
                None => Target::Nothing,
            },
            _ => Target::Nothing,
        }
    }

    /// The real path of a file, unless it lies in a closed directory.
    fn real_open_path(&self, path: &Path) -> Option<PathBuf> {
        let real = fs::canonicalize(path).ok()?;
        let closed = real.ancestors().skip(1).any(|ancestor| match fs::metadata(ancestor) {
            Ok(metadata) => self.options.closed.contains(&(metadata.dev(), metadata.ino())),
            Err(_) => true,
        });
        (!closed).then_some(real)
    }

    /// Whether a directory reached through a link is closed or lies below a closed one: climbs by handle to the root.
    fn lies_in_closed(&self, handle: &OwnedFd, id: (u64, u64)) -> bool {
        let closed = self.options.closed;
        if closed.is_empty() {
            return false;
        }
        let (mut child, mut above) = (id, openat(handle, c"..", CLIMB_FLAGS, Mode::empty()));
        if closed.contains(&child) {
            return true;
        }
        loop {
            let Ok(folder) = above else { return true };
            let Ok(id) = fstat(&folder).map(|stat| identity(&stat)) else { return true };
            if closed.contains(&id) {
                return true;
            }
            if id == child {
                return false;
            }
            child = id;
            above = openat(&folder, c"..", CLIMB_FLAGS, Mode::empty());
        }
    }
}

/// Where a directory was met.
struct Place {
    path: PathBuf,
    real: Option<PathBuf>,
    /// Below a link.
    linked: bool,
}

impl Folder {
    fn below(parent: &Arc<Self>, place: Place, handle: OwnedFd, id: (u64, u64)) -> Arc<Self> {
        let Place { path, real, linked } = place;
        let depth = parent.depth + 1;
        let handle = (depth <= HANDLE_DEPTH).then_some(handle);
        Arc::new(Self { handle, path, real, id, depth, linked, parent: Some(Arc::clone(parent)) })
    }

    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    fn is_inside(&self, id: (u64, u64)) -> bool {
        let mut folder = Some(self);
        while let Some(current) = folder {
            if current.id == id {
                return true;
            }
            folder = current.parent.as_deref();
        }
        false
    }

    fn open(&self, name: &CStr, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        match &self.handle {
            Some(handle) => openat(handle, name, flags, Mode::empty()),
            None => openat(CWD, path, flags, Mode::empty()),
        }
    }

    /// Opens an entry for reading; a pipe that took a file's place does not block.
    pub(crate) fn open_file(&self, name: &CStr) -> Result<OwnedFd, Errno> {
        match &self.handle {
            Some(handle) => openat(handle, name, FILE_FLAGS | OFlags::NOFOLLOW, Mode::empty()),
            None => openat(CWD, self.path_of(name), FILE_FLAGS | OFlags::NOFOLLOW, Mode::empty()),
        }
    }

    /// Opens what a link leads to.
    pub(crate) fn open_link(&self, name: &CStr, real: Option<&Path>) -> Result<OwnedFd, Errno> {
        match (real, &self.handle) {
            (Some(real), _) => openat(CWD, real, FILE_FLAGS | OFlags::NOFOLLOW, Mode::empty()),
            (None, Some(handle)) => openat(handle, name, FILE_FLAGS, Mode::empty()),
            (None, None) => openat(CWD, self.path_of(name), FILE_FLAGS, Mode::empty()),
        }
    }

    pub(crate) fn stat(&self, name: &CStr) -> Result<Stat, Errno> {
        match &self.handle {
            Some(handle) => statat(handle, name, AtFlags::empty()),
            None => stat(self.path_of(name)),
        }
    }

    /// Hands every entry but `.` and `..` to `each`, in the order of the file system, until it answers `false`.
    pub(crate) fn read(
        &self,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&CStr, Kind) -> bool,
    ) -> Result<(), Errno> {
        let reopened;
        let handle = match &self.handle {
            Some(handle) => handle,
            None => {
                reopened = openat(CWD, &self.path, DIRECTORY_FLAGS, Mode::empty())?;
                if identity(&fstat(&reopened)?) != self.id {
                    return Err(Errno::NOENT);
                }
                &reopened
            }
        };
        read_entries(handle, buffer, |name, kind| {
            let kind = match kind {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Folder,
                FileType::Symlink => Kind::Link,
                FileType::Unknown => unlisted_kind(handle, name),
                _ => Kind::Other,
            };
            each(name, kind)
        })
    }
}

/// Some file systems do not store kinds in their directories.
fn unlisted_kind(handle: &OwnedFd, name: &CStr) -> Kind {
    match statat(handle, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::RegularFile) => Kind::File,
        Ok(FileType::Directory) => Kind::Folder,
        Ok(FileType::Symlink) => Kind::Link,
        _ => Kind::Other,
    }
}

#[cfg(target_os = "linux")]
fn read_entries(
    handle: &OwnedFd,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&CStr, FileType) -> bool,
) -> Result<(), Errno> {
    buffer.clear();
    buffer.reserve(READ_BUFFER);
    let mut entries = rustix::fs::RawDir::new(handle.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." && !each(name, entry.file_type()) {
            break;
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn read_entries(
    handle: &OwnedFd,
    _buffer: &mut Vec<u8>,
    mut each: impl FnMut(&CStr, FileType) -> bool,
) -> Result<(), Errno> {
    for entry in rustix::fs::Dir::read_from(handle.as_fd())? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." && !each(name, entry.file_type()) {
            break;
        }
    }
    Ok(())
}

/// `.git` holds history, not the user's files; a `.git` that is a file (a worktree's pointer) is one like any other.
pub(crate) fn is_git(name: &CStr) -> bool {
    name == c".git"
}

#[allow(clippy::unnecessary_cast, reason = "the width of these fields differs between systems")]
fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

fn not_entered(errno: Errno) -> NotEntered {
    match errno {
        // Gone, or replaced by something else, since its directory was read; or a link that loops.
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => NotEntered::Quietly,
        errno => NotEntered::Unreadable(errno),
    }
}
