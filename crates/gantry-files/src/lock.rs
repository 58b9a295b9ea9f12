//! Allows one writer at a time for each file, in this process and in the processes that share its folder of locks.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::handle::FileId;

/// With this many, two busy files rarely share a lock. Sharing one only makes them wait for each
/// other.
const STRIPES: usize = 256;

/// `Locks` holds locks for names in directories. The key is the directory and the name, because
/// replacing a file changes its inode.
#[derive(Debug)]
pub(crate) struct Locks {
    stripes: Vec<Mutex<Stripe>>,
    /// Processes that share a folder compute the same stripe for a file.
    hasher: BuildHasherDefault<DefaultHasher>,
}

/// `Stripe` is one lock. Its file is opened with the first use.
#[derive(Debug)]
enum Stripe {
    Own,
    Shared { path: PathBuf, file: Option<File> },
}

/// `Held` is a lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    stripe: MutexGuard<'a, Stripe>,
}

impl Locks {
    /// With a folder, the locks also exclude the other processes that use it.
    pub(crate) fn new(folder: Option<&Path>) -> Locks {
        let stripe = |number: usize| match folder {
            Some(folder) => Stripe::Shared { path: folder.join(format!("{number:02x}")), file: None },
            None => Stripe::Own,
        };
        let stripes = (0..STRIPES).map(|number| Mutex::new(stripe(number))).collect();
        Locks { stripes, hasher: BuildHasherDefault::default() }
    }

    pub(crate) fn lock(&self, dir: FileId, name: &OsStr) -> Held<'_> {
        self.hold(self.stripe(dir, name))
    }

    /// Locks two names in a fixed order, so that two opposite moves cannot deadlock.
    pub(crate) fn lock_two(
        &self,
        one: (FileId, &OsStr),
        other: (FileId, &OsStr),
    ) -> (Held<'_>, Option<Held<'_>>) {
        let (one, other) = (self.stripe(one.0, one.1), self.stripe(other.0, other.1));
        let first = self.hold(one.min(other));
        (first, (one != other).then(|| self.hold(one.max(other))))
    }

    fn hold(&self, stripe: usize) -> Held<'_> {
        // A panic while writing leaves the old or the new file, so a poisoned lock is safe to use.
        let mut stripe = self.stripes[stripe].lock().unwrap_or_else(PoisonError::into_inner);
        stripe.lock_file();
        Held { stripe }
    }

    fn stripe(&self, dir: FileId, name: &OsStr) -> usize {
        self.hasher.hash_one((dir, name)) as usize % STRIPES
    }
}

impl Stripe {
    /// A folder that cannot be used leaves the lock of this process. Writes stay atomic either way.
    fn lock_file(&mut self) {
        let Stripe::Shared { path, file } = self else { return };
        if file.is_none() {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            *file = rustix::fs::open(path.as_path(), flags, Mode::from_raw_mode(0o600)).ok().map(File::from);
        }
        if let Some(file) = file {
            while rustix::fs::flock(&*file, FlockOperation::LockExclusive) == Err(rustix::io::Errno::INTR) {}
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Stripe::Shared { file: Some(file), .. } = &*self.stripe {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_that_share_a_folder_exclude_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [0, 1].map(|_| Locks::new(Some(folder.path())));
        let id = crate::handle::id_of(File::open(folder.path()).unwrap()).unwrap();
        let name = OsStr::new("file");
        let held = one.lock(id, name);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(other.lock(id, name)));
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!waiting.is_finished());
            drop(held);
            waiting.join().unwrap();
        });
    }
}
