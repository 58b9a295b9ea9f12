//! `CloseReason` is the reason in a close frame. Since version 2 it is sent as JSON, and programs decide by its code.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ErrorCode;

/// A close frame has room for 123 bytes of reason.
pub const MAX_CLOSE_REASON_BYTES: usize = 123;

/// The reason in a close frame, such as `{"code":"node_renamed","newId":"desk"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum CloseReason {
    /// The peer has nothing more to ask.
    Done,
    /// The gateway is stopping: connect again.
    Stopping,
    /// The node is stopping.
    NodeStopping,
    /// `connect` was refused; the response before the close has the message.
    Refused {
        error: ErrorCode,
    },
    /// A newer connection with the same node id replaced this one.
    Replaced,
    /// The operator gave the node another id: connect with that one. The token stays the same.
    NodeRenamed {
        new_id: String,
    },
    /// The operator removed the node.
    NodeForgotten,
    /// The node has a new token: connect with that one.
    NodeTokenRenewed,
    NodeTokenRevoked,
    /// The client's token was revoked.
    TokenRevoked,
    /// The client's token has expired.
    TokenExpired,
    /// The page session was revoked: open a new link.
    PageSessionEnded,
    /// The node did not send `node.tools` in time.
    ToolsMissing,
    /// A bulk connection ends with the node's main connection.
    MainClosed,
    /// Two pings were not answered.
    Silent,
    /// Too many messages were not frames.
    BadFrames,
    /// The memory for large messages is used up. The message was not read: try again later.
    NoRoom,
    /// A large message came too slowly.
    TooSlow,
    /// A message, or its fragments, are too large.
    TooLarge,
}

impl CloseReason {
    /// Reads the reason of a close frame. `None` for text that is not one of these codes.
    pub fn parse(text: &str) -> Option<CloseReason> {
        serde_json::from_str(text).ok()
    }

    /// The text for a close frame on a connection that speaks this version of the protocol.
    pub fn to_text(&self, protocol: u32) -> String {
        match protocol {
            ..=1 => self.sentence().into_owned(),
            _ => serde_json::to_string(self).unwrap_or_default(),
        }
    }

    /// Reads the sentence of a gateway or node of version 1.
    pub fn from_sentence(text: &str) -> Option<CloseReason> {
        let renamed = text.strip_prefix("the node was renamed to ").and_then(|rest| rest.split(';').next());
        if let Some(new_id) = renamed {
            return Some(CloseReason::NodeRenamed { new_id: new_id.to_owned() });
        }
        let known = [
            CloseReason::Done,
            CloseReason::Stopping,
            CloseReason::NodeStopping,
            CloseReason::Replaced,
            CloseReason::NodeForgotten,
            CloseReason::NodeTokenRenewed,
            CloseReason::NodeTokenRevoked,
            CloseReason::TokenRevoked,
            CloseReason::TokenExpired,
            CloseReason::PageSessionEnded,
            CloseReason::ToolsMissing,
            CloseReason::MainClosed,
            CloseReason::Silent,
            CloseReason::BadFrames,
            CloseReason::NoRoom,
            CloseReason::TooSlow,
            CloseReason::TooLarge,
        ];
        known.into_iter().find(|reason| reason.sentence() == text)
    }

    /// The text of version 1. Nodes and clients of that version decide by these sentences, so they never change.
    fn sentence(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            CloseReason::NodeRenamed { new_id } => {
                return Cow::Owned(format!("the node was renamed to {new_id}; start it with that id"));
            }
            CloseReason::Refused { error } => return Cow::Owned(error.name().to_owned()),
            CloseReason::Done => "done",
            CloseReason::Stopping => "the gateway is stopping",
            CloseReason::NodeStopping => "the node is stopping",
            CloseReason::Replaced => "replaced by a newer connection of the same node",
            CloseReason::NodeForgotten => "the node was forgotten",
            CloseReason::NodeTokenRenewed => "the node's token was renewed",
            CloseReason::NodeTokenRevoked => "the node's token was revoked",
            CloseReason::TokenRevoked => "the token was revoked",
            CloseReason::TokenExpired => "the token has expired",
            CloseReason::PageSessionEnded => "the page session was ended",
            CloseReason::ToolsMissing => "the node did not tell its tools in time",
            CloseReason::MainClosed => "the node has connected anew",
            CloseReason::Silent => "the peer fell silent: two pings were not answered",
            CloseReason::BadFrames => "too many frames that are none",
            CloseReason::NoRoom => "there is no room for a large message now; try again later",
            CloseReason::TooSlow => {
                "a large message came too slowly: 256 KB a second are expected after 30 s"
            }
            CloseReason::TooLarge => "the fragments of a message are too large",
        })
    }
}

/// For people. Programs decide by the code.
impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Refused { error } => write!(f, "connect was refused with {}", error.name()),
            CloseReason::ToolsMissing => f.write_str("the node did not send its tools in time"),
            CloseReason::MainClosed => f.write_str("the node's main connection is closed"),
            CloseReason::BadFrames => f.write_str("too many messages were not frames"),
            CloseReason::NoRoom => f.write_str("no memory is free now for a large message; try again later"),
            other => f.write_str(&other.sentence()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reason: CloseReason, json: &str, sentence: &str) {
        assert_eq!(reason.to_text(2), json);
        assert_eq!(reason.to_text(1), sentence);
        // The response before such a close has the error.
        let read = (!matches!(reason, CloseReason::Refused { .. })).then(|| reason.clone());
        assert_eq!(CloseReason::from_sentence(sentence), read);
        assert_eq!(CloseReason::parse(json), Some(reason));
        assert_eq!(CloseReason::parse(sentence), None, "sentences are for people");
    }

    #[test]
    fn version_2_sends_codes_and_version_1_the_sentences_that_its_nodes_read() {
        check(
            CloseReason::NodeRenamed { new_id: "desk".into() },
            r#"{"code":"node_renamed","newId":"desk"}"#,
            "the node was renamed to desk; start it with that id",
        );
        check(
            CloseReason::Replaced,
            r#"{"code":"replaced"}"#,
            "replaced by a newer connection of the same node",
        );
        check(
            CloseReason::NodeTokenRenewed,
            r#"{"code":"node_token_renewed"}"#,
            "the node's token was renewed",
        );
        check(
            CloseReason::NodeTokenRevoked,
            r#"{"code":"node_token_revoked"}"#,
            "the node's token was revoked",
        );
        check(CloseReason::NodeForgotten, r#"{"code":"node_forgotten"}"#, "the node was forgotten");
        check(
            CloseReason::NoRoom,
            r#"{"code":"no_room"}"#,
            "there is no room for a large message now; try again later",
        );
        check(CloseReason::Stopping, r#"{"code":"stopping"}"#, "the gateway is stopping");
        check(
            CloseReason::Refused { error: ErrorCode::Unauthorized },
            r#"{"code":"refused","error":"unauthorized"}"#,
            "unauthorized",
        );
    }

    #[test]
    fn longest_reason_fits_into_a_close_frame() {
        let longest = CloseReason::NodeRenamed { new_id: "x".repeat(32) };
        for protocol in [1, 2] {
            assert!(longest.to_text(protocol).len() <= MAX_CLOSE_REASON_BYTES);
        }
    }

    #[test]
    fn unknown_code_is_not_parsed() {
        assert_eq!(CloseReason::parse(r#"{"code":"later_version"}"#), None);
        assert_eq!(CloseReason::parse(""), None);
    }
}
