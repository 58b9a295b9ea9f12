//! Allows one writer at a time for each file, inside this process.

use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::handle::FileId;

/// With this many, two busy files rarely share a lock. Sharing one only makes them wait for each
/// other.
const STRIPES: usize = 256;

/// `Locks` holds locks for names in directories. The key is the directory and the name, because
/// replacing a file changes its inode.
#[derive(Debug)]
pub(crate) struct Locks {
    stripes: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Locks {
    pub(crate) fn new() -> Locks {
        Locks { stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(), hasher: RandomState::new() }
    }

    pub(crate) fn lock(&self, dir: FileId, name: &OsStr) -> MutexGuard<'_, ()> {
        // A panic while writing leaves the old or the new file, so a poisoned lock is safe to use.
        self.stripes[self.stripe(dir, name)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks two names in a fixed order, so that two opposite moves cannot deadlock.
    pub(crate) fn lock_two(
        &self,
        one: (FileId, &OsStr),
        other: (FileId, &OsStr),
    ) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (one, other) = (self.stripe(one.0, one.1), self.stripe(other.0, other.1));
        let lock = |stripe: usize| self.stripes[stripe].lock().unwrap_or_else(PoisonError::into_inner);
        let first = lock(one.min(other));
        (first, (one != other).then(|| lock(one.max(other))))
    }

    fn stripe(&self, dir: FileId, name: &OsStr) -> usize {
        self.hasher.hash_one((dir, name)) as usize % STRIPES
    }
}
