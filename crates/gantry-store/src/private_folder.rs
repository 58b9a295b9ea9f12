//! A folder of small private files in the data directory, for a domain that keeps its own records there.
//!
//! The domain chooses file names and formats. This module opens, locks and writes, so that
//! `gantry-store` stays the only crate that works in the data directory.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::DataDir;
use crate::data_dir::{open_file, replace_private};

/// A folder that may not exist yet. [`PrivateFolder::create`] makes it.
#[derive(Debug, Clone)]
pub struct PrivateFolder {
    path: PathBuf,
}

/// Excludes other holders, in this and other processes, until it is dropped.
#[derive(Debug)]
pub struct FolderLock {
    _folder: File,
}

impl PrivateFolder {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder with mode 0700 unless it exists.
    pub fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    /// Waits until nobody else holds the lock. The folder itself is locked because the files in it
    /// are replaced when they change.
    pub fn lock(&self) -> io::Result<FolderLock> {
        let folder = File::open(&self.path)?;
        flock(&folder, FlockOperation::LockExclusive)?;
        Ok(FolderLock { _folder: folder })
    }

    /// The names of all entries, in no particular order.
    pub fn names(&self) -> io::Result<impl Iterator<Item = io::Result<OsString>>> {
        Ok(std::fs::read_dir(&self.path)?.map(|entry| entry.map(|entry| entry.file_name())))
    }

    pub fn contains(&self, name: impl AsRef<Path>) -> bool {
        self.path.join(name).exists()
    }

    /// Opens a regular file for reading. Pipes, devices and folders are rejected without blocking.
    pub fn open(&self, name: impl AsRef<Path>) -> io::Result<File> {
        open_file(&self.path.join(name))
    }

    /// Opens a file for reading and writing in place, and creates it with mode 0600 if it is missing.
    pub fn open_or_create(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(self.path.join(name))
    }

    /// Writes a whole file with mode 0600. A crash leaves the old or the new content.
    pub fn replace(&self, name: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        replace_private(&self.path.join(name), bytes)
    }

    /// Removes a file. A missing file is not an error. The removal survives a crash.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
            _ => File::open(&self.path)?.sync_all(),
        }
    }
}

impl DataDir {
    /// The folder `name` of the data directory. `name` is a constant of the domain that owns the
    /// folder, never input.
    pub fn private_folder(&self, name: &'static str) -> PrivateFolder {
        PrivateFolder { path: self.root().join(name) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder() -> (tempfile::TempDir, PrivateFolder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = DataDir::new(dir.path().join("data")).private_folder("records");
        (dir, folder)
    }

    #[test]
    fn folder_and_files_are_closed_to_other_users() {
        let (_dir, folder) = folder();
        folder.create().unwrap();
        folder.create().unwrap();
        folder.replace("a", b"text").unwrap();
        drop(folder.open_or_create("b").unwrap());
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(folder.path().to_owned()), 0o700);
        assert_eq!((mode(folder.path().join("a")), mode(folder.path().join("b"))), (0o600, 0o600));
    }

    #[test]
    fn removed_file_is_gone_and_removing_twice_succeeds() {
        let (_dir, folder) = folder();
        folder.replace("a", b"text").unwrap();
        assert!(folder.contains("a"));
        folder.remove("a").unwrap();
        folder.remove("a").unwrap();
        assert!(!folder.contains("a"));
        assert_eq!(folder.names().unwrap().count(), 0);
    }

    #[test]
    fn lock_excludes_a_second_holder_until_it_is_dropped() {
        let (_dir, folder) = folder();
        folder.create().unwrap();
        let held = folder.lock().unwrap();
        let (locked, second_locked) = std::sync::mpsc::channel();
        let other = folder.clone();
        let waiting = std::thread::spawn(move || {
            let held = other.lock().unwrap();
            locked.send(()).unwrap();
            drop(held);
        });
        assert!(second_locked.recv_timeout(std::time::Duration::from_millis(100)).is_err());
        drop(held);
        second_locked.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        waiting.join().unwrap();
    }
}
