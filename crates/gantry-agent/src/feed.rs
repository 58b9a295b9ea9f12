//! [`Feed`] publishes the events of one session, and knows the reply that is being written, so that a client that
//! begins to listen in the middle of it misses nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_protocol::{SessionEvent, SessionEventData, UnfinishedReply};
use tokio::sync::broadcast;

/// Events that a slow listener may be behind.
const EVENTS: usize = 1024;

/// A reply that is longer is not kept further. The journal has it when it is complete.
const MAX_UNFINISHED_BYTES: usize = 8 << 20;

pub(crate) struct Feed {
    key: String,
    sender: broadcast::Sender<Arc<SessionEvent>>,
    state: Mutex<FeedState>,
}

#[derive(Default)]
struct FeedState {
    /// The number of entries in the journal.
    entries: i64,
    unfinished: Option<UnfinishedReply>,
    /// For listeners that need the numbers. Made with the first of them.
    numbered: Option<broadcast::Sender<Arc<SessionEventData>>>,
}

/// What a client gets when it begins to listen. Every later event is new to it.
pub(crate) struct Listening {
    pub(crate) events: broadcast::Receiver<Arc<SessionEventData>>,
    pub(crate) entries: i64,
    pub(crate) unfinished: Option<UnfinishedReply>,
}

impl Feed {
    pub(crate) fn new(key: &str) -> Feed {
        Feed { key: key.to_owned(), sender: broadcast::channel(EVENTS).0, state: Mutex::default() }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<SessionEvent>> {
        self.sender.subscribe()
    }

    pub(crate) fn listen(&self) -> Listening {
        let mut state = self.state();
        let numbered = state.numbered.get_or_insert_with(|| broadcast::channel(EVENTS).0);
        let events = numbered.subscribe();
        Listening { events, entries: state.entries, unfinished: state.unfinished.clone() }
    }

    pub(crate) fn has_listeners(&self) -> bool {
        let numbered = self.state().numbered.as_ref().map_or(0, broadcast::Sender::receiver_count);
        numbered + self.sender.receiver_count() > 0
    }

    pub(crate) fn send(&self, event: SessionEvent) {
        self.state().send(self, event);
    }

    /// The journal has this many entries now, and these events came with the last ones.
    pub(crate) fn wrote(&self, entries: i64, ends_reply: bool, events: Vec<SessionEvent>) {
        let mut state = self.state();
        state.entries = entries;
        if ends_reply {
            state.unfinished = None;
        }
        for event in events {
            state.send(self, event);
        }
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FeedState {
    /// Sending fails if there are no listeners, which is fine.
    fn send(&mut self, feed: &Feed, event: SessionEvent) {
        self.follow(&event);
        if let Some(numbered) = self.numbered.as_ref().filter(|numbered| numbered.receiver_count() > 0) {
            let data = SessionEventData {
                session_key: feed.key.clone(),
                seq: Some(self.entries),
                event: event.clone(),
            };
            let _ = numbered.send(Arc::new(data));
        }
        let _ = feed.sender.send(Arc::new(event));
    }

    fn follow(&mut self, event: &SessionEvent) {
        let (run, text, thinking) = match event {
            SessionEvent::Text { run, delta } => (run, delta.as_str(), ""),
            SessionEvent::Thinking { run, delta } => (run, "", delta.as_str()),
            SessionEvent::Restart { .. } => return self.unfinished = None,
            _ => return,
        };
        let reply = self.unfinished.get_or_insert_with(|| UnfinishedReply {
            run: run.clone(),
            text: String::new(),
            thinking: String::new(),
        });
        if reply.text.len() + reply.thinking.len() < MAX_UNFINISHED_BYTES {
            reply.text.push_str(text);
            reply.thinking.push_str(thinking);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(delta: &str) -> SessionEvent {
        SessionEvent::Text { run: "r".into(), delta: delta.into() }
    }

    fn rest(listening: &mut Listening) -> Vec<(Option<i64>, &'static str)> {
        std::iter::from_fn(|| listening.events.try_recv().ok())
            .map(|data| (data.seq, data.event.name()))
            .collect()
    }

    #[test]
    fn whoever_listens_in_the_middle_gets_the_text_so_far_and_the_rest() {
        let feed = Feed::new("k");
        feed.wrote(3, false, Vec::new());
        feed.send(text("one "));
        feed.send(SessionEvent::Thinking { run: "r".into(), delta: "hm".into() });
        feed.send(text("two"));
        let mut listening = feed.listen();
        let unfinished = listening.unfinished.clone().unwrap();
        assert_eq!((unfinished.text.as_str(), unfinished.thinking.as_str()), ("one two", "hm"));
        assert_eq!(listening.entries, 3);
        feed.send(text(" three"));
        feed.wrote(5, true, vec![SessionEvent::Suspended]);
        assert_eq!(rest(&mut listening), [(Some(3), "text"), (Some(5), "suspended")]);
        let later = feed.listen();
        assert_eq!((later.unfinished, later.entries), (None, 5));
    }

    #[test]
    fn repeated_request_discards_the_text() {
        let feed = Feed::new("k");
        feed.send(text("wrong"));
        feed.send(SessionEvent::Restart { run: "r".into(), reason: "busy".into() });
        assert_eq!(feed.listen().unfinished, None);
    }

    #[test]
    fn listeners_of_both_kinds_keep_the_session_alive() {
        let feed = Feed::new("k");
        assert!(!feed.has_listeners());
        let plain = feed.subscribe();
        assert!(feed.has_listeners());
        drop(plain);
        let numbered = feed.listen();
        assert!(feed.has_listeners());
        drop(numbered);
        assert!(!feed.has_listeners());
    }
}
