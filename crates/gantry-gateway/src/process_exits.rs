//! Publishes exits of background processes to the operator's clients. Exits that no client received wait for the next one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_protocol::ProcessEnded;
use tokio::sync::broadcast;

/// Size of each client's queue. A client that falls further behind gets a `missed` event.
const EVENTS: usize = 256;

/// Limits of the exits that wait for a client. The oldest are dropped first; the database keeps all of them.
const MAX_UNHEARD: usize = 64;
const MAX_UNHEARD_BYTES: usize = 1 << 20;

/// A client that stays connected this long counts as having received the exits. Short commands do not.
pub(crate) const HEARD_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct ProcessExits {
    sender: broadcast::Sender<ProcessEnded>,
    unheard: Mutex<VecDeque<Unheard>>,
    /// The number of clients that have stayed for [`HEARD_AFTER`].
    staying: AtomicUsize,
}

/// `Staying` counts a client as a lasting listener until it is dropped.
pub(crate) struct Staying<'a>(&'a ProcessExits);

impl Drop for Staying<'_> {
    fn drop(&mut self) {
        self.0.staying.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Unheard {
    bytes: usize,
    data: ProcessEnded,
}

impl Default for ProcessExits {
    fn default() -> ProcessExits {
        ProcessExits {
            sender: broadcast::channel(EVENTS).0,
            unheard: Mutex::default(),
            staying: AtomicUsize::new(0),
        }
    }
}

impl ProcessExits {
    /// Sends an exit to all clients, and keeps it if no lasting client listens.
    pub(crate) fn publish(&self, data: ProcessEnded) {
        let mut unheard = self.unheard();
        // Sending fails if there are no clients, which is fine.
        let _ = self.sender.send(data.clone());
        if self.staying.load(Ordering::Acquire) > 0 {
            return;
        }
        let bytes = serde_json::to_string(&data).map_or(0, |text| text.len());
        unheard.push_back(Unheard { bytes, data });
        while unheard.len() > MAX_UNHEARD
            || unheard.iter().map(|end| end.bytes).sum::<usize>() > MAX_UNHEARD_BYTES
        {
            unheard.pop_front();
        }
    }

    /// Returns the exits that no client received, oldest first, and a receiver of new ones.
    pub(crate) fn listen(&self) -> (Vec<ProcessEnded>, broadcast::Receiver<ProcessEnded>) {
        let unheard = self.unheard();
        (unheard.iter().map(|end| end.data.clone()).collect(), self.sender.subscribe())
    }

    /// Marks a client as lasting. The waiting exits count as received, and so do new ones while the guard exists.
    pub(crate) fn stay(&self) -> Staying<'_> {
        self.unheard().clear();
        self.staying.fetch_add(1, Ordering::AcqRel);
        Staying(self)
    }

    fn unheard(&self) -> MutexGuard<'_, VecDeque<Unheard>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gantry_protocol::ProcessEnd;

    use super::*;

    fn end_with(id: &str, tail: String) -> ProcessEnded {
        let end = ProcessEnd {
            event_id: id.to_owned(),
            session_id: String::new(),
            command: String::new(),
            principal: String::new(),
            agent: String::new(),
            exit_code: Some(0),
            signal: None,
            timed_out: false,
            started_at: 0,
            ended_at: 0,
            tail,
        };
        ProcessEnded { end, node_id: "box".into() }
    }

    fn end(id: &str) -> ProcessEnded {
        end_with(id, String::new())
    }

    #[test]
    fn exits_are_repeated_until_a_client_stays() {
        let ends = ProcessExits::default();
        ends.publish(end("a"));
        let (first, mut live) = ends.listen();
        assert_eq!(first, [end("a")]);
        ends.publish(end("b"));
        assert_eq!(live.try_recv().unwrap(), end("b"));
        assert_eq!(ends.listen().0, [end("a"), end("b")], "a client that left too early does not count");
        let staying = ends.stay();
        ends.publish(end("c"));
        assert!(ends.listen().0.is_empty());
        drop(staying);
        ends.publish(end("d"));
        assert_eq!(ends.listen().0, [end("d")]);
    }

    #[test]
    fn waiting_exits_are_bounded() {
        let ends = ProcessExits::default();
        for number in 0..100 {
            ends.publish(end(&number.to_string()));
        }
        let (waiting, _) = ends.listen();
        assert_eq!((waiting.len(), waiting[63].end.event_id.as_str()), (64, "99"));
        ends.publish(end_with("huge", "x".repeat(MAX_UNHEARD_BYTES - 1000)));
        let (waiting, _) = ends.listen();
        assert_eq!(waiting.last().unwrap().end.event_id, "huge");
        assert!(waiting.len() < 64, "{}", waiting.len());
    }
}
