//! Moves, copies and removes files. None of these overwrites anything, and neither moving nor
//! removing follows a final link.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::attributes;
use crate::error::FileError;
use crate::handle;
use crate::place::{LastLink, Missing, Place};
use crate::replace::{self, Overwrite};
use crate::scope::{FileMeta, OpenDir, Scope};

const COPY_BYTES: usize = 1024 * 1024;

/// `Moved` says what a move did, in real absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub from: PathBuf,
    pub to: PathBuf,
}

impl Scope {
    /// Copies a file with its attributes to a name that is free. Follows a final link of `from`.
    pub fn copy_new(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        cancelled: &AtomicBool,
    ) -> Result<(), FileError> {
        let (asked_from, asked_to) = (from.as_ref(), to.as_ref());
        let source = self.place(asked_from, LastLink::Follow, Missing::Refuse)?;
        let target = self.place(asked_to, LastLink::Keep, Missing::Refuse)?;
        self.copy_file(&source, &target, asked_from, asked_to, cancelled)
    }

    /// Gives a file, link or directory a new name that is free. Across devices a file is copied,
    /// synced, then removed.
    pub fn rename_new(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        cancelled: &AtomicBool,
    ) -> Result<Moved, FileError> {
        let (asked_from, asked_to) = (from.as_ref(), to.as_ref());
        let source = self.place(asked_from, LastLink::Keep, Missing::Refuse)?;
        let target = self.place(asked_to, LastLink::Keep, Missing::Refuse)?;
        let (from_name, to_name) = (last_name(&source, asked_from)?, last_name(&target, asked_to)?);
        let from_dir = handle::id_of(&source.dir).map_err(|err| FileError::io("move", asked_from, err))?;
        let to_dir = handle::id_of(&target.dir).map_err(|err| FileError::io("move", asked_to, err))?;
        let _guards = self.files.inner.locks.lock_two((from_dir, from_name), (to_dir, to_name));
        let stat =
            handle::stat_at(&source.dir, from_name).map_err(|err| FileError::io("move", asked_from, err))?;
        let id = FileMeta::of(&stat).id;
        self.files.inner.closed.check_id(id, asked_from)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.files.inner.closed.check_contains_none(id, asked_from)?;
        }
        match replace::rename_new(&source.dir, from_name, &target.dir, to_name) {
            Ok(()) => {}
            Err(Errno::XDEV) => self.move_by_copy(&source, &target, asked_from, asked_to, cancelled)?,
            Err(Errno::NOENT) => return Err(FileError::NotFound { path: asked_from.into() }),
            Err(err) => return Err(FileError::io("move to", asked_to, err)),
        }
        handle::sync_dir(&target.dir).map_err(|err| FileError::io("move to", asked_to, err))?;
        handle::sync_dir(&source.dir).map_err(|err| FileError::io("move", asked_from, err))?;
        Ok(Moved { from: source.path, to: target.path })
    }

    /// Reports whether nothing has this name yet, not even a broken link. Only the move itself can
    /// be certain.
    pub fn is_free(&self, path: impl AsRef<Path>) -> Result<bool, FileError> {
        let asked = path.as_ref();
        let place = self.place(asked, LastLink::Keep, Missing::Note)?;
        let Some(name) = &place.name else { return Ok(false) };
        match handle::stat_at(&place.dir, name) {
            Ok(_) => Ok(false),
            Err(Errno::NOENT) => Ok(true),
            Err(err) => Err(FileError::io("look at", asked, err)),
        }
    }

    /// Creates a directory and its missing parents, and opens it.
    pub fn make_dirs(&self, path: impl AsRef<Path>) -> Result<OpenDir, FileError> {
        let asked = path.as_ref();
        // Resolving a name inside the directory creates the directories on the way to it, which are
        // the wanted ones.
        self.place(&asked.join("entry"), LastLink::Keep, Missing::Make).map_err(|err| err.about(asked))?;
        self.open_dir(asked)
    }

    /// Removes a file or a link, never a directory.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<PathBuf, FileError> {
        let asked = path.as_ref();
        let fail = |err| FileError::io("remove", asked, err);
        let place = self.place(asked, LastLink::Keep, Missing::Refuse)?;
        let name = last_name(&place, asked)?;
        let _guard = self.lock(&place, name, asked)?;
        let stat = handle::stat_at(&place.dir, name).map_err(fail)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(FileError::NotAFile { path: asked.into(), what: "a directory" });
        }
        self.files.inner.closed.check_id(FileMeta::of(&stat).id, asked)?;
        rustix::fs::unlinkat(&place.dir, name, AtFlags::empty()).map_err(fail)?;
        handle::sync_dir(&place.dir).map_err(fail)?;
        Ok(place.path)
    }

    fn move_by_copy(
        &self,
        source: &Place,
        target: &Place,
        asked_from: &Path,
        asked_to: &Path,
        cancelled: &AtomicBool,
    ) -> Result<(), FileError> {
        let fail = |err| FileError::io("move", asked_from, err);
        let (from_name, to_name) = (last_name(source, asked_from)?, last_name(target, asked_to)?);
        if let Some(link) = handle::read_link(&source.dir, from_name).map_err(fail)? {
            rustix::fs::symlinkat(link, &target.dir, to_name)
                .map_err(|err| FileError::io("move to", asked_to, err))?;
        } else {
            self.copy_file(source, target, asked_from, asked_to, cancelled)?;
        }
        rustix::fs::unlinkat(&source.dir, from_name, AtFlags::empty()).map_err(fail)
    }

    fn copy_file(
        &self,
        source: &Place,
        target: &Place,
        asked_from: &Path,
        asked_to: &Path,
        cancelled: &AtomicBool,
    ) -> Result<(), FileError> {
        let to_name = last_name(target, asked_to)?;
        let Some(from) = self.open_at(source, asked_from)? else {
            return Err(FileError::NotAFile { path: asked_from.into(), what: "a symbolic link" });
        };
        let mut temp = self.temp_in(target, Mode::from_raw_mode(0o600), asked_to)?;
        let stat = rustix::fs::fstat(&from.file).map_err(|err| FileError::io("read", asked_from, err))?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut reader = &from.file;
        loop {
            if cancelled.load(Ordering::Relaxed) {
                return Err(FileError::Cancelled);
            }
            let count = io::Read::read(&mut reader, &mut buffer)
                .map_err(|err| FileError::io("read", asked_from, err))?;
            if count == 0 {
                break;
            }
            io::Write::write_all(&mut temp.file, &buffer[..count])
                .map_err(|err| FileError::io("write", asked_to, err))?;
        }
        attributes::keep(&from.file.into(), &stat, &temp.file, asked_to)?;
        temp.file.sync_all().map_err(|err| FileError::io("write", asked_to, err))?;
        temp.rename_to(to_name, Overwrite::Never, asked_to)
    }
}

fn last_name<'a>(place: &'a Place, asked: &Path) -> Result<&'a OsStr, FileError> {
    place.name.as_deref().ok_or_else(|| FileError::NotAFile { path: asked.into(), what: "a directory" })
}
