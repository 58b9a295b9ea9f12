//! Ends of background processes, told to the operator's clients. What nobody heard is told to those that connect later.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_protocol::ProcessEnded;
use tokio::sync::broadcast;

/// Ends that a slow client may miss before it is told so.
const EVENTS: usize = 256;

/// Ends that are kept for somebody to hear, and their bytes; the oldest make room. All of them are in the database.
const MAX_UNHEARD: usize = 64;
const MAX_UNHEARD_BYTES: usize = 1 << 20;

/// A client that stays this long has heard what it was told. Commands that ask one thing and go have not.
pub(crate) const HEARD_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Ends {
    sender: broadcast::Sender<ProcessEnded>,
    unheard: Mutex<VecDeque<Unheard>>,
    /// Listeners that have stayed.
    staying: AtomicUsize,
}

pub(crate) struct Staying<'a>(&'a Ends);

impl Drop for Staying<'_> {
    fn drop(&mut self) {
        self.0.staying.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Unheard {
    bytes: usize,
    data: ProcessEnded,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends { sender: broadcast::channel(EVENTS).0, unheard: Mutex::default(), staying: AtomicUsize::new(0) }
    }
}

impl Ends {
    pub(crate) fn tell(&self, data: ProcessEnded) {
        let mut unheard = self.unheard();
        // Nobody may be listening, or only somebody who is about to go.
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

    /// What nobody has heard so far, oldest first, and all that is told from now on.
    pub(crate) fn listen(&self) -> (Vec<ProcessEnded>, broadcast::Receiver<ProcessEnded>) {
        let unheard = self.unheard();
        (unheard.iter().map(|end| end.data.clone()).collect(), self.sender.subscribe())
    }

    /// Somebody who listens has stayed, and has heard everything so far; as long as this is kept, everything to come.
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
    fn what_nobody_heard_is_told_until_somebody_has() {
        let ends = Ends::default();
        ends.tell(end("a"));
        let (first, mut live) = ends.listen();
        assert_eq!(first, [end("a")]);
        ends.tell(end("b"));
        assert_eq!(live.try_recv().unwrap(), end("b"));
        assert_eq!(ends.listen().0, [end("a"), end("b")], "who heard them may be gone");
        let staying = ends.stay();
        ends.tell(end("c"));
        assert!(ends.listen().0.is_empty());
        drop(staying);
        ends.tell(end("d"));
        assert_eq!(ends.listen().0, [end("d")]);
    }

    #[test]
    fn no_more_than_so_many_wait() {
        let ends = Ends::default();
        for number in 0..100 {
            ends.tell(end(&number.to_string()));
        }
        let (waiting, _) = ends.listen();
        assert_eq!((waiting.len(), waiting[63].end.event_id.as_str()), (64, "99"));
        ends.tell(end_with("huge", "x".repeat(MAX_UNHEARD_BYTES - 1000)));
        let (waiting, _) = ends.listen();
        assert_eq!(waiting.last().unwrap().end.event_id, "huge");
        assert!(waiting.len() < 64, "{}", waiting.len());
    }
}
