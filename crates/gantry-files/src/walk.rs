//! Directories as handles, for Glob and Grep. It reads directories, follows links without loops,
//! and never enters closed directories. The callers decide which entries matter, and in which
//! order.
//!
//! Links in `/proc` are not followed: `root` and `cwd` of a process lead into the whole file
//! system, which nobody who walks there intends. To search there, name the link as the base.
//!
//! Whatever is opened through a link, or again by its path, is checked after it was opened, never
//! before.

use std::{
    ffi::{CStr, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat},
    io::Errno,
};

use crate::{
    closed_paths,
    error::FileError,
    handle::{self, FileId},
    place::{LastLink, Missing, Place},
    scope::{OpenDir, Scope},
};

/// How many directory links one walk follows. Links that point at each other can create an
/// astronomical number of paths.
pub const MAX_LINKED_DIRECTORIES: usize = 100_000;
const DIRECTORY_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const FILE_FLAGS: OFlags = handle::FILE_FLAGS.union(OFlags::RDONLY);
const READ_BUFFER: usize = 32 * 1024;
/// Deeper directories are opened again each time they are used, so that a deep tree cannot exhaust
/// the file descriptors.
const HANDLE_DEPTH: usize = 32;

/// `WalkOptions` holds the caller's settings for a walk.
#[derive(Debug, Clone, Copy)]
pub struct WalkOptions<'a> {
    /// The number of worker threads; 0 means one per core, at most eight.
    pub threads: usize,
    /// The caller sets this to end the walk early.
    pub cancelled: &'a AtomicBool,
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

/// `Skipped` says what a walk did not examine, so that a result never looks more complete than it
/// is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Files and directories that could not be opened or read.
    pub unreadable: u64,
    /// Lines longer than [`crate::MAX_LINE_BYTES`].
    pub long_lines: u64,
    /// Directories with more than [`crate::MAX_DIRECTORY_ENTRIES`] entries. The entries beyond were
    /// not searched.
    pub crowded_directories: u64,
    /// Directory links not followed because [`MAX_LINKED_DIRECTORIES`] was reached.
    pub links: u64,
    /// Files and directories left out because the scope refuses them.
    pub left_out: u64,
    /// One of these paths, but never one that was left out.
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

/// `Folder` is a directory of the walk, open unless it is very deep.
#[derive(Debug)]
pub(crate) struct Folder {
    handle: Option<OwnedFd>,
    pub(crate) path: PathBuf,
    /// The real path, if `path` goes through a link.
    real: Option<PathBuf>,
    id: FileId,
    /// Levels below the base.
    pub(crate) depth: usize,
    /// The directories back to the base, to detect a link that leads to one of them.
    parent: Option<Arc<Folder>>,
}

/// `Kind` is the kind of a directory entry, as far as reading the directory shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    Link,
    /// A device, a socket, a pipe.
    Other,
}

/// `Walk` holds the rules of one walk, shared by its threads.
pub(crate) struct Walk<'a> {
    scope: &'a Scope,
    options: &'a WalkOptions<'a>,
    /// The closed directories and files.
    closed: Vec<FileId>,
    links_left: AtomicUsize,
}

/// `NotEntered` says why a directory was not entered, or a file not examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotEntered {
    /// It is closed, a loop, out of the scope, or gone. There is nothing to report.
    Quietly,
    Unreadable(Errno),
    TooManyLinks,
    /// The scope refuses it.
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

