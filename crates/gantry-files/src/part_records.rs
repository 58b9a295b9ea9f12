//! Records the part files of transfers before they are created, so that none is left behind for
//! ever.
//!
//! Each owner (for example a gateway, for one node) has a folder. It has a folder for each
//! transfer, which has a link for each part: named like the part and pointing to it. A link is
//! created and removed in one step, so a record is never torn.
//!
//! A record is only a hint. What is removed must have the name of a part, be a regular file and
//! belong to this user.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::FileError;
use crate::files::Files;
use crate::handle;
use crate::partial_file::{is_part_id, part_file_name, part_id};
use crate::scope::SWAP_TRIES;

/// `PartRecords` holds the records of one owner.
#[derive(Debug, Clone)]
pub struct PartRecords {
    files: Files,
    root: PathBuf,
    folder: PathBuf,
}

impl Files {
    /// Returns the records below `root` that belong to `owner`. This creates nothing.
    pub fn part_records(&self, root: &Path, owner: &str) -> Result<PartRecords, FileError> {
        check_id(root, owner)?;
        Ok(PartRecords { files: self.clone(), root: root.to_owned(), folder: root.join(owner) })
    }
}

impl PartRecords {
    /// Records that `part` is about to be created. A part that the same name recorded at another
    /// path is removed.
    pub fn note(&self, transfer: &str, name: &str, part: &Path) -> Result<(), FileError> {
        check_id(part, transfer).and_then(|()| check_id(part, name))?;
        let (folder, record) = (self.folder.join(transfer), self.folder.join(transfer).join(name));
        let fail = |err: io::Error| FileError::io("record the part", part, err);
        for _ in 0..SWAP_TRIES {
            match DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
                // The last record was just removed, and the owner's folder with it.
                Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
                made => made.map_err(fail)?,
            }
            match std::os::unix::fs::symlink(part, &record) {
                Ok(()) => return Ok(()),
                // The last other part of this transfer was just removed, and its folder with it.
                Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => match std::fs::read_link(&record) {
                    Ok(known) if known == part => return Ok(()),
                    _ => self.remove_part(&record, OsStr::new(name))?,
                },
                Err(err) => return Err(fail(err)),
            }
        }
        Err(fail(io::Error::other("its record keeps changing")))
    }

    /// Reports whether a file is a recorded part, of any transfer. A file that only has a part's
    /// name belongs to somebody.
    pub fn holds(&self, part: &Path) -> Result<bool, FileError> {
        let Some(name) = part.file_name().and_then(part_id) else { return Ok(false) };
        for owner in names_in(&self.root)? {
            let owner = self.root.join(owner);
            for transfer in names_in(&owner)? {
                let is_its = transfer.to_str().is_some_and(|transfer| name.starts_with(transfer));
                if is_its
                    && std::fs::read_link(owner.join(&transfer).join(name)).is_ok_and(|known| known == part)
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Removes a record, because the part has its final name or is gone. The record of a part that
    /// was created again stays.
    pub fn erase(&self, transfer: &str, name: &str) -> Result<(), FileError> {
        let folder = self.folder.join(transfer);
        let record = folder.join(name);
        // On an error the record stays too, and the next sweep checks again. The file itself is
        // complete.
        if self.target_exists(&record).unwrap_or(true) {
            return Ok(());
        }
        erase(&record)?;
        remove_empty(&folder);
        remove_empty(&self.folder);
        Ok(())
    }

    /// Lists transfers that have parts, at most `most`.
    pub fn transfers(&self, most: usize) -> Result<Vec<String>, FileError> {
        let names = names_in(&self.folder)?.filter_map(|name| name.into_string().ok());
        Ok(names.filter(|name| is_part_id(name)).take(most).collect())
    }

    /// Removes all parts of a transfer. What cannot be removed stays recorded.
    pub fn remove(&self, transfer: &str) -> Result<(), FileError> {
        check_id(&self.folder, transfer)?;
        let folder = self.folder.join(transfer);
        let mut failed = None;
        for name in names_in(&folder)? {
            if let Err(err) = self.remove_part(&folder.join(&name), &name) {
                failed.get_or_insert(err);
            }
        }
        remove_empty(&folder);
        remove_empty(&self.folder);
        failed.map_or(Ok(()), Err)
    }

    /// Hands all records over to another owner, who continues the transfers. What cannot be moved
    /// stays.
    pub fn hand_over_to(&self, owner: &str) -> Result<(), FileError> {
        check_id(&self.root, owner)?;
        let new = self.root.join(owner);
        let mut failed = None;
        for transfer in names_in(&self.folder)? {
            let (from, to) = (self.folder.join(&transfer), new.join(&transfer));
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&new);
            if let Err(err) = made.and_then(|()| std::fs::rename(&from, &to)) {
                failed.get_or_insert(FileError::io("hand over the record", &from, err));
            }
        }
        remove_empty(&self.folder);
        failed.map_or(Ok(()), Err)
    }

    /// Removes parts of any owner that nobody has written to for `older_than`, and returns how
    /// many. The next sweep retries what could not be removed.
    pub fn sweep(&self, older_than: Duration) -> Result<usize, FileError> {
        let mut swept = 0;
        for owner in names_in(&self.root)? {
            let owner = self.root.join(owner);
            for transfer in names_in(&owner)? {
                let transfer = owner.join(transfer);
                for name in names_in(&transfer)? {
                    let record = transfer.join(&name);
                    if self.is_abandoned(&record, older_than) && self.remove_part(&record, &name).is_ok() {
                        swept += 1;
                    }
                }
                remove_empty(&transfer);
            }
            remove_empty(&owner);
        }
        Ok(swept)
    }

    /// Reports whether neither the record nor its part was touched for `older_than`, and nobody is
    /// receiving it.
    fn is_abandoned(&self, record: &Path, older_than: Duration) -> bool {
        let old = |modified: io::Result<SystemTime>| {
            modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age >= older_than))
        };
        if !std::fs::symlink_metadata(record).is_ok_and(|meta| old(meta.modified())) {
            return false;
        }
        let Ok(part) = std::fs::read_link(record) else { return false };
        let Some((dir, name)) = self.parent(&part).ok().flatten() else { return true };
        let flags = handle::FILE_FLAGS | OFlags::RDONLY;
        match rustix::fs::openat(&dir, name, flags, Mode::empty()).map(File::from) {
            Ok(file) => {
                let free = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
                free && file.metadata().is_ok_and(|meta| old(meta.modified()))
            }
            Err(err) => err == Errno::NOENT,
        }
    }

    /// Reports whether the path that a record names exists.
    fn target_exists(&self, record: &Path) -> Result<bool, FileError> {
        let Ok(part) = std::fs::read_link(record) else { return Ok(false) };
        Ok(self.parent(&part)?.is_some_and(|(dir, name)| handle::stat_at(&dir, name).is_ok()))
    }

    /// Removes the part that a record names, then the record.
    fn remove_part(&self, record: &Path, name: &OsStr) -> Result<(), FileError> {
        // Only links are records. Anything else must not be removed.
        let Ok(part) = std::fs::read_link(record) else { return Ok(()) };
        let ours = name.to_str().filter(|name| is_part_id(name)).map(part_file_name);
        if part.is_absolute() && ours.as_deref().map(OsStr::new) == part.file_name() {
            let fail = |err: Errno| FileError::io("remove the received part", &part, err);
            if let Some((dir, name)) = self.parent(&part)? {
                match handle::stat_at(&dir, name) {
                    Ok(stat)
                        if handle::kind_name(&stat).is_none()
                            && stat.st_uid == rustix::process::geteuid().as_raw() =>
                    {
                        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
                            // The part may just have received its final name.
                            Ok(()) | Err(Errno::NOENT) => {}
                            Err(err) => return Err(fail(err)),
                        }
                    }
                    // Something else now has the part's name.
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(err) => return Err(fail(err)),
                }
            }
        }
        erase(record)
    }

    /// Opens the directory of a part without following any link; `None` if it does not exist any
    /// more.
    fn parent<'a>(&self, part: &'a Path) -> Result<Option<(std::os::fd::OwnedFd, &'a OsStr)>, FileError> {
        let (Some(above), Some(name)) = (part.parent(), part.file_name()) else { return Ok(None) };
        let plain = |component: Component<'_>| match component {
            Component::Normal(name) => Some(OsString::from(name)),
            _ => None,
        };
        let Some(names) = above.components().skip(1).map(plain).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        match self.files.open_plain_dir(&names) {
            Ok(dir) => {
                self.files.inner.closed.check_dir(&dir, above)?;
                Ok(Some((dir, name)))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(err) => Err(FileError::io("find the received part", part, err)),
        }
    }
}

