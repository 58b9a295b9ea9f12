//! Ends of background processes, told to the operator's clients. What nobody heard is told to those that connect later.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::broadcast;

/// Ends that a slow client may miss before it is told so.
const EVENTS: usize = 256;

/// Ends that are kept for somebody to hear, and their bytes; the oldest make room. All of them are in the database.
const MAX_UNHEARD: usize = 64;
const MAX_UNHEARD_BYTES: usize = 1 << 20;

/// A client that stays this long has heard what it was told. Commands that ask one thing and go have not.
pub(crate) const HEARD_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Ends {
    sender: broadcast::Sender<Value>,
    unheard: Mutex<VecDeque<Unheard>>,
}

struct Unheard {
    event_id: String,
    bytes: usize,
    data: Value,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends { sender: broadcast::channel(EVENTS).0, unheard: Mutex::default() }
    }
}

impl Ends {
    pub(crate) fn tell(&self, event_id: &str, data: Value) {
        let mut unheard = self.unheard();
        let Err(broadcast::error::SendError(data)) = self.sender.send(data) else { return };
        let bytes = data.to_string().len();
        unheard.push_back(Unheard { event_id: event_id.to_owned(), bytes, data });
        while unheard.len() > MAX_UNHEARD
            || unheard.iter().map(|end| end.bytes).sum::<usize>() > MAX_UNHEARD_BYTES
        {
            unheard.pop_front();
        }
    }

    /// What nobody has heard so far, oldest first, and all that is told from now on.
    pub(crate) fn listen(&self) -> (Vec<Value>, broadcast::Receiver<Value>) {
        let unheard = self.unheard();
        (unheard.iter().map(|end| end.data.clone()).collect(), self.sender.subscribe())
    }

    /// Somebody has heard these.
    pub(crate) fn heard(&self, told: &[Value]) {
        let is_told = |id: &str| told.iter().any(|data| data["eventId"] == id);
        self.unheard().retain(|end| !is_told(&end.event_id));
    }

    fn unheard(&self) -> MutexGuard<'_, VecDeque<Unheard>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_heard_is_told_until_somebody_has() {
        let ends = Ends::default();
        let end = |id: &str| json!({"eventId": id});
        ends.tell("a", end("a"));
        let (first, mut live) = ends.listen();
        assert_eq!(first, [end("a")]);
        ends.tell("b", end("b"));
        assert_eq!(live.try_recv().unwrap(), end("b"));
        let (second, _) = ends.listen();
        assert_eq!(second, [end("a")], "b was heard by the first, a perhaps not");
        ends.heard(&first);
        assert!(ends.listen().0.is_empty());
    }

    #[test]
    fn no_more_than_so_many_wait() {
        let ends = Ends::default();
        for number in 0..100 {
            ends.tell(&number.to_string(), json!({"eventId": number.to_string()}));
        }
        let (waiting, _) = ends.listen();
        assert_eq!((waiting.len(), &waiting[63]["eventId"]), (64, &json!("99")));
        ends.tell("huge", json!({"eventId": "huge", "tail": "x".repeat(MAX_UNHEARD_BYTES - 1000)}));
        let (waiting, _) = ends.listen();
        assert_eq!(waiting.last().unwrap()["eventId"], "huge");
        assert!(waiting.len() < 64, "{}", waiting.len());
    }
}
