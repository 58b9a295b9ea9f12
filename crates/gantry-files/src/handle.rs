//! System calls on handles, with platform differences and retries. This module makes no decisions.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Flags for a directory that only serves as a place, so no read permission is needed.
#[cfg(target_os = "linux")]
pub(crate) const PLACE_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(crate) const PLACE_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// These flags open a file so that neither a FIFO nor a terminal can block.
pub(crate) const FILE_FLAGS: OFlags =
    OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// `FileId` identifies a file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    pub dev: u64,
    pub ino: u64,
}

impl FileId {
    #[expect(clippy::unnecessary_cast, reason = "the field types differ between platforms")]
    pub(crate) fn of(stat: &Stat) -> FileId {
        FileId { dev: stat.st_dev as u64, ino: stat.st_ino as u64 }
    }
}

pub(crate) fn id_of(fd: impl AsFd) -> Result<FileId, Errno> {
    Ok(FileId::of(&rustix::fs::fstat(fd)?))
}

pub(crate) fn open_path_dir(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, PLACE_FLAGS, Mode::empty())
}

/// Opens a directory by its path from another one; links are followed.
pub(crate) fn open_place(dir: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, path, PLACE_FLAGS, Mode::empty())
}

pub(crate) fn open_child_dir(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, PLACE_FLAGS | OFlags::NOFOLLOW, Mode::empty())
}

/// Returns another handle of the same directory.
pub(crate) fn same_dir(dir: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, ".", PLACE_FLAGS, Mode::empty())
}

/// Returns a handle of whatever `path` leads to, without opening it for use.
pub(crate) fn open_any(path: &Path) -> Result<OwnedFd, Errno> {
    #[cfg(target_os = "linux")]
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// Opens the same directory for listing and syncing.
pub(crate) fn readable(dir: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Creates a directory durably. It may already exist.
pub(crate) fn make_dir(dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
        Ok(()) => sync_dir(dir),
        Err(Errno::EXIST) => Ok(()),
        Err(err) => Err(err),
    }
}

/// Makes a directory's entries durable. A directory without read permission cannot be synced; the
/// write is valid anyway.
pub(crate) fn sync_dir(dir: impl AsFd) -> Result<(), Errno> {
    match readable(dir) {
        Ok(dir) => match rustix::fs::fsync(dir) {
            // Some file systems cannot sync a directory.
            Err(Errno::INVAL | Errno::NOTSUP | Errno::BADF) => Ok(()),
            other => other,
        },
        Err(Errno::ACCESS) => Ok(()),
        Err(err) => Err(err),
    }
}

pub(crate) fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// Returns a link's target, or `None` if the entry is missing or not a link.
pub(crate) fn read_link(dir: impl AsFd, name: &OsStr) -> Result<Option<Vec<u8>>, Errno> {
    match rustix::fs::readlinkat(dir, name, Vec::new()) {
        Ok(target) => Ok(Some(target.into_bytes())),
        Err(Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(err) => Err(err),
    }
}

/// Returns the metadata of the entry itself, even of a link.
pub(crate) fn stat_at(dir: impl AsFd, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Describes a kind of file that is not a regular one.
pub(crate) fn kind_name(stat: &Stat) -> Option<&'static str> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Symlink => Some("a symbolic link"),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        _ => Some("something else"),
    }
}

/// Opens a directory beneath `root` by names that contain no link.
#[cfg(target_os = "linux")]
pub(crate) fn open_beneath(root: BorrowedFd<'_>, names: &[OsString]) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;

    /// The kernel returns EAGAIN if a concurrent rename disturbed its check.
    const TRIES: usize = 64;

    let path: PathBuf = if names.is_empty() { PathBuf::from(".") } else { names.iter().collect::<PathBuf>() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    for _ in 0..TRIES {
        match rustix::fs::openat2(root, &path, PLACE_FLAGS, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The kernel is old, or a sandbox does not know the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => return open_by_steps(root, names),
            other => return other,
        }
    }
    open_by_steps(root, names)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn open_beneath(root: BorrowedFd<'_>, names: &[OsString]) -> Result<OwnedFd, Errno> {
    open_by_steps(root, names)
}

/// Does the same without `openat2`: opens one name at a time and follows nothing.
fn open_by_steps(root: BorrowedFd<'_>, names: &[OsString]) -> Result<OwnedFd, Errno> {
    let mut dir = rustix::fs::openat(root, ".", PLACE_FLAGS, Mode::empty())?;
    for name in names {
        dir = open_child_dir(&dir, name)?;
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways to open beneath a root agree, so the one without `openat2` is as strict.
    #[test]
    fn opening_by_steps_agrees_with_openat2() {
        let dir = tempfile::tempdir().unwrap();
        let arena = crate::testing::Arena::new(dir.path()).unwrap();
        let root = open_path_dir(&arena.workspace()).unwrap();
        let mut opened = 0;
        for path in [
            "",
            "dir",
            "dir/sub",
            "plain",
            "dir/inner.txt",
            "missing",
            "out_dir",
            "in_dir",
            "in_dir/sub",
            "up",
            "dir/out",
            "slash/etc",
        ] {
            let names: Vec<OsString> =
                path.split('/').filter(|name| !name.is_empty()).map(OsString::from).collect();
            let by_kernel = open_beneath(root.as_fd(), &names).map(|fd| id_of(fd).unwrap());
            let by_steps = open_by_steps(root.as_fd(), &names).map(|fd| id_of(fd).unwrap());
            assert_eq!(by_kernel.ok(), by_steps.ok(), "{path}");
            opened += usize::from(by_steps.is_ok());
        }
        assert_eq!(opened, 3);
    }

    /// An attacker may put a link there between the check and the open. It is not followed.
    #[test]
    fn opening_a_file_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let arena = crate::testing::Arena::new(dir.path()).unwrap();
        let root = open_path_dir(&arena.workspace()).unwrap();
        for (name, expected) in
            [("plain", None), ("in_file", Some(Errno::LOOP)), ("out_file", Some(Errno::LOOP))]
        {
            for access in [OFlags::RDONLY, OFlags::WRONLY] {
                let opened = rustix::fs::openat(&root, name, FILE_FLAGS | access, Mode::empty());
                assert_eq!(opened.err(), expected, "{name}");
            }
        }
    }
}
