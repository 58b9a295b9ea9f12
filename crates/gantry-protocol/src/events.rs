//! Events that clients receive: those of sessions, and the data of the gateway's own events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::methods::ProcessEnd;
use crate::sessions::{Addressee, ApprovalDecision, Question, UserAsked};

/// `data` of `session.event`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionEventData {
    pub session_key: String,
    /// The number of entries in the journal when the event came. Those of `session.event` have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    pub event: SessionEvent,
}

/// Something that happened in a session. Sessions publish these events, and server-sent events of
/// `/v1/sessions/{key}/messages` have the same form.
///
/// Events are not stored; the journal has its own entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SessionEvent {
    /// The first event over HTTP: the message was accepted.
    Accepted {
        session_key: String,
        message_id: String,
    },
    /// A message about work elsewhere, such as a scheduled run. It starts no run.
    Notice {
        id: String,
        from: String,
        text: String,
    },
    RunBegun {
        run: String,
    },
    /// A piece of the model's reply.
    Text {
        run: String,
        delta: String,
    },
    Thinking {
        run: String,
        delta: String,
    },
    /// The model started to write a call.
    CallWriting {
        run: String,
        call: String,
        tool: String,
    },
    /// A piece of a call's arguments, for tools whose arguments are streamed.
    CallInput {
        run: String,
        call: String,
        delta: String,
    },
    /// The request is repeated: discard the text and thinking since it began.
    Restart {
        run: String,
        reason: String,
    },
    ToolStart {
        run: String,
        call: String,
        tool: String,
        input: Value,
    },
    ToolProgress {
        run: String,
        call: String,
        done: u64,
        total: Option<u64>,
        message: String,
    },
    ToolEnd {
        run: String,
        call: String,
        tool: String,
        is_error: bool,
        /// The call returned an error, or its command ended with a non-zero exit code, a signal or a timeout.
        #[serde(default)]
        failed: bool,
        /// The exit code of a command that ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i64>,
        result: String,
    },
    /// The run waits for an approval.
    Approval {
        run: String,
        question: Question,
    },
    ApprovalAnswered {
        run: String,
        question: String,
        answer: ApprovalDecision,
        by: String,
    },
    /// The agent asks its user and waits for the answer.
    Asked {
        run: String,
        asked: UserAsked,
    },
    AskedAnswered {
        run: String,
        question: String,
        answers: Vec<String>,
        by: String,
    },
    Compacted {
        replaced: usize,
        by_model: bool,
    },
    Reset {
        why: String,
    },
    /// The run's answer to each of its messages.
    Final {
        run: String,
        text: String,
        messages: Vec<Addressee>,
    },
    Stopped {
        run: String,
        by: String,
        messages: Vec<Addressee>,
    },
    Error {
        run: Option<String>,
        message: String,
        messages: Vec<Addressee>,
    },
    /// The gateway is stopping; the run resumes after the restart.
    Suspended,
    /// This many events were not delivered because the client was too slow.
    Missed {
        events: u64,
    },
    /// An event that this version does not know.
    #[serde(other)]
    Unknown,
}

impl SessionEvent {
    /// Returns the name on the wire, which is also the name of the server-sent event.
    pub fn name(&self) -> &'static str {
        match self {
            SessionEvent::Accepted { .. } => "accepted",
            SessionEvent::Notice { .. } => "notice",
            SessionEvent::RunBegun { .. } => "run_begun",
            SessionEvent::Text { .. } => "text",
            SessionEvent::Thinking { .. } => "thinking",
            SessionEvent::CallWriting { .. } => "call_writing",
            SessionEvent::CallInput { .. } => "call_input",
            SessionEvent::Restart { .. } => "restart",
            SessionEvent::ToolStart { .. } => "tool_start",
            SessionEvent::ToolProgress { .. } => "tool_progress",
            SessionEvent::ToolEnd { .. } => "tool_end",
            SessionEvent::Approval { .. } => "approval",
            SessionEvent::ApprovalAnswered { .. } => "approval_answered",
            SessionEvent::Asked { .. } => "asked",
            SessionEvent::AskedAnswered { .. } => "asked_answered",
            SessionEvent::Compacted { .. } => "compacted",
            SessionEvent::Reset { .. } => "reset",
            SessionEvent::Final { .. } => "final",
            SessionEvent::Stopped { .. } => "stopped",
            SessionEvent::Error { .. } => "error",
            SessionEvent::Suspended => "suspended",
            SessionEvent::Missed { .. } => "missed",
            SessionEvent::Unknown => "unknown",
        }
    }

    /// Whether this is the final event of the message with that id.
    pub fn settles(&self, message: &str) -> bool {
        match self {
            SessionEvent::Final { messages, .. }
            | SessionEvent::Stopped { messages, .. }
            | SessionEvent::Error { messages, .. } => messages.iter().any(|settled| settled.id == message),
            _ => false,
        }
    }
}

/// `data` of the event `process.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessEnded {
    #[serde(flatten)]
    pub end: ProcessEnd,
    pub node_id: String,
}

/// `data` of the event `missed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missed {
    pub events: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_names_match_the_wire() {
        for event in [
            SessionEvent::Text { run: "r".into(), delta: "x".into() },
            SessionEvent::Notice { id: "n".into(), from: "cron:j".into(), text: "done".into() },
            SessionEvent::Compacted { replaced: 1, by_model: true },
            SessionEvent::Suspended,
            SessionEvent::Missed { events: 7 },
        ] {
            let value = serde_json::to_value(&event).unwrap();
            assert_eq!(value["event"], event.name());
            assert_eq!(serde_json::from_value::<SessionEvent>(value).unwrap(), event);
        }
        let later = r#"{"event":"of_a_later_version","x":1}"#;
        assert_eq!(serde_json::from_str::<SessionEvent>(later).unwrap(), SessionEvent::Unknown);
    }
}
