//! `gsv__SessionsList` lists conversations.

use std::sync::Arc;

use gantry_protocol::{HistoryEntry, RunEnd};
use gantry_store::JournalEvent;
use gantry_tool::{Done, Label, Tool, ToolError, Toolset, done};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentTools, Ctx, check_caller, session_error};
use crate::key::SessionKey;
use crate::sessions::Sessions;

/// How much of a message is shown.
const SHOWN_CHARS: usize = 2_000;
/// How many of a session's last events are searched for its newest messages.
const SEARCHED_EVENTS: u32 = 400;

/// List the sessions of the gateway's agents, the last active first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// At most this many, 1 to 100 (default 20).
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
    /// How many to skip (default 0).
    #[serde(default)]
    offset: u32,
    /// How many of the newest messages of each to include, 0 to 20 (default 0).
    #[serde(default)]
    #[schemars(range(max = 20))]
    message_limit: usize,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Output {
    /// The sessions.
    sessions: Vec<ListedSession>,
    /// How many there are in all.
    total: u64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListedSession {
    /// Its address.
    session_key: String,
    /// Its name for people, if it has one.
    label: Option<String>,
    /// Milliseconds since 1970.
    last_activity: i64,
    /// The newest messages, oldest first, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<ListedMessage>>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct ListedMessage {
    /// `user` or `assistant`.
    role: &'static str,
    /// At most 2000 characters of it.
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

/// The message or answer that an event holds.
fn message(event: &JournalEvent) -> Option<ListedMessage> {
    let (role, text) = match serde_json::from_str(&event.data).ok()? {
        HistoryEntry::MessageIn { text, .. } => ("user", text),
        HistoryEntry::RunEnded { end: RunEnd::Final { text } } => ("assistant", text),
        _ => return None,
    };
    Some(ListedMessage { role, text: text.chars().take(SHOWN_CHARS).collect(), at: event.at })
}
