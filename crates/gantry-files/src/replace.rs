//! Replaces a file's content atomically: readers see the old or the new content, never a mixture.
//!
//! The steps are: create a temp file in the same directory; write it; set owner, extended
//! attributes and mode; sync; rename; sync the directory. A link is followed and its target
//! replaced. If a file has several hard links, only the named one gets the new content, because the
//! rename replaces the name and not the inode.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::attributes;
use crate::error::FileError;
use crate::handle;
use crate::lock::Held;
use crate::place::{LastLink, Missing, Place};
use crate::scope::{FileMeta, SWAP_TRIES, Scope};
use crate::tag;
use crate::temp_records::TempName;

#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Creates missing parent directories.
    pub make_parents: bool,
    /// Refuses to replace an existing file.
    pub only_new: bool,
}

/// `Written` says what a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The real absolute path, links followed.
    pub path: PathBuf,
    pub bytes: u64,
    /// Whether the file did not exist before.
    pub created: bool,
    pub tag: String,
}

/// `Old` is the file that is about to be replaced.
#[derive(Debug)]
pub(crate) struct Old {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
}

impl Scope {
    /// Replaces a file's content by `parts`, one after the other.
    pub fn replace(
        &self,
        path: impl AsRef<Path>,
        parts: &[&[u8]],
        options: WriteOptions,
    ) -> Result<Written, FileError> {
        let asked = path.as_ref();
        let missing = if options.make_parents { Missing::Make } else { Missing::Refuse };
        for _ in 0..SWAP_TRIES {
            let place = self.writable_place(asked, missing)?;
            let name = file_name(&place, asked)?;
            let _guard = self.lock(&place, name, asked)?;
            let Ok(old) = self.old_file(&place, name, asked)? else { continue };
            if old.is_some() && options.only_new {
                return Err(FileError::Exists { path: asked.into() });
            }
            let overwrite = if options.only_new { Overwrite::Never } else { Overwrite::Always };
            return self.write_at(&place, name, asked, old.as_ref(), parts, overwrite);
        }
        Err(FileError::TooManyLinks { path: asked.into() })
    }

    pub(crate) fn writable_place(&self, asked: &Path, missing: Missing) -> Result<Place, FileError> {
        // Refuses this before anything is created.
        if asked.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(FileError::NotAFile { path: asked.into(), what: "a directory" });
        }
        self.place(asked, LastLink::Follow, missing)
    }

    pub(crate) fn lock(&self, place: &Place, name: &OsStr, asked: &Path) -> Result<Held<'_>, FileError> {
        let dir = handle::id_of(&place.dir).map_err(|err| FileError::io("open", asked, err))?;
        Ok(self.files.inner.locks.lock(dir, name))
    }

    /// Opens the file at a place for writing, which proves that it is writable. Returns `Err(())`
    /// inside if it became a link in the meantime.
    pub(crate) fn old_file(
        &self,
        place: &Place,
        name: &OsStr,
        asked: &Path,
    ) -> Result<Result<Option<Old>, ()>, FileError> {
        let fail = |err| FileError::io("write", asked, err);
        let seen = match handle::stat_at(&place.dir, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Ok(None)),
            Err(err) => return Err(fail(err)),
        };
        match handle::kind_name(&seen) {
            None => {}
            Some("a symbolic link") => return Ok(Err(())),
            Some(what) => return Err(FileError::NotAFile { path: asked.into(), what }),
        }
        let open = |access| rustix::fs::openat(&place.dir, name, handle::FILE_FLAGS | access, Mode::empty());
        // A rename would also replace a read-only file. Opening it for writing checks what the OS
        // allows.
        let opened = match open(OFlags::WRONLY) {
            // A running program cannot be written, but it can be replaced.
            Err(Errno::TXTBSY) => open(OFlags::RDONLY),
            other => other,
        };
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::LOOP | Errno::NXIO | Errno::NOENT) => return Ok(Err(())),
            Err(err) => return Err(fail(err)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(fail)?;
        if let Some(what) = handle::kind_name(&stat) {
            return Err(FileError::NotAFile { path: asked.into(), what });
        }
        self.files.inner.closed.check_id(FileMeta::of(&stat).id, asked)?;
        Ok(Ok(Some(Old { fd, stat })))
    }

    /// Checks whether the file at a place may be replaced by another one. Returns `Err(())` inside
    /// if it became a link in the meantime. A user's own read-only file may be replaced, so that a
    /// repeated transfer need not change its mode first.
    pub(crate) fn check_replaceable(
        &self,
        place: &Place,
        name: &OsStr,
        asked: &Path,
    ) -> Result<Result<(), ()>, FileError> {
        if let Ok(seen) = handle::stat_at(&place.dir, name)
            && handle::kind_name(&seen).is_none()
            && seen.st_uid == rustix::process::geteuid().as_raw()
            && !Mode::from_raw_mode(seen.st_mode).contains(Mode::WUSR)
        {
            self.files.inner.closed.check_id(FileMeta::of(&seen).id, asked)?;
            return Ok(Ok(()));
        }
        Ok(self.old_file(place, name, asked)?.map(drop))
    }

    pub(crate) fn write_at(
        &self,
        place: &Place,
        name: &OsStr,
        asked: &Path,
        old: Option<&Old>,
        parts: &[&[u8]],
        overwrite: Overwrite,
    ) -> Result<Written, FileError> {
        let fail = |err: io::Error| FileError::io("write", asked, err);
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let mut temp = self.temp_in(place, Mode::from_raw_mode(mode), asked)?;
        write_parts(&mut temp.file, parts).map_err(fail)?;
        if let Some(old) = old {
            attributes::keep(&old.fd, &old.stat, &temp.file, asked)?;
        }
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let tag = sync_and_hash(&temp.file, parts, bytes).map_err(fail)?;
        let stat = rustix::fs::fstat(&temp.file).map_err(|err| fail(err.into()))?;
        temp.rename_to(name, overwrite, asked)?;
        let tag = tag.unwrap_or_else(|| tag::weak(&FileMeta::of(&stat)));
        Ok(Written { path: place.path.clone(), bytes, created: old.is_none(), tag })
    }

    /// Creates an empty temp file in the directory of a place, recorded until it is renamed or
    /// dropped.
    pub(crate) fn temp_in<'a>(
        &'a self,
        place: &'a Place,
        mode: Mode,
        asked: &Path,
    ) -> Result<Temp<'a>, FileError> {
        let parent = place.path.parent().unwrap_or(Path::new("/"));
        let name = self.files.inner.pending.name_in(parent)?;
        let flags = handle::FILE_FLAGS | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let fd = rustix::fs::openat(&place.dir, &name.name, flags, mode)
            .map_err(|err| FileError::io("write", asked, err))?;
        Ok(Temp { dir: &place.dir, name, file: File::from(fd), renamed: false })
    }
}

