//! A scope is a set of paths that one caller may name, with the operations on them.
//!
//! Each operation resolves its place to a handle, checks whether it is closed, and acts on that
//! handle.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::FileError;
use crate::files::Files;
use crate::handle::{self, FileId};
use crate::place::{LastLink, Missing, Place, Tree};

/// How often a place is looked up again when somebody replaces it during the operation.
pub(crate) const SWAP_TRIES: usize = 64;

#[derive(Debug)]
pub struct Scope {
    pub(crate) files: Files,
    pub(crate) tree: Tree,
    root: PathBuf,
    refused: Refused,
}

/// A test on real paths.
pub type PathTest = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// `Refused` is an optional test for real paths that a scope refuses in addition to closed ones.
#[derive(Default)]
struct Refused(Option<PathTest>);

impl fmt::Debug for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "Refused(some)" } else { "Refused(none)" })
    }
}

/// `OpenFile` is a regular file, open for reading.
#[derive(Debug)]
pub struct OpenFile {
    pub file: File,
    /// The real absolute path, links followed.
    pub path: PathBuf,
    pub meta: FileMeta,
}

/// `OpenDir` is a directory, open for listing or as the working directory of a command.
#[derive(Debug)]
pub struct OpenDir {
    pub fd: OwnedFd,
    /// The real absolute path, links followed.
    pub path: PathBuf,
}

impl OpenDir {
    /// Returns the permission bits and the sticky bit.
    pub fn mode(&self) -> Result<u32, FileError> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|err| FileError::io("look at", &self.path, err))?;
        Ok(FileMeta::of(&stat).mode & 0o1777)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMeta {
    pub id: FileId,
    pub size: u64,
    pub mode: u32,
    /// The number of hard links.
    pub links: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: i128,
    pub(crate) changed_ns: i128,
}

impl Scope {
    pub(crate) fn new(files: Files, tree: Tree, root: PathBuf) -> Scope {
        Scope { files, tree, root, refused: Refused::default() }
    }

    /// Also refuses places whose real path passes a test. The test runs on what was found by
    /// handle, before anything is read, written or created there. Walks and listings leave such
    /// places out and count them.
    pub fn refusing(self, refuses: PathTest) -> Scope {
        Scope { refused: Refused(Some(refuses)), ..self }
    }

    pub(crate) fn is_refusing(&self) -> bool {
        self.refused.0.is_some()
    }

    /// Reports whether the scope's test refuses this real path.
    pub(crate) fn refuses(&self, real: &Path) -> bool {
        self.refused.0.as_ref().is_some_and(|refuses| refuses(real))
    }

