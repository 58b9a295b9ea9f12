//! Agents and their sessions: parameters and results of `agents.list` and `sessions.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `result` of `agents.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentList {
    pub agents: Vec<AgentInfo>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentInfo {
    pub id: String,
    /// Without one, the balanced model.
    pub model: Option<String>,
    /// `supervised`, `guided` or `autonomous`.
    pub autonomy: String,
    pub workspace: String,
    /// Its main session.
    pub session_key: String,
}

/// `params` of `sessions.list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SessionsListParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
}

/// `result` of `sessions.list`, the last active first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    pub sessions: Vec<SessionInfo>,
    pub total: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    pub session_key: String,
    pub agent: String,
    pub label: Option<String>,
    pub created: i64,
    pub last_activity: i64,
    /// How many events its journal has.
    pub events: i64,
    /// A run is under way or waits.
    pub running: bool,
    /// Somebody has to answer before the run goes on.
    pub waiting: bool,
    /// The session or principal that began it, if it is a child.
    pub parent: Option<String>,
}

/// `params` of `sessions.status` and `sessions.listen`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionParams {
    pub session_key: String,
}

/// `result` of `sessions.status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatus {
    pub session_key: String,
    pub agent: String,
    pub model: String,
    pub workspace: String,
    /// The run that is under way.
    pub running: Option<String>,
    /// Messages that wait for a run.
    pub queued: usize,
    /// Messages in the conversation.
    pub messages: usize,
    /// Events in the journal.
    pub events: i64,
    pub compactions: u32,
    pub runs: u64,
    pub usage: TokenUsage,
    /// `untrusted` and `private`.
    pub labels: Vec<String>,
    /// Calls that wait for an approval.
    pub questions: Vec<Question>,
    /// What the agent asks its user.
    pub asks: Vec<UserAsked>,
    /// The limits of a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Value>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenUsage {
    /// Without those from the cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}

/// `result` of `sessions.listen`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ListenResult {
    Known(Box<SessionStatus>),
    /// The session begins with the next message.
    New(SessionParams),
}

impl ListenResult {
    pub fn session_key(&self) -> &str {
        match self {
            ListenResult::Known(status) => &status.session_key,
            ListenResult::New(new) => &new.session_key,
        }
    }
}

/// `params` of `sessions.history`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistoryParams {
    pub session_key: String,
    /// The first event; 0 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `result` of `sessions.history`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct History {
    pub session_key: String,
    pub events: Vec<HistoryEvent>,
    /// Where the next page begins, if there is one.
    pub next: Option<i64>,
}

/// An event of a session's journal. [`HistoryEvent::entry`] reads its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryEvent {
    pub seq: i64,
    pub at: i64,
    pub kind: String,
    pub data: Value,
}

impl HistoryEvent {
    pub fn entry(&self) -> HistoryEntry {
        serde_json::from_value(self.data.clone()).unwrap_or(HistoryEntry::Other)
    }
}

