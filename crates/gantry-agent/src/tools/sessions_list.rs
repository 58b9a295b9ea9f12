//! `gsv__SessionsList` lists sessions.

use std::sync::Arc;

use gantry_protocol::{HistoryEntry, RunEnd};
use gantry_store::JournalEvent;
use gantry_tool::{Done, Label, Tool, ToolError, Toolset, done};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentTools, Ctx, check_caller, session_error};
use crate::key::SessionKey;
use crate::sessions::Sessions;

/// Characters of a message in the list.
const SHOWN_CHARS: usize = 2_000;
/// The number of recent events that are searched for the newest messages.
const SEARCHED_EVENTS: u32 = 400;

/// List the sessions of the gateway's agents. The most recently active session comes first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// The highest number of sessions, 1 to 100 (default 20).
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
    /// The number of sessions to skip (default 0).
    #[serde(default)]
    offset: u32,
    /// The number of newest messages of each session to include, 0 to 20 (default 0).
    #[serde(default)]
    #[schemars(range(max = 20))]
    message_limit: usize,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Output {
    /// The sessions.
    sessions: Vec<ListedSession>,
    /// The total number of sessions.
    total: u64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListedSession {
    /// The session's key.
    session_key: String,
    /// Its label, for people.
    label: Option<String>,
    /// Milliseconds since 1970.
    last_activity: i64,
    /// The newest messages, oldest first, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<ListedMessage>>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct ListedMessage {
    /// `user` or `assistant`.
    role: &'static str,
    /// The first 2000 characters.
    text: String,
    /// Milliseconds since 1970.
    at: i64,
}

fn default_limit() -> u32 {
    20
}

pub(super) const NAME: &str = "gsv__SessionsList";

pub(super) fn tool(state: &Arc<AgentTools>) -> Tool {
    let labels = &[Label::Untrusted, Label::Private];
    Tool::new(NAME, Toolset::Native, state, run)
        .read_only()
        .labels(labels)
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let sessions = ctx.state.sessions()?;
    check_caller(&ctx.call)?;
    let (rows, total) = sessions.list(input.limit, input.offset).await.map_err(session_error)?;
    let mut listed = Vec::with_capacity(rows.len());
    for row in rows {
        let messages = match input.message_limit {
            0 => None,
            count => Some(newest_messages(sessions, &row.key, row.next_seq, count).await?),
        };
        listed.push(ListedSession {
            session_key: row.key,
            label: row.label,
            last_activity: row.last_activity,
            messages,
        });
    }
    Ok(done(Output { sessions: listed, total }))
}

async fn newest_messages(
    sessions: &Sessions,
    key: &str,
    next_seq: i64,
    count: usize,
) -> Result<Vec<ListedMessage>, ToolError> {
    let key = SessionKey { key: key.to_owned(), agent: String::new() };
    let from = next_seq.saturating_sub(i64::from(SEARCHED_EVENTS)).max(0);
    let events = sessions.history(&key, from, SEARCHED_EVENTS).await.map_err(session_error)?;
    let mut messages: Vec<ListedMessage> = events.iter().filter_map(message).collect();
    messages.drain(..messages.len().saturating_sub(count));
    Ok(messages)
}

/// Returns the message or answer of an event.
fn message(event: &JournalEvent) -> Option<ListedMessage> {
    let (role, text) = match serde_json::from_str(&event.data).ok()? {
        HistoryEntry::MessageIn { text, .. } => ("user", text),
        HistoryEntry::RunEnded { end: RunEnd::Final { text } } => ("assistant", text),
        _ => return None,
    };
    Some(ListedMessage { role, text: text.chars().take(SHOWN_CHARS).collect(), at: event.at })
}
