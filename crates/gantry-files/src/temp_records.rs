//! Records temp files, so that none outlives a killed process.
//!
//! Each process has one record file in the pending directory, locked while the process lives. The
//! path of a temp file is recorded before the file gets its name. At the next start a record
//! without a lock belongs to a dead process: the files that it names are removed, then the record.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::FileError;

const TEMP_PREFIX: &str = ".gantry-";
const TEMP_SUFFIX: &str = ".tmp";
/// A record file lists the temp files of one process, which is far less than this.
const MAX_RECORD_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Pending {
    /// `None` if the caller configured no pending directory.
    record: Option<Mutex<Record>>,
    random: RandomState,
}

#[derive(Debug)]
struct Record {
    file: File,
    path: PathBuf,
    under_way: usize,
}

/// `TempName` is the name of a temp file, recorded until this is dropped.
#[derive(Debug)]
pub(crate) struct TempName<'a> {
    pending: &'a Pending,
    pub(crate) name: String,
}

impl Pending {
    pub(crate) fn open(dir: Option<&Path>) -> Result<Pending, FileError> {
        let random = RandomState::new();
        let Some(dir) = dir else { return Ok(Pending { record: None, random }) };
        let fail = |err: io::Error| FileError::io("use the pending directory", dir, err);
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
        sweep(dir).map_err(fail)?;
        let record = Record::create(dir, &random).map_err(fail)?;
        Ok(Pending { record: Some(Mutex::new(record)), random })
    }

    /// Returns the folder of the locks that all engines of this directory share.
    pub(crate) fn locks_folder(&self) -> Result<Option<PathBuf>, FileError> {
        let Some(record) = &self.record else { return Ok(None) };
        let record = record.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(folder) = record.path.parent().map(|dir| dir.join("locks")) else { return Ok(None) };
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        created.map_err(|err| FileError::io("use the directory of locks", &folder, err))?;
        Ok(Some(folder))
    }

    /// Picks a name for a temp file in `dir` and records it.
    pub(crate) fn name_in(&self, dir: &Path) -> Result<TempName<'_>, FileError> {
        let name = format!("{TEMP_PREFIX}{:016x}{TEMP_SUFFIX}", unique(&self.random));
        if let Some(record) = &self.record {
            let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
            let mut line = dir.join(&name).into_os_string();
            line.push("\0");
            record
                .file
                .write_all(line.as_bytes())
                .map_err(|err| FileError::io("record a temp file in", &record.path, err))?;
            record.under_way += 1;
        }
        Ok(TempName { pending: self, name })
    }
}

impl Drop for TempName<'_> {
    fn drop(&mut self) {
        let Some(record) = &self.pending.record else { return };
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        record.under_way -= 1;
        if record.under_way == 0 {
            // The file is open for appending, so the next record starts at the top. If this fails,
            // only records of removed files stay.
            let _ = record.file.set_len(0);
        }
    }
}

impl Record {
    fn create(dir: &Path, random: &RandomState) -> io::Result<Record> {
        loop {
            let path = dir.join(format!("{}-{:016x}", std::process::id(), unique(random)));
            let file = File::options().append(true).create_new(true).mode(0o600).open(&path)?;
            rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
            // Between creation and locking, a sweep may have taken the file for a dead one.
            if rustix::fs::fstat(&file)?.st_nlink > 0 {
                return Ok(Record { file, path, under_way: 0 });
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.under_way == 0 {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes what dead processes left.
fn sweep(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if let Ok(file) = File::options().read(true).append(true).open(&path) {
            sweep_record(&path, &file)?;
        }
    }
    Ok(())
}

/// Removes the files that a record names, then the record, unless its owner is alive.
fn sweep_record(path: &Path, file: &File) -> io::Result<()> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Ok(()),
        Err(err) => return Err(err.into()),
    }
    let mut records = Vec::new();
    Read::take(file, MAX_RECORD_BYTES).read_to_end(&mut records)?;
    let mut swept = true;
    for temp in records.split(|&byte| byte == 0).map(|bytes| Path::new(OsStr::from_bytes(bytes))) {
        swept &= remove_temp(temp);
    }
    if !swept {
        return Ok(());
    }
    match std::fs::remove_file(path) {
        // The owner removed the record when it ended, after the record was opened here.
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes a temp file; returns false if it exists and stays. A record is only a hint, so the name
/// must match ours.
fn remove_temp(path: &Path) -> bool {
    let ours = path.file_name().and_then(OsStr::to_str).is_some_and(is_temp_name);
    if !ours || !path.is_absolute() {
        return true;
    }
    match std::fs::remove_file(path) {
        Ok(()) => true,
        Err(err) => matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}

fn is_temp_name(name: &str) -> bool {
    name.strip_prefix(TEMP_PREFIX)
        .and_then(|rest| rest.strip_suffix(TEMP_SUFFIX))
        .is_some_and(|random| random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn unique(random: &RandomState) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};

    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map(|time| time.as_nanos());
    random.hash_one((COUNT.fetch_add(1, Ordering::Relaxed), std::process::id(), time.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_whose_owner_ends_meanwhile_is_not_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        std::fs::write(&path, "").unwrap();
        let opened = File::options().read(true).append(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        sweep_record(&path, &opened).unwrap();
    }
}
