//! Receives a file in pieces. A crash or a lost connection loses nothing that was received, and
//! nobody sees an incomplete file.
//!
//! The pieces go into a part file in the destination's directory, which outlives this process on
//! purpose. Only [`PartialFile::commit`] gives it the final name. The receiver decides whether the
//! bytes are correct.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::attributes;
use crate::error::FileError;
use crate::files::Files;
use crate::handle;
use crate::place::Missing;
use crate::replace::file_name;
use crate::scope::{FileMeta, SWAP_TRIES, Scope, fill_from};

const MAX_NAME_BYTES: usize = 64;
const HASH_BLOCK: usize = 1 << 20;

/// `PartialFile` is the received part of a file. Dropping it keeps the part. Each name can be open
/// only once.
#[derive(Debug)]
pub struct PartialFile {
    files: Files,
    dir: Arc<OwnedFd>,
    /// The last component of the destination.
    name: OsString,
    part_name: String,
    file: File,
    /// The real absolute path of the destination.
    path: PathBuf,
    asked: PathBuf,
    length: u64,
}

impl Scope {
    /// Opens the received part of a file for `path`, or starts a new one. `name` identifies the
    /// transfer.
    ///
    /// Missing directories are created. The destination may exist and stays unchanged until the
    /// commit.
    pub fn open_partial(&self, path: impl AsRef<Path>, name: &str) -> Result<PartialFile, FileError> {
        self.open_recorded_partial(path, name, &|_| Ok(()))
    }

    /// Like `open_partial`, but first calls `note` with the path of the part file, which is created
    /// only after `note` succeeds.
    pub fn open_recorded_partial(
        &self,
        path: impl AsRef<Path>,
        name: &str,
        note: &dyn Fn(&Path) -> Result<(), FileError>,
    ) -> Result<PartialFile, FileError> {
        let asked = path.as_ref();
        let part_name = part_name(asked, name)?;
        for _ in 0..SWAP_TRIES {
            let place = self.writable_place(asked, Missing::Make)?;
            let name = file_name(&place, asked)?.to_os_string();
            // Runs the commit's check in advance, so that a transfer does not fail at its last
            // byte.
            if self.check_replaceable(&place, &name, asked)?.is_err() {
                continue;
            }
            note(&place.path.with_file_name(&part_name))?;
            let file = open_part(&place.dir, &part_name, asked)?;
            let length = file.metadata().map_err(|err| FileError::io("receive", asked, err))?.len();
            let (path, asked) = (place.path, asked.to_path_buf());
            return Ok(PartialFile {
                files: self.files.clone(),
                dir: place.dir,
                name,
                part_name,
                file,
                path,
                asked,
                length,
            });
        }
        Err(FileError::TooManyLinks { path: asked.into() })
    }
}

