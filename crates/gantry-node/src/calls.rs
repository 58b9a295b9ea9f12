//! The table of calls by id, independent of connections: a call survives a lost connection, its result is held until
//! it is acknowledged, and an id runs only once.

mod finished_ids;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gantry_protocol::{ErrorCode, MAX_LISTED_CALLS, RawJson, WireError};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use finished_ids::FinishedIds;

/// How many calls may wait to run.
const MAX_WAITING: usize = 1_024;

/// How many results may wait to be acknowledged.
const MAX_HELD: usize = 1_024;
const MAX_HELD_BYTES: usize = 256 * 1024 * 1024;

/// How long a result is held after the deadline of its call.
const HELD_PAST_DEADLINE: Duration = Duration::from_secs(60);

/// Longer ids are rejected, because all ids have to fit into one `connect`.
const MAX_ID_BYTES: usize = 64;

/// The bytes that call ids may take in `connect`, which has a size limit.
const MAX_LISTED_BYTES: usize = 40 * 1024;

pub(crate) type Answer = Result<RawJson, WireError>;

/// A handle to the table. Clones share the table.
#[derive(Clone)]
pub(crate) struct Calls {
    inner: Arc<Inner>,
}

struct Inner {
    table: Mutex<Table>,
    slots: Arc<Semaphore>,
    max_running: usize,
    /// Counts changes of the table.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Table {
    calls: HashMap<String, Entry>,
    /// Calls without an answer, both running and waiting.
    unfinished: usize,
    held: usize,
    held_bytes: usize,
    /// The number of the next held result; numbers give their order.
    next: u64,
    finished: FinishedIds,
    stopping: bool,
    /// Ids whose results were dropped unacknowledged since the last [`Calls::take_dropped`].
    dropped: Vec<String>,
}

struct Entry {
    cancel: CancellationToken,
    deadline: Option<Instant>,
    answer: watch::Receiver<Option<Arc<Answer>>>,
    held: Option<Held>,
    /// The gateway does not want the answer. Only the id is kept, so that it does not run again.
    unwanted: bool,
}

struct Held {
    number: u64,
    bytes: usize,
}

/// Waits for the answer of a call. Several may be attached to one call.
#[derive(Debug)]
pub(crate) struct Attached {
    answer: watch::Receiver<Option<Arc<Answer>>>,
}

impl Attached {
    pub(crate) async fn answer(&mut self) -> Answer {
        match self.answer.wait_for(Option::is_some).await {
            Ok(answer) => match answer.as_deref() {
                Some(answer) => answer.clone(),
                None => Err(WireError::new(ErrorCode::Internal, "the call has no answer")),
            },
            Err(_) => Err(WireError::new(ErrorCode::Internal, "the call ended without an answer")),
        }
    }
}

impl Calls {
    pub(crate) fn new(max_running: usize) -> Calls {
        let max_running = max_running.clamp(1, Semaphore::MAX_PERMITS);
        let inner = Inner {
            table: Mutex::default(),
            slots: Arc::new(Semaphore::new(max_running)),
            max_running,
            changed: watch::Sender::new(0),
        };
        Calls { inner: Arc::new(inner) }
    }

