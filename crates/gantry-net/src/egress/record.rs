//! The record of one connection. It is delivered exactly once, also if the proxy stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{EgressJudge, Wanted};

/// `ConnectionRecord` says what became of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// `None` if the client did not say where it wants to connect to.
    pub wanted: Option<Wanted>,
    /// Bytes that were sent to the destination.
    pub bytes_up: u64,
    /// Bytes that were received from the destination.
    pub bytes_down: u64,
    pub outcome: EgressOutcome,
    pub duration: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressOutcome {
    /// Both sides closed the connection.
    Finished,
    /// The judge or the network policy denied it.
    Denied {
        reason: String,
    },
    /// A rule of the proxy or the guard refused it.
    Refused {
        reason: String,
    },
    /// The destination could not be reached, or the connection broke.
    Failed {
        reason: String,
    },
    TimedOut {
        reason: String,
    },
    /// The client disconnected before the destination was reached or its request was complete.
    ClientLeft,
    /// The proxy stopped.
    Stopped,
}

impl EgressOutcome {
    /// Returns the reason, in plain English.
    pub fn reason(&self) -> &str {
        match self {
            EgressOutcome::Finished => "the connection was closed",
            EgressOutcome::Denied { reason }
            | EgressOutcome::Refused { reason }
            | EgressOutcome::Failed { reason }
            | EgressOutcome::TimedOut { reason } => reason,
            EgressOutcome::ClientLeft => "the client disconnected",
            EgressOutcome::Stopped => "the proxy stopped",
        }
    }
}

/// `Traffic` counts bytes.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
}

impl Traffic {
    /// Waits until no byte has moved for the whole limit, or up to a quarter longer.
    pub(super) async fn idle(&self, limit: Duration) {
        let total = || self.up.load(Ordering::Relaxed).wrapping_add(self.down.load(Ordering::Relaxed));
        let (mut before, mut silent) = (total(), 0);
        while silent < 4 {
            tokio::time::sleep(limit / 4).await;
            let now = total();
            silent = if now == before { silent + 1 } else { 0 };
            before = now;
        }
    }
}

/// `OpenRecord` belongs to a connection that has not ended. Dropping it delivers the record.
pub(super) struct OpenRecord {
    judge: Arc<dyn EgressJudge>,
    began: Instant,
    pub(super) wanted: Option<Wanted>,
    pub(super) outcome: EgressOutcome,
    pub(super) traffic: Arc<Traffic>,
}

impl OpenRecord {
    pub(super) fn new(judge: Arc<dyn EgressJudge>) -> OpenRecord {
        let traffic = Arc::default();
        OpenRecord { judge, began: Instant::now(), wanted: None, outcome: EgressOutcome::Stopped, traffic }
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        self.judge.ended(ConnectionRecord {
            wanted: self.wanted.take(),
            bytes_up: self.traffic.up.load(Ordering::Relaxed),
            bytes_down: self.traffic.down.load(Ordering::Relaxed),
            outcome: std::mem::replace(&mut self.outcome, EgressOutcome::Stopped),
            duration: self.began.elapsed(),
        });
    }
}
