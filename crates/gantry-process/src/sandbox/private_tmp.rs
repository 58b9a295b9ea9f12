//! A private temporary directory for one command, removed when the command ends. If Gantry is
//! killed first, the next start sweeps the directory.
//!
//! A directory is in use while somebody holds its lock, which the kernel releases with the holder.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, Mode, OFlags};
use uuid::Uuid;

const PREFIX: &str = "gantry-";

/// How often removal is tried, because a dying process may still create files in the directory.
const REMOVE_TRIES: usize = 5;

/// How often a directory is created that sweeps of other processes remove.
const CREATE_TRIES: usize = 5;

/// `PrivateTmp` is a directory that only its owner may enter. Dropping it removes it with its
/// content, which may take a while.
#[derive(Debug)]
pub struct PrivateTmp {
    path: PathBuf,
    /// The lock shows that the directory is in use.
    _lock: File,
}

impl PrivateTmp {
    /// The first call for a parent in this process also sweeps what killed processes left there.
    pub fn new_in(parent: &Path) -> Result<PrivateTmp, Error> {
        sweep_once(parent);
        let mut made = PrivateTmp::try_new_in(parent);
        // The sweep of another process may remove a new directory before it is locked.
        for _ in 1..CREATE_TRIES {
            let is_swept = |err: &Error| matches!(err.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock);
            match made {
                Err(err) if is_swept(&err) && parent.exists() => made = PrivateTmp::try_new_in(parent),
                made => return made,
            }
        }
        made
    }

    fn try_new_in(parent: &Path) -> Result<PrivateTmp, Error> {
        let path = parent.join(format!("{PREFIX}{}", Uuid::new_v4().simple()));
        DirBuilder::new().mode(0o700).create(&path)?;
        // Sandboxes and programs compare real paths.
        match lock(&path).and_then(|lock| Ok((path.canonicalize()?, lock))) {
            Ok((path, lock)) => Ok(PrivateTmp { path, _lock: lock }),
            Err(err) => {
                let _ = std::fs::remove_dir(&path);
                Err(err)
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a directory that only this user can enter, with its parents. Returns its real path.
pub fn create_private_dir(path: &Path) -> Result<PathBuf, Error> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)?;
    path.canonicalize()
}

impl Drop for PrivateTmp {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    for _ in 0..REMOVE_TRIES {
        match std::fs::remove_dir_all(path) {
            Err(err) if err.kind() == ErrorKind::DirectoryNotEmpty => {}
            Err(err) if err.kind() == ErrorKind::PermissionDenied => make_writable(path),
            _ => return,
        }
    }
}

/// Adds the owner's write permission, without which nothing can be removed from a directory. Links
/// are not followed.
fn make_writable(path: &Path) {
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        let _ = std::fs::set_permissions(&directory, Permissions::from_mode(0o700));
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.extend(below.map(|entry| entry.path()));
    }
}

fn sweep_once(parent: &Path) {
    static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if SWEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(parent.to_owned()) {
        sweep(parent);
    }
}

/// Removes unlocked directories with our prefix and owner.
fn sweep(parent: &Path) {
    let own_user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let of_ours = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if !of_ours || !entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own_user) {
            continue;
        }
        if let Ok(_lock) = lock(&entry.path()) {
            remove(&entry.path());
        }
    }
}

fn lock(directory: &Path) -> Result<File, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(directory, flags, Mode::empty())?);
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn drop_removes_the_directory_but_not_link_targets() {
        let parent = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "").unwrap();
        let tmp = PrivateTmp::new_in(parent.path()).unwrap();
        let path = tmp.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::fs::write(path.join("a/b/c"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), path.join("link")).unwrap();
        assert_ne!(PrivateTmp::new_in(parent.path()).unwrap().path(), path);
        drop(tmp);
        assert!(!path.exists());
        assert!(outside.path().join("kept").exists());
        assert!(PrivateTmp::new_in(&path).is_err());
    }

    #[test]
    fn sweep_removes_abandoned_directories_only() {
        let parent = tempfile::tempdir().unwrap();
        let living = PrivateTmp::new_in(parent.path()).unwrap();
        let dead = parent.path().join(format!("gantry-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(dead.join("read-only/inner")).unwrap();
        std::fs::set_permissions(dead.join("read-only"), Permissions::from_mode(0o500)).unwrap();
        let foreign = parent.path().join("gantry-bench-1");
        std::fs::create_dir(&foreign).unwrap();
        sweep(parent.path());
        assert!(!dead.exists() && living.path().exists() && foreign.exists());
    }

    /// This is a separate test, because root may write anywhere.
    #[test]
    fn read_only_folders_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let inner = parent.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::set_permissions(&inner, Permissions::from_mode(0o500)).unwrap();
        std::fs::set_permissions(parent.path().join("a"), Permissions::from_mode(0o500)).unwrap();
        make_writable(parent.path());
        assert_eq!(inner.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }
}