    /// Attaches to the call with this id, and starts the call if the id is new.
    pub(crate) fn attach<F, Fut>(
        &self,
        id: &str,
        deadline: Option<Instant>,
        start: F,
    ) -> Result<Attached, WireError>
    where
        F: FnOnce(CancellationToken) -> Fut,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        let mut table = self.table();
        table.drop_expired();
        if let Some(entry) = table.calls.get(id) {
            return Ok(Attached { answer: entry.answer.clone() });
        }
        self.admit(&table, id)?;
        let cancel = CancellationToken::new();
        let (answered, answer) = watch::channel(None);
        let entry =
            Entry { cancel: cancel.clone(), deadline, answer: answer.clone(), held: None, unwanted: false };
        table.calls.insert(id.to_owned(), entry);
        table.unfinished += 1;
        drop(table);
        let work = start(cancel.clone());
        let guard = AnswerGuard { calls: self.clone(), id: id.to_owned(), answered: Some(answered) };
        tokio::spawn(run_in_slot(Arc::clone(&self.inner.slots), cancel, deadline, work, guard));
        Ok(Attached { answer })
    }

    fn admit(&self, table: &Table, id: &str) -> Result<(), WireError> {
        let refused = |code, message: String| Err(WireError::new(code, message));
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            return refused(ErrorCode::BadParams, format!("a call id must have 1 to {MAX_ID_BYTES} bytes"));
        }
        if table.finished.contains(id) {
            let message = "this call has ended and its result was discarded; it does not run again";
            return refused(ErrorCode::Conflict, message.into());
        }
        if table.stopping {
            return refused(ErrorCode::Unavailable, "the node is stopping".into());
        }
        if table.unfinished >= self.inner.max_running + MAX_WAITING {
            return refused(ErrorCode::TooMany, format!("{} calls run or wait already", table.unfinished));
        }
        Ok(())
    }

    /// Releases results that have arrived at the gateway.
    pub(crate) fn acknowledge(&self, ids: &[String]) {
        let mut table = self.table();
        for id in ids {
            if table.calls.get(id).is_some_and(|entry| entry.held.is_some()) {
                table.forget(id);
            }
        }
        drop(table);
        self.inner.changed.send_modify(|changes| *changes += 1);
    }

    /// Cancels a call that the gateway no longer waits for.
    pub(crate) fn cancel(&self, id: &str) {
        let mut table = self.table();
        let Some(entry) = table.calls.get_mut(id) else { return };
        entry.cancel.cancel();
        entry.unwanted = true;
        if entry.held.is_some() {
            table.forget(id);
        }
    }

    /// Returns the ids that a new connection lists: unfinished calls first, then the newest results, as many as fit.
    pub(crate) fn listed(&self) -> Vec<String> {
        let mut table = self.table();
        table.drop_expired();
        let mut calls: Vec<(&String, &Entry)> =
            table.calls.iter().filter(|(_, entry)| !entry.unwanted).collect();
        calls.sort_by_key(|(_, entry)| {
            std::cmp::Reverse(entry.held.as_ref().map_or(u64::MAX, |held| held.number))
        });
        let mut room = MAX_LISTED_BYTES;
        let fits = |(id, _): &(&String, &Entry)| {
            // JSON escapes control characters with six bytes each.
            let bytes = serde_json::to_string(id).map_or(usize::MAX, |json| json.len() + 1);
            room.checked_sub(bytes).inspect(|rest| room = *rest).is_some()
        };
        calls.into_iter().take(MAX_LISTED_CALLS).take_while(fits).map(|(id, _)| id.clone()).collect()
    }

    /// Cancels the listed calls that are not in `wanted`. Returns how many.
    pub(crate) fn keep_only(&self, listed: &[String], wanted: &[String]) -> usize {
        let wanted: std::collections::HashSet<&str> = wanted.iter().map(String::as_str).collect();
        let unwanted: Vec<_> = listed.iter().filter(|id| !wanted.contains(id.as_str())).collect();
        unwanted.iter().for_each(|id| self.cancel(id));
        unwanted.len()
    }

    /// Starts no more calls, waits `finish` for running ones, cancels the rest and waits `end` for them.
    pub(crate) async fn drain(&self, finish: Duration, end: Duration) {
        self.table().stopping = true;
        let _ = tokio::time::timeout(finish, self.wait_for(|table| table.unfinished == 0)).await;
        self.table().calls.values().for_each(|entry| entry.cancel.cancel());
        let _ = tokio::time::timeout(end, self.wait_for(|table| table.unfinished == 0)).await;
    }

    /// Waits until every result was acknowledged.
    pub(crate) async fn acknowledged(&self, within: Duration) {
        let _ = tokio::time::timeout(within, self.wait_for(|table| table.held == 0)).await;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.table().unfinished == 0
    }

    /// Returns the ids whose results were dropped unacknowledged since the last call.
    pub(crate) fn take_dropped(&self) -> Vec<String> {
        std::mem::take(&mut self.table().dropped)
    }

    async fn wait_for(&self, done: impl Fn(&Table) -> bool) {
        let mut changed = self.inner.changed.subscribe();
        while !done(&self.table()) && changed.changed().await.is_ok() {}
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, id: &str, answer: Answer, answered: &watch::Sender<Option<Arc<Answer>>>) {
        let bytes = size(&answer);
        let mut table = self.table();
        table.unfinished -= 1;
        let number = table.next;
        table.next += 1;
        table.held += 1;
        table.held_bytes += bytes;
        let unwanted = match table.calls.get_mut(id) {
            Some(entry) => {
                entry.held = Some(Held { number, bytes });
                entry.unwanted
            }
            None => false,
        };
        if unwanted {
            table.forget(id);
        }
        table.drop_expired();
        table.drop_surplus();
        drop(table);
        // The result is held before it is sent, so that an acknowledgement finds it.
        answered.send_replace(Some(Arc::new(answer)));
        self.inner.changed.send_modify(|changes| *changes += 1);
    }
}