/// What clients show of a journal. Kinds and fields that are not here are the journal's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HistoryEntry {
    MessageIn {
        from: String,
        text: String,
    },
    Replied {
        reply: HistoryReply,
    },
    CallEnded {
        result: HistoryCallResult,
    },
    /// The gateway ended during the call: its outcome is unknown.
    CallInterrupted {
        call: String,
    },
    ApprovalAsked(Question),
    ApprovalAnswered {
        answer: ApprovalDecision,
        by: String,
    },
    UserAsked(UserAsked),
    UserAnswered {
        answers: Vec<String>,
        by: String,
    },
    Compacted {},
    Reset {
        why: String,
    },
    RunEnded {
        end: RunEnd,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryReply {
    pub message: HistoryMessage,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryMessage {
    pub content: Vec<HistoryBlock>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryCallResult {
    #[serde(default)]
    pub is_error: bool,
    #[serde(default)]
    pub content: Vec<HistoryBlock>,
}

/// A piece of what a model said, or of what a call returned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HistoryBlock {
    Text {
        text: String,
    },
    ToolUse {
        name: String,
        input: Value,
    },
    #[serde(other)]
    Other,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum RunEnd {
    Final {
        text: String,
    },
    Stopped {
        by: String,
    },
    Failed {
        error: String,
    },
    #[serde(other)]
    Other,
}

/// `params` of `sessions.send`, and the body of `POST /v1/sessions/{key}/messages`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageParams {
    /// Needed over the WebSocket; over HTTP the path has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    pub message: String,
    /// The same id twice is one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Kept, and returned with the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub reply_to: Value,
    /// The operator's: where the conversation works from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// `result` of `sessions.send`, and the answer of `POST /v1/sessions/{key}/messages`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SendResult {
    Accepted {
        session_key: String,
        message_id: String,
    },
    /// The message was a command; `told` is its answer.
    Command {
        session_key: String,
        told: String,
    },
    Final {
        session_key: String,
        message_id: String,
        run_id: Option<String>,
        reply: String,
    },
    Stopped {
        session_key: String,
        message_id: String,
        run_id: Option<String>,
        by: String,
    },
    Error {
        session_key: String,
        message_id: String,
        run_id: Option<String>,
        error: String,
    },
    /// The gateway is stopping; the run goes on when it is back.
    Suspended {
        session_key: String,
        message_id: String,
        run_id: Option<String>,
        error: String,
    },
}

/// `params` of `sessions.answer`, and the body of `POST /v1/sessions/{key}/answers`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerParams {
    /// Needed over the WebSocket; over HTTP the path has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The question's id; may be left out while only one is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// `yes`, `no` or `always`; or what the agent wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// To several questions at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Vec<String>>,
    /// For `always`: the same arguments, or any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<GrantScope>,
    /// For `always`: how long it counts; as configured when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<u32>,
}

/// `result` of `sessions.answer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnswerResult {
    pub session_key: String,
    /// What happens now, for people.
    pub told: String,
}

/// What somebody is asked before a call runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    pub id: String,
    pub call: String,
    pub tool: String,
    pub rule: String,
    pub reason: String,
    /// Secrets masked, long values shortened.
    pub input: Value,
    /// Identifies this call, down to the last byte of its input.
    pub fingerprint: String,
    /// The same of the call alone, whatever rule asks about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exact: String,
    /// From then on the answer is no.
    pub expires: i64,
    /// The child that asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildName>,
}

/// What the agent asks its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserAsked {
    pub id: String,
    pub call: String,
    pub questions: Vec<UserQuestion>,
    /// From then on nobody answered.
    pub expires: i64,
    /// The child that asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserQuestion {
    pub question: String,
    /// What several questions are about; the first one has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heading: Option<String>,
    /// A word or two, where several questions are shown side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Answers to choose from; another one may be given all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The child session that asks, for those who answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildName {
    pub name: String,
    pub session_key: String,
}

/// How a question about a call was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ApprovalDecision {
    Yes,
    No,
    /// Yes, and to the same from now on.
    Always {
        scope: GrantScope,
        until: i64,
    },
    Expired,
}

/// How far an "always" goes, within its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantScope {
    /// The same tool with the same input.
    Call,
    /// The same tool with any input, when the same rule asks.
    Tool,
}

/// A message that an event settles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Addressee {
    pub id: String,
    pub from: String,
    /// What `sessions.send` gave.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub reply_to: Value,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_of_send_are_told_apart_by_status() {
        let sent = SendResult::Accepted { session_key: "main".into(), message_id: "m1".into() };
        let text = r#"{"status":"accepted","sessionKey":"main","messageId":"m1"}"#;
        assert_eq!(serde_json::to_string(&sent).unwrap(), text);
        assert_eq!(serde_json::from_str::<SendResult>(text).unwrap(), sent);
    }

    #[test]
    fn history_of_a_newer_gateway_is_readable() {
        let event = |data: Value| HistoryEvent { seq: 0, at: 0, kind: String::new(), data };
        assert_eq!(event(json!({"kind": "of_a_later_version", "x": 1})).entry(), HistoryEntry::Other);
        let reset = event(json!({"kind": "reset", "why": "daily", "at": 7, "more": true}));
        assert_eq!(reset.entry(), HistoryEntry::Reset { why: "daily".into() });
        let said = event(json!({"kind": "replied", "reply": {"model": "m", "message": {"role": "assistant",
            "content": [{"type": "text", "text": "hi"}, {"type": "thinking", "thinking": "x"}]}}}));
        let HistoryEntry::Replied { reply } = said.entry() else { panic!("{said:?}") };
        assert_eq!(reply.message.content, [HistoryBlock::Text { text: "hi".into() }, HistoryBlock::Other]);
    }
}