/// Syncs the file and hashes its content. A large file is hashed on another thread, which takes no
/// extra time while the disk works.
fn sync_and_hash(file: &File, parts: &[&[u8]], bytes: u64) -> io::Result<Option<String>> {
    const LARGE: u64 = 1 << 20;
    if bytes < LARGE {
        file.sync_all()?;
        return Ok(tag::hashed(parts));
    }
    std::thread::scope(|scope| {
        let hashing = scope.spawn(|| tag::hashed(parts));
        let synced = file.sync_all();
        let tag = hashing.join().map_err(|_| io::Error::other("hashing the content failed"))?;
        synced.map(|()| tag)
    })
}

/// `Overwrite` says whether the rename may replace an existing file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Overwrite {
    Always,
    Never,
    /// Replaces only the file that was read, if it is unchanged.
    If(FileMeta),
}

/// `Temp` is a temp file that is removed unless it is renamed.
pub(crate) struct Temp<'a> {
    dir: &'a OwnedFd,
    name: TempName<'a>,
    pub(crate) file: File,
    renamed: bool,
}

impl Temp<'_> {
    /// Gives the temp file its real name, durably.
    pub(crate) fn rename_to(
        mut self,
        name: &OsStr,
        overwrite: Overwrite,
        asked: &Path,
    ) -> Result<(), FileError> {
        let fail = |err| FileError::io("write", asked, err);
        let temp = self.name.name.as_str();
        match overwrite {
            Overwrite::Always => rustix::fs::renameat(self.dir, temp, self.dir, name).map_err(fail)?,
            Overwrite::Never => rename_new(self.dir, OsStr::new(temp), self.dir, name).map_err(fail)?,
            Overwrite::If(read) => {
                let now = handle::stat_at(self.dir, name).map(|stat| FileMeta::of(&stat));
                if now != Ok(read) {
                    return Err(FileError::ChangedMeanwhile { path: asked.into() });
                }
                rustix::fs::renameat(self.dir, temp, self.dir, name).map_err(fail)?;
            }
        }
        self.renamed = true;
        handle::sync_dir(self.dir).map_err(fail)
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = rustix::fs::unlinkat(self.dir, &self.name.name, AtFlags::empty());
        }
    }
}

/// Renames without ever replacing an existing entry.
pub(crate) fn rename_new(
    from_dir: &OwnedFd,
    from: &OsStr,
    to_dir: &OwnedFd,
    to: &OsStr,
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE) {
        // The file system does not support the flag. A second hard link is as safe.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            rustix::fs::linkat(from_dir, from, to_dir, to, AtFlags::empty())?;
            rustix::fs::unlinkat(from_dir, from, AtFlags::empty())
        }
        other => other,
    }
}

fn write_parts(file: &mut File, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = slices.as_mut_slice();
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

pub(crate) fn file_name<'a>(place: &'a Place, asked: &Path) -> Result<&'a OsStr, FileError> {
    place.name.as_deref().ok_or_else(|| FileError::NotAFile { path: asked.into(), what: "a directory" })
}
