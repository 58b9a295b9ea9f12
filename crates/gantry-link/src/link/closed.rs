//! Why a link is closed, for programs as a code and for people as text.

use std::fmt;

use gantry_protocol::CloseReason;

/// Why a link is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// The code that this side or the peer closed with. `None` when the connection was lost, and for codes of newer versions.
    pub reason: Option<CloseReason>,
    text: String,
    by_peer: bool,
}

impl Closed {
    pub(crate) fn here(reason: CloseReason) -> Closed {
        Closed { text: reason.to_string(), reason: Some(reason), by_peer: false }
    }

    pub(crate) fn by_peer(code: u16, text: &str) -> Closed {
        // A peer of version 1 closes with a sentence.
        let reason = CloseReason::parse(text).or_else(|| CloseReason::from_sentence(text));
        let text = match &reason {
            Some(reason) => format!("the peer closed the connection: {reason}"),
            None => format!("the peer closed with {code} {text}"),
        };
        Closed { reason, text, by_peer: true }
    }

    pub(crate) fn lost(text: impl fmt::Display) -> Closed {
        Closed { reason: None, text: text.to_string(), by_peer: false }
    }

    /// What the close frame of this side says.
    pub(crate) fn wire_text(&self, protocol: u32) -> String {
        let own = self.reason.as_ref().filter(|_| !self.by_peer);
        own.map(|reason| reason.to_text(protocol)).unwrap_or_default()
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_frames_follow_the_version_of_the_peer_and_are_read_in_both() {
        let closed = Closed::here(CloseReason::Replaced);
        let sentence = closed.wire_text(1);
        assert_eq!(sentence, "replaced by a newer connection of the same node");
        assert_eq!(closed.wire_text(2), r#"{"code":"replaced"}"#);
        for text in [sentence, closed.wire_text(2)] {
            assert_eq!(Closed::by_peer(1000, &text).reason, Some(CloseReason::Replaced));
        }
        let unknown = Closed::by_peer(1000, "another text");
        assert_eq!((unknown.reason, unknown.text.contains("another text")), (None, true));
    }
}
