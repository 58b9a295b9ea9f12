//! What native tools ask of a gateway that runs agents.

use std::sync::Arc;
use std::time::Duration;

use gantry_tool::Call;
use schemars::JsonSchema;
use serde::Serialize;

use super::HubFuture;

/// The sessions of a gateway, as the tools see them.
pub trait SessionDesk: Send + Sync {
    /// The last active first; with the newest messages of each.
    fn list(
        &self,
        call: Arc<Call>,
        limit: u32,
        offset: u32,
        messages: usize,
    ) -> HubFuture<'_, SessionsListed>;

    /// Says something on behalf of a call, and waits so long for what settles it.
    fn send(
        &self,
        call: Arc<Call>,
        key: String,
        message: String,
        wait: Duration,
    ) -> HubFuture<'_, SessionSent>;
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SessionsListed {
    /// The sessions.
    pub sessions: Vec<ListedSession>,
    /// How many there are in all.
    pub total: u64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedSession {
    /// Its address.
    pub session_key: String,
    /// Its name for people, if it has one.
    pub label: Option<String>,
    /// Milliseconds since 1970.
    pub last_activity: i64,
    /// The newest messages, oldest first, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<ListedMessage>>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ListedMessage {
    /// `user` or `assistant`.
    pub role: &'static str,
    /// At most 2000 characters of it.
    pub text: String,
    /// Milliseconds since 1970.
    pub at: i64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSent {
    /// The session that was written to.
    pub session_key: String,
    /// The run that took the message up; the message's own id while none has.
    pub run_id: String,
    /// `accepted` (nobody waited), `waiting` (no answer in time; it will come), `final`, `stopped` or `error`.
    pub status: &'static str,
    /// The answer to this very message, or what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}