fn check_id(path: &Path, id: &str) -> Result<(), FileError> {
    if is_part_id(id) {
        return Ok(());
    }
    let shown: String = id.chars().take(80).collect();
    let message = format!("{shown:?} is not a valid transfer name");
    Err(FileError::io("receive", path, io::Error::new(io::ErrorKind::InvalidInput, message)))
}

/// Only a link whose folder is not itself a link is a record.
fn erase(record: &Path) -> Result<(), FileError> {
    if !record.is_symlink() || record.parent().is_some_and(Path::is_symlink) {
        return Ok(());
    }
    match std::fs::remove_file(record) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            Err(FileError::io("remove the record", record, err))
        }
        _ => Ok(()),
    }
}

/// Folders are created with their first entry and removed with the last.
fn remove_empty(folder: &Path) {
    let _ = std::fs::remove_dir(folder);
}

/// Lists a folder. A missing folder and a link are empty: the target of a link holds no records.
fn names_in(folder: &Path) -> Result<impl Iterator<Item = OsString> + use<>, FileError> {
    let is_folder = std::fs::symlink_metadata(folder).map(|meta| meta.is_dir());
    let entries =
        match is_folder.and_then(|is_folder| is_folder.then(|| std::fs::read_dir(folder)).transpose()) {
            Ok(entries) => entries,
            Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
            Err(err) => return Err(FileError::io("read", folder, err)),
        };
    Ok(entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name())))
}
