//! `gsv__SessionSend` sends a message to another session.

use std::sync::Arc;
use std::time::Duration;

use gantry_protocol::SessionEvent;
use gantry_tool::{Done, Effect, Label, Tool, ToolError, Toolset, done};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::{AgentTools, Ctx, asked_message, check_caller, check_message, sender, session_error};
use crate::sessions::{NewMessage, Sent};

/// Send a message to another session and wait for its answer. The agent there sees the sender.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// The session, such as "main" or "agent:helper:main".
    session_key: String,
    /// The message.
    message: String,
    /// Seconds to wait for the answer, 0 to 120 (default 30); 0 does not wait.
    #[serde(default = "default_wait")]
    #[schemars(range(max = 120))]
    wait_seconds: u64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The session that got the message.
    session_key: String,
    /// The run that answers the message, or the message's id while no run has started.
    run_id: String,
    /// `accepted` (not waited for), `waiting` (no answer yet), `final`, `stopped` or `error`.
    status: &'static str,
    /// The answer to this message, or the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
}

fn default_wait() -> u64 {
    30
}

pub(super) const NAME: &str = "gsv__SessionSend";

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    session_key: String,
    message: String,
}

pub(super) fn tool(state: &Arc<AgentTools>) -> Tool {
    Tool::new(NAME, Toolset::Native, state, run)
        .works_without_machine()
        .offered_to_agents()
        .effects(&[Effect::SendsMessages])
        .asks_as(|_, input: Asked| std::future::ready(asked_message(input.session_key, input.message)))
        .labels(&[Label::Private])
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let (sessions, call) = (ctx.state.sessions()?, &ctx.call);
    check_caller(call)?;
    let wait = Duration::from_secs(input.wait_seconds);
    check_message(&input.message)?;
    let key = sessions.key(&input.session_key, Some(&call.agent)).map_err(session_error)?;
    if call.session.as_deref() == Some(key.key.as_str()) {
        let own = "this is your own session; put the message into your answer";
        return Err(ToolError::input(own));
    }
    sessions.may_write(call, &key).map_err(session_error)?;
    if call.session.is_some() {
        sessions.open_to_agents(&key).await.map_err(session_error)?;
    }
    let from = sender(call);
    let mut events = sessions.listen(&key);
    let message = NewMessage {
        text: format!("[message from {from}]\n{}", input.message),
        id: None,
        from: from.clone(),
        reply_to: json!({"session": from}),
        labels: call.labels.clone(),
        payer: sessions.payer(call).await.map_err(session_error)?,
        workspace: None,
        channel_event: None,
        images: Vec::new(),
    };
    let Sent::Accepted { message } = sessions.send(&key, message).await.map_err(session_error)? else {
        return Err(ToolError::failed("the session did not accept the message"));
    };
    let sent = |status, run_id: String, reply| Output { session_key: key.key.clone(), run_id, status, reply };
    if wait.is_zero() {
        return Ok(done(sent("accepted", message, None)));
    }
    let settled = async {
        loop {
            match events.recv().await {
                Ok(event) if event.settles(&message) => return Some((*event).clone()),
                Ok(event) if *event == SessionEvent::Suspended => return None,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    };
    let settled = tokio::select! {
        settled = tokio::time::timeout(wait, settled) => settled.ok().flatten(),
        () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
    };
    // The other session's labels come with its answer.
    if let Ok(status) = sessions.status(&key).await
        && status.labels.contains(&Label::Untrusted)
    {
        call.findings.add(Label::Untrusted);
    }
    Ok(done(match settled {
        Some(SessionEvent::Final { run, text, .. }) => sent("final", run, Some(text)),
        Some(SessionEvent::Stopped { run, .. }) => sent("stopped", run, None),
        Some(SessionEvent::Error { run, message: error, .. }) => {
            sent("error", run.unwrap_or(message), Some(error))
        }
        _ => sent("waiting", message, None),
    }))
}
