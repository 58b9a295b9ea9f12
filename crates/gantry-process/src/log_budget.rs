//! Disk space for logs: what all of them together may take, and what each may grow to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::log_layout::BEYOND_LIMIT;

/// However little is left, a log may grow to this.
const LEAST: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct LogBudget {
    total: u64,
    max_log: u64,
    held: Mutex<u64>,
}

impl LogBudget {
    pub(crate) fn new(total: u64, max_log: u64) -> Arc<Self> {
        Arc::new(Self { total, max_log, held: Mutex::default() })
    }

    /// Sets space aside for a new log: a quarter of what is left, so that there is some for the next one too, within
    /// the limit of one log.
    pub(crate) fn reserve(self: &Arc<Self>) -> Reservation {
        let mut held = self.held();
        let left = self.total.saturating_sub(*held);
        let limit = (left / 4).max(LEAST).min(self.max_log);
        let bytes = limit.saturating_add(BEYOND_LIMIT);
        *held = held.saturating_add(bytes);
        Reservation { budget: Arc::clone(self), limit, bytes: Mutex::new(bytes) }
    }

    /// Counts a log that an engine before us has begun; its limit stays what it was.
    pub(crate) fn adopt(self: &Arc<Self>, limit: u64) -> Reservation {
        let bytes = limit.saturating_add(BEYOND_LIMIT);
        let mut held = self.held();
        *held = held.saturating_add(bytes);
        Reservation { budget: Arc::clone(self), limit, bytes: Mutex::new(bytes) }
    }

    /// What finished logs may take together; the rest is for those that are still growing.
    pub(crate) fn for_finished(&self) -> u64 {
        self.total / 2
    }

    fn held(&self) -> MutexGuard<'_, u64> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One log's part, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<LogBudget>,
    limit: u64,
    bytes: Mutex<u64>,
}

impl Reservation {
    /// What the log may grow to.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Gives back what a finished log did not need.
    pub(crate) fn settle(&self, used: u64) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = bytes.saturating_sub(used);
        *bytes -= unused;
        let mut held = self.budget.held();
        *held = held.saturating_sub(unused);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.settle(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn logs_share_what_is_left_and_give_back_what_they_do_not_use() {
        let budget = LogBudget::new(4096 * MIB, 1024 * MIB);
        let mut running = Vec::new();
        for _ in 0..64 {
            running.push(budget.reserve());
        }
        let limits: Vec<u64> = running.iter().map(Reservation::limit).collect();
        assert_eq!(limits[0], 1024 * MIB);
        assert!(limits.windows(2).all(|pair| pair[0] >= pair[1]) && limits[63] == LEAST, "{limits:?}");
        assert!(limits.iter().sum::<u64>() < (4096 + 64 * 16) * MIB);

        running[0].settle(5);
        assert!(budget.reserve().limit() > 2 * LEAST);
        running.clear();
        assert_eq!(*budget.held(), 0);
        assert_eq!(budget.reserve().limit(), 1024 * MIB);
        assert_eq!(LogBudget::new(0, 1_000).reserve().limit(), 1_000);
    }
}
