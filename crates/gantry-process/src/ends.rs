//! Ends of detached sessions that somebody has to hear of: each is offered until it is acknowledged, also after a
//! restart, for a day at most.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use uuid::Uuid;

use crate::error::ProcessError;
use crate::record::SessionRecord;
use crate::session::{Ended, SessionId, TAIL_CHARS};
use crate::session_folder::SessionFolder;
use crate::{log_layout, text};

/// An end that nobody wanted to hear of for this long is dropped.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// When there are more, the oldest is dropped.
const MAX_PENDING: usize = 1_000;

/// The end of a session that had been detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndReport {
    /// The same whenever this end is offered, also by another engine.
    pub event_id: Uuid,
    pub id: SessionId,
    /// As given to `detach`.
    pub note: String,
    pub started_at: SystemTime,
    pub ended: Ended,
    /// The last 4,000 characters of output.
    pub tail: String,
}

/// Offers every end once that is not acknowledged yet, oldest first, and then those that come.
pub struct Ends {
    ledger: Arc<Ledger>,
    news: watch::Receiver<u64>,
    /// Number of the last one offered.
    offered: u64,
}

impl Ends {
    /// The next one, as soon as there is one; `None` when the engine is gone. May be cancelled.
    pub async fn next(&mut self) -> Option<EndReport> {
        loop {
            if let Some((number, pending)) = self.ledger.after(self.offered) {
                let report = tokio::task::spawn_blocking(move || pending.report()).await.ok()?;
                self.offered = number;
                return Some(report);
            }
            let offered = self.offered;
            self.news.wait_for(|last| *last > offered).await.ok()?;
            // Those in between may have been acknowledged meanwhile.
            if self.ledger.after(offered).is_none() {
                self.offered = *self.news.borrow();
            }
        }
    }
}

/// What is still to be acknowledged, by the order in which it came.
#[derive(Debug)]
pub(crate) struct Ledger {
    pending: Mutex<BTreeMap<u64, Pending>>,
    /// Number of the newest.
    last: watch::Sender<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) event_id: Uuid,
    pub(crate) id: SessionId,
    pub(crate) folder: Arc<SessionFolder>,
    pub(crate) record: Arc<SessionRecord>,
    pub(crate) ended: Ended,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { pending: Mutex::default(), last: watch::Sender::new(0) }
    }
}

impl Ledger {
    pub(crate) fn ends(self: &Arc<Self>) -> Ends {
        Ends { ledger: Arc::clone(self), news: self.last.subscribe(), offered: 0 }
    }

    /// Offers an end; gives those that are dropped for it.
    pub(crate) fn add(&self, end: Pending) -> Vec<Pending> {
        let mut pending = self.pending();
        let number = *self.last.borrow() + 1;
        pending.insert(number, end);
        let mut dropped: Vec<Pending> =
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

    pub(crate) fn take(&self, matches: impl Fn(&Pending) -> bool) -> Option<Pending> {
        let mut pending = self.pending();
        let number = *pending.iter().find(|(_, end)| matches(end))?.0;
        pending.remove(&number)
    }

    pub(crate) fn find(&self, matches: impl Fn(&Pending) -> bool) -> Option<Pending> {
        self.pending().values().find(|end| matches(end)).cloned()
    }

    fn after(&self, number: u64) -> Option<(u64, Pending)> {
        self.pending().range(number + 1..).next().map(|(number, end)| (*number, end.clone()))
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<u64, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    pub(crate) fn is_too_old(&self) -> bool {
        self.ended.ended_at.elapsed().is_ok_and(|age| age > KEPT_FOR)
    }

    pub(crate) fn acknowledge(&self) -> Result<(), ProcessError> {
        let failed = |cause| ProcessError::Log { path: self.folder.path().to_owned(), cause };
        self.folder.acknowledge().map_err(failed)
    }

    /// Blocking, but short.
    pub(crate) fn tail(&self) -> String {
        tail_of_log(&self.folder, self.record.log_limit).or_else(|| self.folder.tail()).unwrap_or_default()
    }

    fn report(self) -> EndReport {
        EndReport {
            event_id: self.event_id,
            id: self.id,
            tail: self.tail(),
            started_at: self.record.started_at.time(),
            note: self.record.note.clone(),
            ended: self.ended,
        }
    }
}

fn tail_of_log(folder: &SessionFolder, limit: u64) -> Option<String> {
    let wanted = 4 * TAIL_CHARS as u64 + 16;
    let (bytes, total) = log_layout::end(&folder.open_log().ok()?, limit, wanted).ok()?;
    let whole = bytes.len() as u64 == total;
    Some(if whole { text::tail(&bytes, TAIL_CHARS).0 } else { text::decode_from_cut(&bytes, TAIL_CHARS) })
}