/// `Held` is a directory's handle: one that it holds, or one that was just opened.
enum Held<'a> {
    Kept(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Held<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kept(handle) => *handle,
            Self::Opened(handle) => handle.as_fd(),
        }
    }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(scope: &'a Scope, options: &'a WalkOptions<'a>) -> Self {
        let closed = scope.files.closed_ids();
        Self { scope, options, closed, links_left: AtomicUsize::new(MAX_LINKED_DIRECTORIES) }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.options.is_cancelled()
    }

    /// Opens the directory where the walk begins.
    pub(crate) fn base(&self, base: &OpenDir) -> Result<Arc<Folder>, NotEntered> {
        // Opens a separate handle, because all copies of a handle share one reading position.
        let handle = handle::readable(&base.fd).map_err(not_entered)?;
        let id = handle::id_of(&handle).map_err(not_entered)?;
        if closed_paths::lies_in(&self.closed, &handle) {
            return Err(NotEntered::Quietly);
        }
        let path = base.path.clone();
        Ok(Arc::new(Folder { handle: Some(handle), path, real: None, id, depth: 0, parent: None }))
    }

    /// Opens a subdirectory that is not a link.
    pub(crate) fn enter(&self, parent: &Arc<Folder>, name: &CStr) -> Result<Arc<Folder>, NotEntered> {
        if self.leaves_out(parent, name) {
            return Err(NotEntered::LeftOut);
        }
        let above = self.hold(parent).map_err(not_entered)?;
        let handle = openat(above, name, DIRECTORY_FLAGS, Mode::empty()).map_err(not_entered)?;
        let id = handle::id_of(&handle).map_err(not_entered)?;
        // A link to somewhere above the base leads back into it by plain names.
        if self.closed.contains(&id) || (parent.real.is_some() && parent.is_inside(id)) {
            return Err(NotEntered::Quietly);
        }
        let real = parent.real.as_ref().map(|real| real.join(OsStr::from_bytes(name.to_bytes())));
        Ok(Folder::below(parent, name, real, handle, id))
    }

    /// Opens the directory that a link leads to, unless the walk is already inside it.
    pub(crate) fn enter_link(&self, parent: &Arc<Folder>, name: &CStr) -> Result<Arc<Folder>, NotEntered> {
        let place = self.follow(parent, name)?;
        let handle = match &place.name {
            Some(last) => openat(&place.dir, last, DIRECTORY_FLAGS, Mode::empty()),
            None => handle::readable(&place.dir),
        };
        let handle = handle.map_err(not_entered)?;
        let id = handle::id_of(&handle).map_err(not_entered)?;
        if parent.is_inside(id) || self.closed.contains(&id) {
            return Err(NotEntered::Quietly);
        }
        let spend = |left: usize| left.checked_sub(1);
        if self.links_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_err() {
            return Err(NotEntered::TooManyLinks);
        }
        Ok(Folder::below(parent, name, Some(place.path), handle, id))
    }

    /// Returns what a link leads to, as a hint where to look. Nothing of it is shown before the
    /// link was followed and checked.
    pub(crate) fn link_kind(&self, parent: &Folder, name: &CStr) -> Kind {
        let stat = self.hold(parent).and_then(|above| statat(above, name, AtFlags::empty()));
        match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Directory) => Kind::Folder,
            Ok(FileType::RegularFile) => Kind::File,
            _ => Kind::Other,
        }
    }

    /// Returns the metadata of an entry that is not a link.
    pub(crate) fn stat_file(&self, parent: &Folder, name: &CStr) -> Result<Stat, NotEntered> {
        let above = self.hold(parent).map_err(not_entered)?;
        self.open_to_all(statat(above, name, AtFlags::SYMLINK_NOFOLLOW).map_err(not_entered)?)
    }

    /// Returns the metadata of the file that a link leads to.
    pub(crate) fn stat_link(&self, parent: &Folder, name: &CStr) -> Result<Stat, NotEntered> {
        let place = self.follow(parent, name)?;
        let last = place.name.as_ref().ok_or(NotEntered::Quietly)?;
        self.open_to_all(handle::stat_at(&place.dir, last).map_err(not_entered)?)
    }

    /// Opens an entry that is not a link for reading. A FIFO that replaced the file does not block.
    pub(crate) fn open_file(&self, parent: &Folder, name: &CStr) -> Result<OwnedFd, NotEntered> {
        let above = self.hold(parent).map_err(not_entered)?;
        self.not_closed(openat(above, name, FILE_FLAGS, Mode::empty()).map_err(not_entered)?)
    }

    /// Opens the file that a link leads to.
    pub(crate) fn open_link(&self, parent: &Folder, name: &CStr) -> Result<OwnedFd, NotEntered> {
        let place = self.follow(parent, name)?;
        let last = place.name.as_ref().ok_or(NotEntered::Quietly)?;
        self.not_closed(openat(&place.dir, last, FILE_FLAGS, Mode::empty()).map_err(not_entered)?)
    }

    /// Reports whether the scope refuses an entry, by its real path.
    pub(crate) fn leaves_out(&self, parent: &Folder, name: &CStr) -> bool {
        self.scope.is_refusing() && self.scope.refuses(&parent.real_path_of(name))
    }

    /// Passes every entry except `.` and `..` to `each`, in the order of the file system, until it
    /// returns `false`.
    pub(crate) fn read(
        &self,
        folder: &Folder,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&CStr, Kind) -> bool,
    ) -> Result<(), Errno> {
        let held = self.hold(folder)?;
        let handle = held.as_fd();
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

    /// Follows a link by handle, to the open directory that contains its target. That directory is
    /// not closed, and the scope does not refuse the place. The caller checks whether the target
    /// itself is closed.
    fn follow(&self, parent: &Folder, name: &CStr) -> Result<Place, NotEntered> {
        if self.leaves_out(parent, name) {
            return Err(NotEntered::LeftOut);
        }
        if is_in_proc(self.hold(parent).map_err(not_entered)?.as_fd()) {
            return Err(NotEntered::Quietly);
        }
        let path = parent.real_path_of(name);
        let place = self.scope.tree.place(&path, LastLink::Follow, Missing::Refuse).map_err(not_followed)?;
        if closed_paths::lies_in(&self.closed, &place.dir) {
            return Err(NotEntered::Quietly);
        }
        if self.scope.refuses(&place.path) {
            return Err(NotEntered::LeftOut);
        }
        Ok(place)
    }

    /// Returns the handle of a directory. One that is opened again must be the same directory, and
    /// still not closed.
    fn hold<'f>(&self, folder: &'f Folder) -> Result<Held<'f>, Errno> {
        if let Some(handle) = &folder.handle {
            return Ok(Held::Kept(handle.as_fd()));
        }
        let handle = openat(CWD, folder.real_path(), DIRECTORY_FLAGS, Mode::empty())?;
        if handle::id_of(&handle)? != folder.id || closed_paths::lies_in(&self.closed, &handle) {
            return Err(Errno::NOENT);
        }
        Ok(Held::Opened(handle))
    }

    /// Returns an open file unless the file itself is closed.
    fn not_closed(&self, file: OwnedFd) -> Result<OwnedFd, NotEntered> {
        if !self.closed.is_empty() {
            self.open_to_all(fstat(&file).map_err(not_entered)?)?;
        }
        Ok(file)
    }

    fn open_to_all(&self, stat: Stat) -> Result<Stat, NotEntered> {
        if self.closed.contains(&FileId::of(&stat)) { Err(NotEntered::Quietly) } else { Ok(stat) }
    }
}

