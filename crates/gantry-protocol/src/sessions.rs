//! Agents and their sessions: parameters and results of `agents.list` and `sessions.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::asked_action::AskedAction;
use crate::child_limits::ChildLimits;
use crate::grants::{GrantOffer, GrantReach, GrantScope};

/// `result` of `agents.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentList {
    pub agents: Vec<AgentInfo>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentInfo {
    pub id: String,
    /// The balanced model when null.
    pub model: Option<String>,
    /// `supervised`, `guided` or `autonomous`.
    pub autonomy: String,
    pub workspace: String,
    /// The key of its main session.
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

/// `result` of `sessions.list`. The most recently active session comes first.
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
    /// The number of events in its journal.
    pub events: i64,
    /// A run is in progress or waits.
    pub running: bool,
    /// The run waits for a person's answer.
    pub waiting: bool,
    /// The session or principal that started it, if it is a child.
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
    /// The run in progress.
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
    /// Any of `untrusted` and `private`.
    pub labels: Vec<String>,
    /// Calls that wait for an approval.
    pub questions: Vec<Question>,
    /// The agent's open questions to its user.
    pub asks: Vec<UserAsked>,
    /// The limits of a child session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Box<ChildLimits>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenUsage {
    /// Excludes tokens read from the cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}

/// `result` of `sessions.listen`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ListenResult {
    Known(Box<Listened>),
    /// The session does not exist yet; the next message creates it.
    New(SessionParams),
}

impl ListenResult {
    pub fn session_key(&self) -> &str {
        match self {
            ListenResult::Known(listened) => &listened.status.session_key,
            ListenResult::New(new) => &new.session_key,
        }
    }
}

/// The state of a session when a client begins to listen. Every later event is new.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listened {
    #[serde(flatten)]
    pub status: SessionStatus,
    /// The number of entries in the journal: `sessions.history` has all of them. Earlier gateways send 0.
    #[serde(default)]
    pub seq: i64,
    /// What the model has written of a reply that is not in the journal yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<UnfinishedReply>,
}

impl std::ops::Deref for Listened {
    type Target = SessionStatus;

    fn deref(&self) -> &SessionStatus {
        &self.status
    }
}

/// The text and thinking of a reply so far. The next events continue them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnfinishedReply {
    pub run: String,
    pub text: String,
    pub thinking: String,
}

/// `params` of `sessions.rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionRename {
    pub session_key: String,
    /// The new title, 1 to 200 characters.
    pub label: String,
}

/// `params` of `sessions.search`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionSearch {
    /// 2 to 200 characters. Upper and lower case are the same for `a` to `z`.
    pub text: String,
    /// 50 when left out; at most 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `result` of `sessions.search`, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionMatches {
    pub matches: Vec<SessionMatch>,
}

/// A message or a title that contains the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionMatch {
    pub session_key: String,
    pub agent: String,
    pub label: Option<String>,
    pub at: i64,
    /// The entry of the journal; missing if the title matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// The text around the match.
    pub excerpt: String,
}

/// `params` of `sessions.history`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistoryParams {
    pub session_key: String,
    /// The number of the first event; 0 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    /// In place of `from`: the last events before this number. A large number means the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `result` of `sessions.history`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct History {
    pub session_key: String,
    pub events: Vec<HistoryEvent>,
    /// The first event of the next page, if there is one.
    pub next: Option<i64>,
    /// With `before`: there are earlier events, and this is the `before` of their page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<i64>,
}

/// An entry of a session's journal. [`HistoryEvent::entry`] reads its data.
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

/// The part of a journal entry that clients show.
///
/// It is separate from the agent's `Entry`, which is the storage format: a client reads fewer fields, and
/// has to accept kinds that a newer gateway wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HistoryEntry {
    MessageIn {
        from: String,
        text: String,
    },
    /// A message about work elsewhere.
    Notice {
        from: String,
        text: String,
    },
    Replied {
        reply: HistoryReply,
    },
    CallEnded {
        result: HistoryCallResult,
    },
    /// The gateway stopped during the call, so its outcome is unknown.
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

/// A part of a model's reply or of a call's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HistoryBlock {
    Text {
        text: String,
    },
    ToolUse {
        #[serde(default)]
        id: String,
        name: String,
        input: Value,
    },
    #[serde(other)]
    Other,
}

/// How a run ended. `Other` is an end that a newer gateway wrote.
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
    /// A message with the id of an earlier one is a repetition and does not run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Stored, and returned with the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub reply_to: Value,
    /// The new working directory of the conversation. Only the operator may set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// What the message contains: `untrusted` for text that others wrote, `private`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Pictures for the model, at most [`MAX_PICTURES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<Picture>,
}

/// A picture in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Picture {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    /// In base64. The pictures of a message have at most [`MAX_PICTURE_BYTES`] together.
    pub data: String,
}