impl Table {
    /// Removes a call and remembers its id, so that it never runs again.
    fn forget(&mut self, id: &str) {
        if let Some(entry) = self.calls.remove(id)
            && let Some(held) = entry.held
        {
            self.held -= 1;
            self.held_bytes -= held.bytes;
        }
        self.finished.add(id);
    }

    fn drop_expired(&mut self) {
        let now = Instant::now();
        let stale = |entry: &Entry| {
            let until = entry.deadline.and_then(|deadline| deadline.checked_add(HELD_PAST_DEADLINE));
            entry.held.is_some() && until.is_some_and(|until| until < now)
        };
        let ids: Vec<String> =
            self.calls.iter().filter(|(_, entry)| stale(entry)).map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.forget(id));
    }

    fn drop_surplus(&mut self) {
        while self.held > MAX_HELD || self.held_bytes > MAX_HELD_BYTES {
            let oldest = self.calls.iter().filter_map(|(id, entry)| Some((entry.held.as_ref()?.number, id)));
            let Some(id) = oldest.min().map(|(_, id)| id.clone()) else { return };
            self.forget(&id);
            self.dropped.push(id);
        }
    }
}

/// Waits for a free slot and runs the call, unless it is cancelled or its deadline passes first.
async fn run_in_slot(
    slots: Arc<Semaphore>,
    cancel: CancellationToken,
    deadline: Option<Instant>,
    work: impl Future<Output = Answer> + Send,
    mut guard: AnswerGuard,
) {
    let slot = tokio::select! {
        // Cancellation and deadline win over a slot that becomes free at the same time.
        biased;
        () = cancel.cancelled() => {
            return guard.answer(Err(WireError::new(ErrorCode::Cancelled, "cancelled before it started")));
        }
        () = passed(deadline) => {
            let message = "the deadline passed before the call started";
            return guard.answer(Err(WireError::new(ErrorCode::Deadline, message)));
        }
        slot = slots.acquire_owned() => slot,
    };
    let answer = work.await;
    drop(slot);
    guard.answer(answer);
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Guarantees that a call gets an answer, even if it panics.
struct AnswerGuard {
    calls: Calls,
    id: String,
    answered: Option<watch::Sender<Option<Arc<Answer>>>>,
}

impl AnswerGuard {
    fn answer(&mut self, answer: Answer) {
        if let Some(answered) = self.answered.take() {
            self.calls.finish(&self.id, answer, &answered);
        }
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        if self.answered.is_some() {
            tracing::error!(call = self.id, "internalError");
        }
        self.answer(Err(WireError::new(ErrorCode::Internal, "an internal error; the node's log has more")));
    }
}

fn size(answer: &Answer) -> usize {
    match answer {
        Ok(json) => json.get().len(),
        Err(error) => {
            error.message.len() + error.details.as_ref().map_or(0, |details| details.to_string().len())
        }
    }
}

#[cfg(test)]
mod tests;
