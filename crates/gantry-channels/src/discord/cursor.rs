//! The cursor of an account: the session to resume, and what is needed to read missed messages when it cannot be resumed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::chats::now_ms;

/// How many chats of two are remembered. Discord does not list them to bots.
const MAX_DIRECT: usize = 50;
/// Where Discord's ids begin to count, in milliseconds since 1970.
const EPOCH: i64 = 1_420_070_400_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Cursor {
    /// The session that can be resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<Session>,
    /// The newest message that is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) newest: Option<String>,
    /// A session was lost. Messages after this one are missing and must be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) missing_after: Option<String>,
    /// Chats of two, the last used one at the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) direct: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) url: String,
    /// The number of the last event that is stored.
    pub(super) seq: u64,
}

/// What was received and what is stored. Messages and presses are stored independently of each other, so the cursor stays
/// before the first event that is not stored.
#[derive(Debug, Default)]
pub(super) struct Progress {
    cursor: Cursor,
    received: u64,
    waiting: BTreeSet<u64>,
}

impl Cursor {
    /// Reads a stored cursor. One that cannot be read is as good as none.
    pub(super) fn read(text: Option<&str>) -> Cursor {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

impl Progress {
    pub(super) fn new(cursor: Cursor) -> Progress {
        let received = cursor.session.as_ref().map_or(0, |session| session.seq);
        Progress { cursor, received, waiting: BTreeSet::new() }
    }

    /// A new session begins. What was written since the last one is missing.
    pub(super) fn begin(&mut self, session: Session) {
        self.received = session.seq;
        self.cursor.session = Some(session);
        if self.cursor.missing_after.is_none() {
            self.cursor.missing_after.clone_from(&self.cursor.newest);
        }
        // What was written before the first connection is not read.
        self.cursor.newest.get_or_insert_with(|| id_at(now_ms()));
    }

    pub(super) fn forget_session(&mut self) {
        self.cursor.session = None;
    }

    /// The number for heartbeats.
    pub(super) fn received(&self) -> Option<u64> {
        self.cursor.session.as_ref().map(|_| self.received)
    }

    /// An event arrived that needs nothing.
    pub(super) fn pass(&mut self, seq: u64) {
        self.received = self.received.max(seq);
    }

    /// An event arrived that has to be stored.
    pub(super) fn wait_for(&mut self, seq: u64) {
        self.pass(seq);
        self.waiting.insert(seq);
    }

    pub(super) fn stored(&mut self, seq: u64) {
        self.waiting.remove(&seq);
    }

    /// Notes a message that is about to be stored.
    pub(super) fn note_message(&mut self, id: &str, direct: Option<&str>) {
        if self.cursor.newest.as_deref().and_then(number) < number(id) {
            self.cursor.newest = Some(id.to_owned());
        }
        if let Some(chat) = direct {
            self.cursor.direct.retain(|known| known != chat);
            self.cursor.direct.push(chat.to_owned());
            let more = self.cursor.direct.len().saturating_sub(MAX_DIRECT);
            self.cursor.direct.drain(..more);
        }
    }

    pub(super) fn missing_after(&self) -> Option<String> {
        self.cursor.missing_after.clone()
    }

    pub(super) fn direct(&self) -> Vec<String> {
        self.cursor.direct.clone()
    }

    pub(super) fn nothing_is_missing(&mut self) {
        self.cursor.missing_after = None;
    }

    /// The cursor as it is after event `seq` is stored too.
    pub(super) fn text_with(&self, seq: Option<u64>) -> String {
        let mut cursor = self.cursor.clone();
        if let Some(session) = &mut cursor.session {
            let first = self.waiting.iter().find(|waiting| Some(**waiting) != seq);
            session.seq = first.map_or(self.received, |first| first.saturating_sub(1));
        }
        serde_json::to_string(&cursor).unwrap_or_default()
    }
}

/// The smallest id of a time.
pub(super) fn id_at(ms: i64) -> String {
    (u64::try_from(ms.saturating_sub(EPOCH)).unwrap_or(0) << 22).to_string()
}

/// The time in an id, in milliseconds since 1970.
pub(super) fn time_of(id: &str) -> i64 {
    number(id).and_then(|id| i64::try_from(id >> 22).ok()).map_or(0, |ms| ms.saturating_add(EPOCH))
}

pub(super) fn number(id: &str) -> Option<u64> {
    id.parse().ok()
}

/// Whether a text has the form of an id.
pub(super) fn is_id(text: &str) -> bool {
    (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()) && number(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(progress: &Progress, with: Option<u64>) -> u64 {
        Cursor::read(Some(&progress.text_with(with))).session.unwrap().seq
    }

    fn session() -> Session {
        Session { id: "s".into(), url: "wss://g".into(), seq: 1 }
    }

    #[test]
    fn cursor_stays_before_the_first_event_that_is_not_stored() {
        let mut progress = Progress::new(Cursor::default());
        progress.begin(session());
        progress.wait_for(2);
        progress.wait_for(3);
        progress.pass(4);
        // The press with number 3 is stored before the message with number 2.
        assert_eq!(seq(&progress, Some(3)), 1);
        progress.stored(3);
        assert_eq!(seq(&progress, None), 1);
        assert_eq!(seq(&progress, Some(2)), 4);
        progress.stored(2);
        assert_eq!(seq(&progress, None), 4);
        // An event that arrives late does not move it back.
        progress.pass(3);
        assert_eq!(progress.received(), Some(4));
    }

    #[test]
    fn lost_session_leaves_a_gap_until_it_is_read() {
        let mut progress = Progress::new(Cursor::default());
        progress.begin(session());
        assert_eq!(progress.missing_after(), None, "nothing was missed before the first connection");
        progress.note_message("1700000000000000000", Some("7"));
        progress.forget_session();
        progress.begin(session());
        progress.note_message("1800000000000000000", None);
        let again = Cursor::read(Some(&progress.text_with(None)));
        assert_eq!(again.missing_after.as_deref(), Some("1700000000000000000"));
        assert_eq!(again.direct, ["7"]);
        progress.nothing_is_missing();
        assert_eq!(Cursor::read(Some(&progress.text_with(None))).missing_after, None);
    }

    #[test]
    fn chats_of_two_are_bounded() {
        let mut progress = Progress::new(Cursor::default());
        for chat in 0..200 {
            progress.note_message("1", Some(&chat.to_string()));
        }
        assert_eq!(progress.direct().len(), MAX_DIRECT);
        assert_eq!(progress.direct().last().map(String::as_str), Some("199"));
    }

    #[test]
    fn ids_have_a_time_and_a_form() {
        assert_eq!(time_of("175928847299117063"), 1_462_015_105_796);
        assert_eq!(time_of(&id_at(1_700_000_000_000)), 1_700_000_000_000);
        for wrong in ["", "x", "1/2", "-1", "99999999999999999999", "123456789012345678901", "१"] {
            assert!(!is_id(wrong), "{wrong}");
        }
        assert_eq!(Cursor::read(Some("nonsense")), Cursor::default());
    }
}