/// The most pictures of one message.
pub const MAX_PICTURES: usize = 20;
/// The most characters of base64 in the pictures of one message.
pub const MAX_PICTURE_BYTES: usize = 10 * 1024 * 1024;

/// Returns whether models accept pictures of this media type.
pub fn is_picture_type(media_type: &str) -> bool {
    matches!(media_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
}

/// `result` of `sessions.send`, and the answer of `POST /v1/sessions/{key}/messages`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SendResult {
    Accepted {
        session_key: String,
        message_id: String,
    },
    /// The message was a command.
    Command {
        session_key: String,
        /// The answer to the command, for people.
        #[serde(rename = "told")]
        text: String,
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
    /// The gateway is stopping; the run resumes after the restart.
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
    /// The question's id. It may be left out while only one question is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// `yes`, `no` or `always` for an approval; else the answer to the agent's question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The answers to several questions at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Vec<String>>,
    /// For `always`: the key of one of the question's offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<String>,
    /// For `always` without an offer: the calls that it covers; the same call when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<GrantScope>,
    /// For `always` without an offer: the sessions in which it counts; this one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<GrantReach>,
    /// For `always`: the duration of the grant; the configured one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<u32>,
}

/// `result` of `sessions.answer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnswerResult {
    pub session_key: String,
    /// The effect of the answer, for people.
    #[serde(rename = "told")]
    pub text: String,
}

/// A question whether a call may run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    pub id: String,
    pub call: String,
    pub tool: String,
    pub rule: String,
    pub reason: String,
    /// The call's input. Secrets are masked and long values are shortened.
    pub input: Value,
    /// Identifies the call, including its whole input, and the rule that asks.
    pub fingerprint: String,
    /// Identifies the call independently of the rule that asks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exact: String,
    /// What the call would do. Questions of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Box<AskedAction>>,
    /// Grants that would also cover later calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<GrantOffer>,
    /// At this time the answer becomes no.
    pub expires: i64,
    /// The child session that asks, if a child asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildName>,
}

impl Question {
    /// Describes the call. A question of an earlier version shows its input.
    pub fn action(&self) -> AskedAction {
        match &self.action {
            Some(action) => (**action).clone(),
            None => AskedAction::Other { tool: self.tool.clone(), input: self.input.clone(), not_shown: 0 },
        }
    }
}

/// Questions of the agent to its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserAsked {
    pub id: String,
    pub call: String,
    pub questions: Vec<UserQuestion>,
    /// At this time the questions expire without an answer.
    pub expires: i64,
    /// The child session that asks, if a child asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserQuestion {
    pub question: String,
    /// The subject of several questions. Only the first question has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heading: Option<String>,
    /// A short label, for clients that show several questions side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Suggested answers. Other answers are valid too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The name and key of a child session that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildName {
    pub name: String,
    pub session_key: String,
}

/// The answer to a question whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ApprovalDecision {
    Yes,
    No,
    /// Yes, also for later calls within `scope`.
    Always {
        scope: GrantScope,
        until: i64,
        #[serde(default, skip_serializing_if = "GrantReach::is_session")]
        reach: GrantReach,
        /// The id of the stored grant. Journals of earlier versions have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<String>,
    },
    Expired,
}

impl ApprovalDecision {
    /// Whether the call may run.
    pub fn allows(&self) -> bool {
        matches!(self, ApprovalDecision::Yes | ApprovalDecision::Always { .. })
    }
}

/// A message that an event answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Addressee {
    pub id: String,
    pub from: String,
    /// The value that `sessions.send` passed.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub reply_to: Value,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn send_results_are_distinguished_by_status() {
        let sent = SendResult::Accepted { session_key: "main".into(), message_id: "m1".into() };
        let text = r#"{"status":"accepted","sessionKey":"main","messageId":"m1"}"#;
        assert_eq!(serde_json::to_string(&sent).unwrap(), text);
        assert_eq!(serde_json::from_str::<SendResult>(text).unwrap(), sent);
    }

    #[test]
    fn answers_for_people_keep_their_field_name_on_the_wire() {
        let command = SendResult::Command { session_key: "main".into(), text: "stopped".into() };
        let stored = json!({"status": "command", "sessionKey": "main", "told": "stopped"});
        assert_eq!(serde_json::to_value(&command).unwrap(), stored);
        assert_eq!(serde_json::from_value::<SendResult>(stored).unwrap(), command);
        let answer = AnswerResult { session_key: "main".into(), text: "allowed".into() };
        let stored = json!({"sessionKey": "main", "told": "allowed"});
        assert_eq!(serde_json::to_value(&answer).unwrap(), stored);
        assert_eq!(serde_json::from_value::<AnswerResult>(stored).unwrap(), answer);
    }

    #[test]
    fn history_of_a_newer_gateway_can_be_read() {
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