    /// The real absolute path of the root of a contained scope, or of the base of a free one.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns where a path really leads, with links followed. For a missing path, resolves the
    /// nearest existing ancestor and appends the rest. It also returns a refused path, so that a
    /// policy can decide about it.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<PathBuf, FileError> {
        let place = self.tree.place(path.as_ref(), LastLink::Follow, Missing::Note)?;
        self.files.inner.closed.check_place(&place)?;
        Ok(place.full_path())
    }

    /// Like `resolve`, for callers that only judge a path. It also returns a closed path, which is
    /// refused when it is used.
    pub fn leads_to(&self, path: impl AsRef<Path>) -> Result<PathBuf, FileError> {
        Ok(self.tree.place(path.as_ref(), LastLink::Follow, Missing::Note)?.full_path())
    }

    /// Opens a regular file. Anything else is an error, without blocking.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<OpenFile, FileError> {
        let asked = path.as_ref();
        for _ in 0..SWAP_TRIES {
            let place = self.place(asked, LastLink::Follow, Missing::Refuse)?;
            if let Some(file) = self.open_at(&place, asked)? {
                return Ok(file);
            }
        }
        Err(FileError::TooManyLinks { path: asked.into() })
    }

    /// Opens a directory.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<OpenDir, FileError> {
        let asked = path.as_ref();
        let fail = |err| FileError::io("open", asked, err);
        for _ in 0..SWAP_TRIES {
            let place = self.place(asked, LastLink::Follow, Missing::Refuse)?;
            let dir = match &place.name {
                None => handle::same_dir(&place.dir),
                Some(name) => handle::open_child_dir(&place.dir, name),
            };
            match dir {
                Ok(dir) => {
                    self.files.inner.closed.check_dir(&dir, asked)?;
                    return Ok(OpenDir { fd: handle::readable(dir).map_err(fail)?, path: place.path });
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let name = place.name.unwrap_or_default();
                    if !handle::stat_at(&place.dir, &name).as_ref().is_ok_and(handle::is_link) {
                        return Err(FileError::NotADirectory { path: asked.into() });
                    }
                }
                Err(err) => return Err(fail(err)),
            }
        }
        Err(FileError::TooManyLinks { path: asked.into() })
    }

    /// Resolves a place, if it is neither closed nor refused.
    pub(crate) fn place(&self, path: &Path, last: LastLink, missing: Missing) -> Result<Place, FileError> {
        if missing == Missing::Make {
            // Checks before creating, so that no directories appear on the way into a closed path.
            let seen = self.tree.place(path, last, Missing::Note)?;
            self.permit(path, &seen)?;
        }
        let place = self.tree.place(path, last, missing)?;
        self.permit(path, &place)?;
        Ok(place)
    }

    fn permit(&self, asked: &Path, place: &Place) -> Result<(), FileError> {
        self.files.inner.closed.check_place(place)?;
        if self.is_refusing() && self.refuses(&place.full_path()) {
            return Err(FileError::Sensitive { path: asked.into() });
        }
        Ok(())
    }

    /// Opens the file at a place; `None` if it became a link in the meantime, so that the path must
    /// be resolved again.
    pub(crate) fn open_at(&self, place: &Place, asked: &Path) -> Result<Option<OpenFile>, FileError> {
        let fail = |err| FileError::io("open", asked, err);
        let Some(name) = &place.name else {
            return Err(FileError::NotAFile { path: asked.into(), what: "a directory" });
        };
        // The file is examined before it is opened, because opening a device may already have an
        // effect.
        let seen = place.stat().unwrap_or(Err(Errno::ISDIR)).map_err(fail)?;
        match handle::kind_name(&seen) {
            None => {}
            Some("a symbolic link") => return Ok(None),
            Some(what) => return Err(FileError::NotAFile { path: asked.into(), what }),
        }
        let flags = handle::FILE_FLAGS | OFlags::RDONLY;
        let fd = match rustix::fs::openat(&place.dir, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(err) => return Err(fail(err)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(fail)?;
        if let Some(what) = handle::kind_name(&stat) {
            return Err(FileError::NotAFile { path: asked.into(), what });
        }
        let meta = FileMeta::of(&stat);
        // The checks apply to what was found at the place, not to what replaced it since.
        if place.found() != Some(meta.id) {
            self.files.inner.closed.check_id(meta.id, asked)?;
        }
        Ok(Some(OpenFile { file: File::from(fd), path: place.path.clone(), meta }))
    }
}

impl OpenFile {
    /// Refuses a file that has content but reports a size of zero, as in `/proc`. If sent, it would
    /// arrive empty.
    pub fn check_reports_size(&self) -> Result<(), FileError> {
        if self.meta.size > 0 || self.read_up_to(1)?.is_empty() {
            return Ok(());
        }
        let stat = rustix::fs::fstat(&self.file).map_err(|err| FileError::io("read", &self.path, err))?;
        // The file was just written. The sender notices that it changed.
        if FileMeta::of(&stat).size > 0 {
            return Ok(());
        }
        Err(FileError::NotAFile { path: self.path.clone(), what: "a file that does not report its size" })
    }

    /// Reads the whole content, if it is at most `limit` bytes.
    pub fn read_all(&self, limit: u64) -> Result<Vec<u8>, FileError> {
        let too_large = |size| FileError::TooLarge { path: self.path.clone(), size, limit };
        if self.meta.size > limit {
            return Err(too_large(self.meta.size));
        }
        let bytes = self.read_up_to(limit.saturating_add(1))?;
        if bytes.len() as u64 > limit {
            return Err(too_large(bytes.len() as u64));
        }
        Ok(bytes)
    }

    /// Reads the whole content, if it is at most `limit` bytes and in the page cache. This never
    /// waits for a disk.
    #[cfg(target_os = "linux")]
    pub(crate) fn read_if_cached(&self, limit: u64) -> Option<Vec<u8>> {
        use rustix::io::{ReadWriteFlags, preadv2};

        let size = usize::try_from(self.meta.size).ok().filter(|_| (1..=limit).contains(&self.meta.size))?;
        let mut bytes = vec![0; size];
        let buffers = &mut [io::IoSliceMut::new(&mut bytes)];
        let read = preadv2(&self.file, buffers, 0, ReadWriteFlags::NOWAIT).ok()?;
        (read == size).then_some(bytes)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read_if_cached(&self, _limit: u64) -> Option<Vec<u8>> {
        None
    }

    /// Reads the first `limit` bytes, or fewer if the file ends before. Memory is the size of the
    /// file, at most `limit`.
    pub fn read_up_to(&self, limit: u64) -> Result<Vec<u8>, FileError> {
        let fail = |err| FileError::io("read", &self.path, err);
        // One byte more than the file had shows that it grew, or that it does not report its size,
        // as in `/proc`.
        let expected = self.meta.size.saturating_add(1).min(limit);
        let mut bytes = vec![0; usize::try_from(expected).unwrap_or(usize::MAX)];
        let filled = fill(&self.file, &mut bytes).map_err(fail)?;
        bytes.truncate(filled);
        if filled as u64 == expected {
            // Reads by offset and not at the shared file position, because a handle may be read
            // twice.
            let rest = FileAt { file: &self.file, offset: expected };
            rest.take(limit - expected).read_to_end(&mut bytes).map_err(fail)?;
        }
        Ok(bytes)
    }
}

/// Fills the buffer from the start of a file. A large file is read on two threads, because half the
/// time goes into faulting in fresh memory pages.
fn fill(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    const WORTH_A_THREAD: usize = 16 * 1024 * 1024;
    if buffer.len() < WORTH_A_THREAD {
        return fill_from(file, buffer, 0);
    }
    let middle = buffer.len() / 2;
    let (first, second) = buffer.split_at_mut(middle);
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| fill_from(file, second, middle as u64));
        (fill_from(file, first, 0), second.join())
    });
    let second = second.unwrap_or_else(|_| Err(io::Error::other("the reading thread panicked")))?;
    // A file that shrank in the meantime ends where its first half does.
    Ok(match first? {
        first if first < middle => first,
        first => first + second,
    })
}

pub(crate) fn fill_from(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(filled)
}

/// `FileAt` reads a file from its own position.
struct FileAt<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for FileAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl FileMeta {
    #[expect(clippy::unnecessary_cast, reason = "the field types differ between platforms")]
    pub(crate) fn of(stat: &Stat) -> FileMeta {
        let nanos = |secs: i64, nsecs: i64| i128::from(secs) * 1_000_000_000 + i128::from(nsecs);
        FileMeta {
            id: FileId::of(stat),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode as u32 & 0o7777,
            links: stat.st_nlink as u64,
            modified_ns: nanos(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed_ns: nanos(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    pub fn modified(&self) -> SystemTime {
        let nanos = |count: i128| {
            let count = u128::try_from(count).unwrap_or(0);
            let secs = u64::try_from(count / 1_000_000_000).unwrap_or(u64::MAX / 4);
            Duration::new(secs, (count % 1_000_000_000) as u32)
        };
        let time = if self.modified_ns >= 0 {
            UNIX_EPOCH.checked_add(nanos(self.modified_ns))
        } else {
            UNIX_EPOCH.checked_sub(nanos(-self.modified_ns))
        };
        time.unwrap_or(UNIX_EPOCH)
    }
}