impl Folder {
    fn below(
        parent: &Arc<Self>,
        name: &CStr,
        real: Option<PathBuf>,
        handle: OwnedFd,
        id: FileId,
    ) -> Arc<Self> {
        let depth = parent.depth + 1;
        let handle = (depth <= HANDLE_DEPTH).then_some(handle);
        Arc::new(Self {
            handle,
            path: parent.path_of(name),
            real,
            id,
            depth,
            parent: Some(Arc::clone(parent)),
        })
    }

    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    fn real_path(&self) -> &Path {
        self.real.as_ref().unwrap_or(&self.path)
    }

    fn real_path_of(&self, name: &CStr) -> PathBuf {
        self.real_path().join(OsStr::from_bytes(name.to_bytes()))
    }

    fn is_inside(&self, id: FileId) -> bool {
        let mut folder = Some(self);
        while let Some(current) = folder {
            if current.id == id {
                return true;
            }
            folder = current.parent.as_deref();
        }
        false
    }
}

#[cfg(target_os = "linux")]
fn is_in_proc(handle: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(handle).is_ok_and(|system| system.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

#[cfg(not(target_os = "linux"))]
fn is_in_proc(_handle: BorrowedFd<'_>) -> bool {
    false
}

/// Some file systems do not store kinds in their directories.
fn unlisted_kind(handle: BorrowedFd<'_>, name: &CStr) -> Kind {
    match statat(handle, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::RegularFile) => Kind::File,
        Ok(FileType::Directory) => Kind::Folder,
        Ok(FileType::Symlink) => Kind::Link,
        _ => Kind::Other,
    }
}

#[cfg(target_os = "linux")]
fn read_entries(
    handle: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&CStr, FileType) -> bool,
) -> Result<(), Errno> {
    buffer.clear();
    buffer.reserve(READ_BUFFER);
    let mut entries = rustix::fs::RawDir::new(handle, buffer.spare_capacity_mut());
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
    handle: BorrowedFd<'_>,
    _buffer: &mut Vec<u8>,
    mut each: impl FnMut(&CStr, FileType) -> bool,
) -> Result<(), Errno> {
    for entry in rustix::fs::Dir::read_from(handle)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." && !each(name, entry.file_type()) {
            break;
        }
    }
    Ok(())
}

/// `.git` holds history, not the user's files. A `.git` that is a file (a worktree's pointer) is
/// like any other file.
pub(crate) fn is_git(name: &CStr) -> bool {
    name == c".git"
}

fn not_entered(errno: Errno) -> NotEntered {
    match errno {
        // The entry disappeared or was replaced since its directory was read, or is a link that
        // loops.
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => NotEntered::Quietly,
        errno => NotEntered::Unreadable(errno),
    }
}

/// Maps the reason why a link could not be followed.
fn not_followed(err: FileError) -> NotEntered {
    match err {
        FileError::PermissionDenied { .. } => NotEntered::Unreadable(Errno::ACCESS),
        FileError::Io { .. } => NotEntered::Unreadable(Errno::IO),
        // The link is broken, loops, or leads out of the scope.
        _ => NotEntered::Quietly,
    }
}
