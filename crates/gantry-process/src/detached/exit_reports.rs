//! Reports the exits of detached sessions. Each exit is offered until the caller acknowledges it,
//! also after a restart, for at most a day.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use uuid::Uuid;

use crate::error::ProcessError;
use crate::log;
use crate::session::folder::SessionFolder;
use crate::session::record::SessionRecord;
use crate::session::{Ended, SessionId, TAIL_CHARS};
use crate::text::{self, Tail, TailSize};

/// An exit that nobody acknowledges for this long is dropped.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// When there are more unacknowledged exits, the oldest is dropped.
const MAX_PENDING: usize = 1_000;

/// `ExitReport` describes how a detached session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitReport {
    /// Identifies this exit. It is the same each time the exit is offered, also by another engine.
    pub event_id: Uuid,
    pub id: SessionId,
    /// The note that the caller passed to `detach`.
    pub note: String,
    pub started_at: SystemTime,
    pub ended: Ended,
    /// The last 4,000 characters of output.
    pub tail: String,
    /// What comes before `tail`, at most as much as `Command::beyond_cut` asked for.
    pub before_tail: String,
}

/// `Ends` yields every unacknowledged exit once, oldest first, and then each new one as it occurs.
pub struct ExitReports {
    unacknowledged: Arc<UnacknowledgedExits>,
    news: watch::Receiver<u64>,
    /// The sequence number of the last exit that was offered.
    offered: u64,
}

impl ExitReports {
    /// Waits for the next exit. Returns `None` when the engine is gone. Cancelling loses nothing.
    pub async fn next(&mut self) -> Option<ExitReport> {
        loop {
            if let Some((number, pending)) = self.unacknowledged.after(self.offered) {
                let report = tokio::task::spawn_blocking(move || pending.report()).await.ok()?;
                self.offered = number;
                return Some(report);
            }
            let offered = self.offered;
            self.news.wait_for(|last| *last > offered).await.ok()?;
            // The exits in between may have been acknowledged in the meantime.
            if self.unacknowledged.after(offered).is_none() {
                self.offered = *self.news.borrow();
            }
        }
    }
}

/// `UnacknowledgedExits` holds the exits that are still to be acknowledged, in the order they
/// occurred.
#[derive(Debug)]
pub(crate) struct UnacknowledgedExits {
    pending: Mutex<BTreeMap<u64, PendingExit>>,
    /// The sequence number of the newest exit.
    last: watch::Sender<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct PendingExit {
    pub(crate) event_id: Uuid,
    pub(crate) id: SessionId,
    pub(crate) folder: Arc<SessionFolder>,
    pub(crate) record: Arc<SessionRecord>,
    pub(crate) ended: Ended,
}

impl Default for UnacknowledgedExits {
    fn default() -> Self {
        Self { pending: Mutex::default(), last: watch::Sender::new(0) }
    }
}

impl UnacknowledgedExits {
    pub(crate) fn reports(self: &Arc<Self>) -> ExitReports {
        ExitReports { unacknowledged: Arc::clone(self), news: self.last.subscribe(), offered: 0 }
    }

    /// Adds an exit and returns the older ones that it displaces.
    pub(crate) fn add(&self, end: PendingExit) -> Vec<PendingExit> {
        let mut pending = self.pending();
        let number = *self.last.borrow() + 1;
        pending.insert(number, end);
        let mut dropped: Vec<PendingExit> =
            pending.extract_if(.., |_, end| end.is_too_old()).map(|(_, end)| end).collect();
        while pending.len() > MAX_PENDING
            && let Some((_, oldest)) = pending.pop_first()
        {
            dropped.push(oldest);
        }
        drop(pending);
        self.last.send_replace(number);
        dropped
    }

    pub(crate) fn take(&self, matches: impl Fn(&PendingExit) -> bool) -> Option<PendingExit> {
        let mut pending = self.pending();
        let number = *pending.iter().find(|(_, end)| matches(end))?.0;
        pending.remove(&number)
    }

    pub(crate) fn find(&self, matches: impl Fn(&PendingExit) -> bool) -> Option<PendingExit> {
        self.pending().values().find(|end| matches(end)).cloned()
    }

    fn after(&self, number: u64) -> Option<(u64, PendingExit)> {
        self.pending().range(number + 1..).next().map(|(number, end)| (*number, end.clone()))
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<u64, PendingExit>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingExit {
    pub(crate) fn is_too_old(&self) -> bool {
        self.ended.ended_at.elapsed().is_ok_and(|age| age > KEPT_FOR)
    }

    pub(crate) fn acknowledge(&self) -> Result<(), ProcessError> {
        let failed = |cause| ProcessError::Log { path: self.folder.path().to_owned(), cause };
        self.folder.acknowledge().map_err(failed)
    }

    /// Reads the tail from disk. This blocks, but only briefly.
    pub(crate) fn tail(&self) -> Tail {
        let size = TailSize { chars: TAIL_CHARS, before: self.record.beyond_cut };
        let log = self.folder.open_log().ok();
        let tail = log.and_then(|log| log::tail(&log, self.record.log_limit, size).ok());
        let shrunk = || Some(text::tail(self.folder.tail()?.as_bytes(), size).0);
        tail.map(|(tail, _)| tail).or_else(shrunk).unwrap_or_default()
    }

    fn report(self) -> ExitReport {
        let Tail { text: tail, before: before_tail } = self.tail();
        ExitReport {
            event_id: self.event_id,
            id: self.id,
            tail,
            before_tail,
            started_at: self.record.started_at.time(),
            note: self.record.note.clone(),
            ended: self.ended,
        }
    }
}
