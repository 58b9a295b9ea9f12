//! The outbox: messages that leave the gateway. Parameters and results of `outbox.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a message in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutboxState {
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
    pub const ALL: [OutboxState; 7] = [
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
        !matches!(self, OutboxState::Queued | OutboxState::Sending)
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
}

/// A message in the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutboxMessage {
    pub id: String,
    /// A message is stored once per key.
    pub dedupe: String,
    /// `session`, or the name of a webhook.
    pub channel: String,
    /// The receiver in that channel: a session's key, or empty for a webhook.
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
