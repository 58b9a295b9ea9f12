//! Limits the disk space of logs: of all of them together, and of each one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::log::layout::BEYOND_LIMIT;

/// A log may always grow to this size, however little space is left.
const MIN_LOG_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct LogBudget {
    total: u64,
    max_log: u64,
    reserved: Mutex<u64>,
}

impl LogBudget {
    pub(crate) fn new(total: u64, max_log: u64) -> Arc<Self> {
        Arc::new(Self { total, max_log, reserved: Mutex::default() })
    }

    /// Reserves space for a new log: a quarter of what is left, so that later logs get some too,
    /// and at most the limit of one log.
    pub(crate) fn reserve(self: &Arc<Self>) -> Reservation {
        let mut reserved = self.reserved();
        let left = self.total.saturating_sub(*reserved);
        let limit = (left / 4).max(MIN_LOG_BYTES).min(self.max_log);
        let bytes = limit.saturating_add(BEYOND_LIMIT);
        *reserved = reserved.saturating_add(bytes);
        Reservation { budget: Arc::clone(self), limit, bytes: Mutex::new(bytes) }
    }

    /// Counts a log that a previous engine created. Its limit does not change.
    pub(crate) fn adopt(self: &Arc<Self>, limit: u64) -> Reservation {
        let bytes = limit.saturating_add(BEYOND_LIMIT);
        let mut reserved = self.reserved();
        *reserved = reserved.saturating_add(bytes);
        Reservation { budget: Arc::clone(self), limit, bytes: Mutex::new(bytes) }
    }

    /// How much finished logs may take together. The rest is for logs that still grow.
    pub(crate) fn for_finished(&self) -> u64 {
        self.total / 2
    }

    fn reserved(&self) -> MutexGuard<'_, u64> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `Reservation` is one log's share. Dropping it returns the space.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<LogBudget>,
    limit: u64,
    bytes: Mutex<u64>,
}

impl Reservation {
    /// The size that the log may grow to.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the space that a finished log did not need.
    pub(crate) fn release_unused(&self, used: u64) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = bytes.saturating_sub(used);
        *bytes -= unused;
        let mut reserved = self.budget.reserved();
        *reserved = reserved.saturating_sub(unused);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release_unused(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn logs_share_free_space_and_return_what_they_do_not_use() {
        let budget = LogBudget::new(4096 * MIB, 1024 * MIB);
        let mut running = Vec::new();
        for _ in 0..64 {
            running.push(budget.reserve());
        }
        let limits: Vec<u64> = running.iter().map(Reservation::limit).collect();
        assert_eq!(limits[0], 1024 * MIB);
        assert!(
            limits.windows(2).all(|pair| pair[0] >= pair[1]) && limits[63] == MIN_LOG_BYTES,
            "{limits:?}"
        );
        assert!(limits.iter().sum::<u64>() < (4096 + 64 * 16) * MIB);

        running[0].release_unused(5);
        assert!(budget.reserve().limit() > 2 * MIN_LOG_BYTES);
        running.clear();
        assert_eq!(*budget.reserved(), 0);
        assert_eq!(budget.reserve().limit(), 1024 * MIB);
        assert_eq!(LogBudget::new(0, 1_000).reserve().limit(), 1_000);
    }
}
