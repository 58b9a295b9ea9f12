//! The outbox: messages that leave the gateway. Parameters and results of `outbox.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a message in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutboxState {
    /// It waits until the owner allows it.
    Held,
    /// It waits for its next attempt.
    Queued,
    /// It is being sent.
    Sending,
    Sent,
    /// The receiver rejected it, or all attempts failed.
    Failed,
    /// It may have arrived. It is not sent again by itself.
    Unknown,
    /// It could not be sent in time.
    Expired,
    /// A person dropped it.
    Dropped,
}

impl OutboxState {
    pub const ALL: [OutboxState; 8] = [
        OutboxState::Held,
        OutboxState::Queued,
        OutboxState::Sending,
        OutboxState::Sent,
        OutboxState::Failed,
        OutboxState::Unknown,
        OutboxState::Expired,
        OutboxState::Dropped,
    ];

    pub fn name(self) -> &'static str {
        match self {
            OutboxState::Held => "held",
            OutboxState::Queued => "queued",
            OutboxState::Sending => "sending",
            OutboxState::Sent => "sent",
            OutboxState::Failed => "failed",
            OutboxState::Unknown => "unknown",
            OutboxState::Expired => "expired",
            OutboxState::Dropped => "dropped",
        }
    }

    /// Whether nothing more happens to the message by itself.
    pub fn is_final(self) -> bool {
        !matches!(self, OutboxState::Held | OutboxState::Queued | OutboxState::Sending)
    }
}

/// The content of a message in the outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutboxBody {
    /// The agent whose work it is about.
    pub agent: String,
    pub title: String,
    pub text: String,
    /// What it comes from, such as `cron:JOB`.
    pub from: String,
    /// The labels of the conversation that the text comes from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// For chats only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<Box<ChatDetails>>,
}

/// What a message to a chat has besides its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChatDetails {
    /// The provider's id of the message that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The question that it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<ChatQuestion>,
    /// The key of the earlier message whose text it replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edits: Option<String>,
    /// The text is sent as a file with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// It waits until the owner allows it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

/// A question in a chat, which the owner answers there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatQuestion {
    /// Names the question in buttons.
    pub handle: String,
    pub kind: ChatQuestionKind,
    /// The session that asks. For a held message, empty.
    pub session_key: String,
    /// The id of the question, or of the held message.
    pub question: String,
    /// The answers that can be chosen, in order.
    pub choices: Vec<ChatChoice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatQuestionKind {
    /// A call needs an approval.
    Approval,
    /// The agent asks its user.
    Asked,
    /// A message waits for the owner's yes.
    HeldMessage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatChoice {
    pub label: String,
    pub answer: ChatAnswer,
}

/// What a choice answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ChatAnswer {
    Yes,
    No,
    /// The offer with this number, counted from 1.
    Offer {
        number: usize,
    },
    Text {
        text: String,
    },
}

/// A message in the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutboxMessage {
    pub id: String,
    /// A message is stored once per key.
    pub dedupe: String,
    /// `session`, the name of a webhook, or a chat account such as `telegram:default`.
    pub channel: String,
    /// The receiver in that channel: a session's key, a chat's address as JSON, or empty for a webhook.
    pub target: String,
    #[serde(flatten)]
    pub body: OutboxBody,
    pub state: OutboxState,
    pub attempts: u32,
    /// The time of the next attempt, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<i64>,
    pub created: i64,
    pub updated: i64,
    pub expires: i64,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The receiver's id of the message, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

/// `params` of `outbox.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OutboxListParams {
    /// Only messages in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<OutboxState>,
    /// 1 to 500; 100 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u32>,
}

/// `result` of `outbox.list`. Messages that need a person come first, then the newest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutboxList {
    pub messages: Vec<OutboxMessage>,
    /// The number of messages that match.
    pub total: u64,
}

/// `params` of `outbox.show`, `outbox.resend`, `outbox.arrived` and `outbox.drop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutboxParams {
    /// The message's id, or a unique beginning of it.
    pub id: String,
}
