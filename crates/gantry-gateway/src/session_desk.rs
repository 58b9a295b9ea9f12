//! Sessions for tools: an agent looks at other conversations and speaks in them, known by name.

use std::sync::Arc;
use std::time::Duration;

use gantry_agent::{Event, Said, Sent, SessionError, SessionKey, Sessions};
use gantry_protocol::{HistoryEntry, RunEnd};
use gantry_store::JournalEvent;
use gantry_tool::{Call, Label, Principal, ToolError};
use gantry_toolsets::{HubFuture, ListedMessage, ListedSession, SessionDesk, SessionSent, SessionsListed};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use crate::agent_desk::sender;

pub(crate) const MAX_MESSAGE_BYTES: usize = 100 * 1024;
const SHOWN_CHARS: usize = 2_000;
/// Of a session's end, what is looked at for its newest messages.
const LOOKED_AT: u32 = 400;

pub struct GatewayDesk {
    pub(crate) sessions: Sessions,
}

impl GatewayDesk {
    pub fn new(sessions: Sessions) -> GatewayDesk {
        GatewayDesk { sessions }
    }

    async fn listed(&self, key: &str, next_seq: i64, count: usize) -> Result<Vec<ListedMessage>, ToolError> {
        let key = SessionKey { key: key.to_owned(), agent: String::new() };
        let from = next_seq.saturating_sub(i64::from(LOOKED_AT)).max(0);
        let events = self.sessions.history(&key, from, LOOKED_AT).await.map_err(session_error)?;
        let mut messages: Vec<ListedMessage> = events.iter().filter_map(message).collect();
        messages.drain(..messages.len().saturating_sub(count));
        Ok(messages)
    }
}

impl SessionDesk for GatewayDesk {
    fn list(
        &self,
        call: Arc<Call>,
        limit: u32,
        offset: u32,
        messages: usize,
    ) -> HubFuture<'_, SessionsListed> {
        Box::pin(async move {
            check_caller(&call)?;
            let (rows, total) = self.sessions.list(limit, offset).await.map_err(session_error)?;
            let mut sessions = Vec::with_capacity(rows.len());
            for row in rows {
                let messages = match messages {
                    0 => None,
                    count => Some(self.listed(&row.key, row.next_seq, count).await?),
                };
                sessions.push(ListedSession {
                    session_key: row.key,
                    label: row.label,
                    last_activity: row.last_activity,
                    messages,
                });
            }
            Ok(SessionsListed { sessions, total })
        })
    }

    fn send(
        &self,
        call: Arc<Call>,
        key: String,
        message: String,
        wait: Duration,
    ) -> HubFuture<'_, SessionSent> {
        Box::pin(async move {
            check_caller(&call)?;
            if message.len() > MAX_MESSAGE_BYTES {
                return Err(ToolError::input(format!("a message has at most {MAX_MESSAGE_BYTES} bytes")));
            }
            if message.trim_start().starts_with('/') {
                return Err(ToolError::input("commands are for people; say it in words"));
            }
            let key = self.sessions.key(&key, Some(&call.agent)).map_err(session_error)?;
            if call.session.as_deref() == Some(key.key.as_str()) {
                let own = "this is your own session; just say it in your answer";
                return Err(ToolError::input(own));
            }
            self.sessions.may_write(&call, &key).map_err(session_error)?;
            if call.session.is_some() {
                self.sessions.open_to_agents(&key).await.map_err(session_error)?;
            }
            let from = sender(&call);
            let mut events = self.sessions.listen(&key);
            let said = Said {
                text: format!("[message from {from}]\n{message}"),
                id: None,
                from: from.clone(),
                reply_to: json!({"session": from}),
                labels: call.labels.clone(),
                payer: self.sessions.payer(&call).await.map_err(session_error)?,
                workspace: None,
            };
            let Sent::Accepted { message } = self.sessions.send(&key, said).await.map_err(session_error)?
            else {
                return Err(ToolError::failed("the message was not taken in"));
            };
            let sent = |status, run_id: String, reply| SessionSent {
                session_key: key.key.clone(),
                run_id,
                status,
                reply,
            };
            if wait.is_zero() {
                return Ok(sent("accepted", message, None));
            }
            let settled = async {
                loop {
                    match events.recv().await {
                        Ok(event) if event.settles(&message) => return Some((*event).clone()),
                        Ok(event) if *event == Event::Suspended => return None,
                        Ok(_) | Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => return None,
                    }
                }
            };
            let settled = tokio::select! {
                settled = tokio::time::timeout(wait, settled) => settled.ok().flatten(),
                () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
            };
            // What the other one has read comes along with its answer.
            if let Ok(status) = self.sessions.status(&key).await
                && status.labels.contains(&Label::Untrusted)
            {
                call.found.add(Label::Untrusted);
            }
            Ok(match settled {
                Some(Event::Final { run, text, .. }) => sent("final", run, Some(text)),
                Some(Event::Stopped { run, .. }) => sent("stopped", run, None),
                Some(Event::Error { run, message: error, .. }) => {
                    sent("error", run.unwrap_or(message), Some(error))
                }
                _ => sent("waiting", message, None),
            })
        })
    }
}

/// Which agents a program may speak with is written in its token, and a tool does not see that: it has `/v1/sessions`.
pub(crate) fn check_caller(call: &Call) -> Result<(), ToolError> {
    match call.principal {
        Principal::Operator | Principal::Agent { .. } | Principal::Scheduler => Ok(()),
        Principal::Client { .. } | Principal::Mcp { .. } => {
            let message = "sessions are for agents and their owner";
            Err(ToolError::denied(message)
                .with_hint("programs use /v1/sessions with a token that names the agents"))
        }
    }
}

/// A message or an answer, of what happened in a session.
fn message(event: &JournalEvent) -> Option<ListedMessage> {
    let (role, text) = match serde_json::from_str(&event.data).ok()? {
        HistoryEntry::MessageIn { text, .. } => ("user", text),
        HistoryEntry::RunEnded { end: RunEnd::Final { text } } => ("assistant", text),
        _ => return None,
    };
    Some(ListedMessage { role, text: text.chars().take(SHOWN_CHARS).collect(), at: event.at })
}

pub(crate) fn session_error(err: SessionError) -> ToolError {
    match err {
        SessionError::Stopping | SessionError::Store(_) => ToolError::failed(err.to_string()),
        // Recorded and counted as every denial.
        SessionError::Denied(reason) => ToolError::denied(reason),
        other => ToolError::input(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_recorded_as_one() {
        let denied = session_error(SessionError::Denied("the run holds both".into()));
        assert!(matches!(denied, ToolError::Denied(_)), "{denied:?}");
        assert!(matches!(session_error(SessionError::Refused("x".into())), ToolError::Input(_)));
    }
}
