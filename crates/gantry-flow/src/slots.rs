//! The limit of runs at the same time. Schedules and tasks share it.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};

/// The highest number of runs at the same time. A run that waits for a person does not count.
pub(crate) const MAX_RUNS: usize = 4;

/// A run's place among the concurrent runs.
pub(crate) type Slot = OwnedSemaphorePermit;

pub(crate) struct Slots {
    free: Arc<Semaphore>,
    claiming: Mutex<()>,
}

impl Default for Slots {
    fn default() -> Self {
        Slots { free: Arc::new(Semaphore::new(MAX_RUNS)), claiming: Mutex::default() }
    }
}

impl Slots {
    /// A worker holds this while it counts free slots and takes runs for them, so that two workers do not count the same
    /// slot.
    pub(crate) async fn claiming(&self) -> MutexGuard<'_, ()> {
        self.claiming.lock().await
    }

    pub(crate) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Takes a slot if one is free.
    pub(crate) fn take(&self) -> Option<Slot> {
        self.free.clone().try_acquire_owned().ok()
    }
}