impl PartialFile {
    /// How many bytes were received.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The real absolute path of the destination.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.write_at(self.length, bytes)
    }

    /// Writes at an offset that is at most the received length: a hole would look like received
    /// zeros.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        if offset > self.length {
            let message = format!("received bytes for offset {offset} after only {} bytes", self.length);
            return Err(self.failed(io::Error::new(io::ErrorKind::InvalidInput, message)));
        }
        self.file.write_all_at(bytes, offset).map_err(|err| self.failed(err))?;
        self.length = self.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Discards everything after the first `length` bytes.
    pub fn truncate(&mut self, length: u64) -> Result<(), FileError> {
        let length = length.min(self.length);
        self.file.set_len(length).map_err(|err| self.failed(err))?;
        self.length = length;
        Ok(())
    }

    /// Hashes the received bytes in bounded memory. The hasher can continue with later bytes.
    pub fn hash_prefix(&self) -> Result<blake3::Hasher, FileError> {
        let mut hasher = blake3::Hasher::new();
        let mut block = vec![0; HASH_BLOCK];
        let mut offset = 0;
        while offset < self.length {
            let wanted = usize::try_from(self.length - offset).unwrap_or(HASH_BLOCK).min(HASH_BLOCK);
            let read = fill_from(&self.file, &mut block[..wanted], offset).map_err(|err| self.failed(err))?;
            if read < wanted {
                let message = "another program truncated the received part";
                return Err(self.failed(io::Error::new(io::ErrorKind::UnexpectedEof, message)));
            }
            hasher.update(&block[..read]);
            offset += read as u64;
        }
        Ok(hasher)
    }

    /// Syncs the received bytes to disk, so that they can be acknowledged.
    pub fn sync(&self) -> Result<(), FileError> {
        self.file.sync_data().map_err(|err| self.failed(err))
    }

    /// Gives the file its final name, durably, with the permission bits of `mode`. The owner and
    /// access lists of an existing file are kept.
    pub fn commit(self, mode: u32) -> Result<PathBuf, FileError> {
        let fail = |err: Errno| FileError::io("write", &self.asked, err);
        let dir_id = handle::id_of(&self.dir).map_err(fail)?;
        let files = self.files.clone();
        let _guard = files.inner.locks.lock(dir_id, &self.name);
        self.keep_attributes()?;
        // Setuid and setgid are not transferred.
        let mode = Mode::from_raw_mode((mode & 0o777) as rustix::fs::RawMode);
        rustix::fs::fchmod(&self.file, mode).map_err(fail)?;
        self.file.sync_all().map_err(|err| self.failed(err))?;
        let ours = FileMeta::of(&rustix::fs::fstat(&self.file).map_err(fail)?).id;
        let named = handle::stat_at(&self.dir, self.part_name.as_ref()).map(|stat| FileMeta::of(&stat).id);
        if named != Ok(ours) {
            return Err(FileError::ChangedMeanwhile { path: self.asked.clone() });
        }
        rustix::fs::renameat(&self.dir, &self.part_name, &self.dir, &self.name).map_err(fail)?;
        handle::sync_dir(&self.dir).map_err(fail)?;
        Ok(self.path)
    }

    /// Removes the received part.
    pub fn discard(self) -> Result<(), FileError> {
        match rustix::fs::unlinkat(&self.dir, &self.part_name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(err) => Err(FileError::io("remove the received part of", &self.asked, err)),
        }
    }

    /// Copies owner and access lists of the file that is about to be replaced. Refuses a closed
    /// path and anything that is not a file.
    fn keep_attributes(&self) -> Result<(), FileError> {
        let fail = |err: Errno| FileError::io("write", &self.asked, err);
        let flags = handle::FILE_FLAGS | OFlags::RDONLY;
        let seen = match handle::stat_at(&self.dir, &self.name) {
            Err(Errno::NOENT) => return Ok(()),
            seen => seen.map_err(fail)?,
        };
        match handle::kind_name(&seen) {
            None => {}
            // A link that was put there in the meantime is replaced, not followed.
            Some("a symbolic link") => return Ok(()),
            Some(what) => return Err(FileError::NotAFile { path: self.asked.clone(), what }),
        }
        self.files.inner.closed.check_id(FileMeta::of(&seen).id, &self.asked)?;
        match rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty()) {
            Ok(old) => {
                let stat = rustix::fs::fstat(&old).map_err(fail)?;
                attributes::keep(&old, &stat, &self.file, &self.asked)
            }
            // The file is writable but not readable, or gone, so its attributes cannot be read.
            Err(Errno::ACCESS | Errno::NOENT | Errno::LOOP) => Ok(()),
            Err(err) => Err(fail(err)),
        }
    }

    fn failed(&self, err: io::Error) -> FileError {
        FileError::io("receive", &self.asked, err)
    }
}

fn part_name(asked: &Path, name: &str) -> Result<String, FileError> {
    if !is_part_id(name) {
        let message = format!("{name:?} is not a valid transfer name");
        return Err(FileError::io("receive", asked, io::Error::new(io::ErrorKind::InvalidInput, message)));
    }
    Ok(part_file_name(name))
}

/// Reports whether a string can name a transfer, or a part of one.
pub(crate) fn is_part_id(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(allowed)
}

pub(crate) fn part_file_name(name: &str) -> String {
    format!(".gantry-{name}.part")
}

/// Returns the transfer's name in a part's file name.
pub(crate) fn part_id(file_name: &OsStr) -> Option<&str> {
    file_name.to_str()?.strip_prefix(".gantry-")?.strip_suffix(".part").filter(|name| is_part_id(name))
}

/// Opens the part file, private and locked against a second receiver.
fn open_part(dir: &OwnedFd, part_name: &str, asked: &Path) -> Result<File, FileError> {
    let fail = |err: Errno| FileError::io("receive", asked, err);
    let flags = handle::FILE_FLAGS | OFlags::RDWR | OFlags::CREATE;
    for _ in 0..SWAP_TRIES {
        let fd = match rustix::fs::openat(dir, part_name, flags, Mode::from_raw_mode(0o600)) {
            Ok(fd) => fd,
            // A link, socket or FIFO with the part's name belongs to somebody else.
            Err(Errno::LOOP | Errno::NXIO) => {
                rustix::fs::unlinkat(dir, part_name, AtFlags::empty()).map_err(fail)?;
                continue;
            }
            Err(err) => return Err(fail(err)),
        };
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let message = "another transfer is writing it";
                return Err(FileError::io(
                    "receive",
                    asked,
                    io::Error::new(io::ErrorKind::WouldBlock, message),
                ));
            }
            Err(err) => return Err(fail(err)),
        }
        let stat = rustix::fs::fstat(&fd).map_err(fail)?;
        let still_named = handle::stat_at(dir, part_name.as_ref())
            .is_ok_and(|named| FileMeta::of(&named).id == FileMeta::of(&stat).id);
        if !still_named {
            // Another receiver committed or discarded the part between the open and the lock.
            continue;
        }
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        // Bytes for a file with a second name or another owner would go to somebody else.
        if handle::kind_name(&stat).is_none() && stat.st_nlink == 1 && ours {
            return Ok(File::from(fd));
        }
        rustix::fs::unlinkat(dir, part_name, AtFlags::empty()).map_err(fail)?;
    }
    Err(FileError::TooManyLinks { path: asked.into() })
}
