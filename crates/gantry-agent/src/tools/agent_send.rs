//! `tool::agent_send` sends a message to another agent.

use std::sync::Arc;

use gantry_tool::{Effect, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{AgentTools, Ctx, asked_message, check_caller, check_message, check_self, sender, session_error};
use crate::sessions::NewMessage;

/// Send a message to another agent. Messages are stored and delivered in order, and the agent sees the sender. Does not wait
/// for an answer; an answer arrives as a message to you. At most 100 KB, and 10 messages per minute to the same agent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// Your own id: your session's key or your agent's name.
    agent_id: String,
    /// The receiver: the id of a child agent, a session's key, or the name of a configured agent.
    target_agent_id: String,
    /// The message, at most 100 KB.
    message: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The message is stored for the receiver.
    sent: bool,
    /// The receiver.
    target_agent_id: String,
}

pub(super) const NAME: &str = "tool::agent_send";

/// The part of the input that a question shows.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    target_agent_id: String,
    message: String,
}

pub(super) fn tool(state: &Arc<AgentTools>) -> Tool {
    Tool::new(NAME, Toolset::Guarded, state, run)
        .effects(&[Effect::SendsMessages])
        .asks_as(|_, input: Asked| std::future::ready(asked_message(input.target_agent_id, input.message)))
        .resumable()
        .works_without_machine()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    let (sessions, call) = (ctx.state.sessions()?, &ctx.call);
    check_caller(call)?;
    check_self(call, "agentId", &input.agent_id)?;
    check_message(&input.message)?;
    let key = sessions.inbox(&input.target_agent_id).await.map_err(session_error)?;
    if call.session.as_deref() == Some(key.key.as_str()) {
        return Err(ToolError::input("you cannot send a message to yourself; put it into your answer"));
    }
    sessions.may_write(call, &key).map_err(session_error)?;
    let sender = sender(call);
    let message = NewMessage {
        text: format!("[message from {sender}]\n{}", input.message),
        // The same step after a restart sends the same message.
        id: call.step.as_ref().map(|step| format!("sent-{step}")),
        reply_to: json!({"session": sender}),
        from: sender,
        labels: call.labels.clone(),
        payer: sessions.payer(call).await.map_err(session_error)?,
        workspace: None,
        channel_event: None,
        images: Vec::new(),
    };
    sessions.send(&key, message).await.map_err(session_error)?;
    Ok(Output { sent: true, target_agent_id: input.target_agent_id })
}
