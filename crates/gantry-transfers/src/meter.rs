//! [`Meter`] counts the bytes of a transfer and when it last made progress.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Meter {
    started: Instant,
    done: AtomicU64,
    /// 0 while it is unknown.
    total: AtomicU64,
    /// Milliseconds after `started`.
    moved: AtomicU64,
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter {
            started: Instant::now(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.moved();
    }

    /// Notes progress, also without bytes, such as an answered request.
    pub(crate) fn moved(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Ordering::Relaxed);
    }

    /// Replaces the count of bytes that have arrived.
    pub(crate) fn set_done(&self, bytes: u64) {
        self.done.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|total| *total > 0)
    }

    pub(crate) fn idle_for(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.moved.load(Ordering::Relaxed)))
    }
}

/// The meters of the running transfers, by transfer id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meters(Arc<Mutex<HashMap<String, Arc<Meter>>>>);

impl Meters {
    pub(crate) fn add(&self, transfer: &str, meter: &Arc<Meter>) {
        self.table().insert(transfer.to_owned(), meter.clone());
    }

    pub(crate) fn remove(&self, transfer: &str) {
        self.table().remove(transfer);
    }

    pub(crate) fn find(&self, transfer: &str) -> Option<Arc<Meter>> {
        self.table().get(transfer).cloned()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Arc<Meter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
