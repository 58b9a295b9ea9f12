//! Tools for sessions and agents. The call identifies the caller.
//!
//! [`tools`] is the list. Without a gateway they answer that they need one.

mod agent_send;
mod agent_spawn;
mod session_send;
mod sessions_list;
mod spawn_agent;

use std::sync::Arc;

use gantry_protocol::AskedAction;
use gantry_tool::{Call, Label, Principal, Tool, ToolError};

use crate::children::ChildEnd;
use crate::sessions::{SessionError, Sessions};

/// The longest message that a tool sends.
const MAX_MESSAGE_BYTES: usize = 100 * 1024;

type Ctx = gantry_tool::Ctx<AgentTools>;

/// The state of the tools: the sessions of a running gateway, if there is one.
struct AgentTools(Option<Sessions>);

impl AgentTools {
    fn sessions(&self) -> Result<&Sessions, ToolError> {
        self.0.as_ref().ok_or_else(ToolError::needs_gateway)
    }
}

type MakeTool = fn(&Arc<AgentTools>) -> Tool;

const TOOLS: [(&str, MakeTool); 5] = [
    (sessions_list::NAME, sessions_list::tool),
    (session_send::NAME, session_send::tool),
    (agent_spawn::NAME, agent_spawn::tool),
    (agent_send::NAME, agent_send::tool),
    (spawn_agent::NAME, spawn_agent::tool),
];

/// Returns the tools of this domain. With `None` the tools can be listed but not run.
pub fn tools(sessions: Option<Sessions>) -> Vec<Tool> {
    let state = Arc::new(AgentTools(sessions));
    TOOLS.iter().map(|(_, tool)| tool(&state)).collect()
}

/// The names of [`tools`].
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _)| *name)
}

/// Describes a message in a question.
fn asked_message(to: String, text: String) -> Option<AskedAction> {
    Some(AskedAction::Message { to, text, not_shown: 0 })
}

/// Rejects programs, because a tool does not know which agents a token allows. They use `/v1/sessions`.
fn check_caller(call: &Call) -> Result<(), ToolError> {
    match call.principal {
        Principal::Operator | Principal::Agent { .. } | Principal::Scheduler => Ok(()),
        Principal::Client { .. } | Principal::Mcp { .. } => {
            let message = "only agents and their owner can use sessions as tools";
            Err(ToolError::denied(message)
                .with_hint("programs use /v1/sessions with a token that names the agents"))
        }
    }
}

/// Rejects long messages, and commands, which are for people.
fn check_message(message: &str) -> Result<(), ToolError> {
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(ToolError::input(format!("a message may have at most {MAX_MESSAGE_BYTES} bytes")));
    }
    if message.trim_start().starts_with('/') {
        return Err(ToolError::input("slash commands are for people; send plain text"));
    }
    Ok(())
}

/// The sender's name, as the receiver sees it.
fn sender(call: &Call) -> String {
    call.session.clone().unwrap_or_else(|| call.principal.to_string())
}

/// Rejects a caller that names another agent as itself.
fn check_self(call: &Call, field: &str, id: &str) -> Result<(), ToolError> {
    if call.session.as_deref() == Some(id) || call.agent == id || call.principal.to_string() == id {
        return Ok(());
    }
    let own = sender(call);
    Err(ToolError::denied(format!("{field} is not yours")).with_hint(format!("you are {own}")))
}

/// Adds the labels of a child to its parent's call.
fn note_labels(call: &Call, end: &ChildEnd) {
    for label in &end.labels {
        match (&end.private_from, label) {
            (Some(host), Label::Private) => call.findings.add_private_from(host),
            _ => call.findings.add(*label),
        }
    }
}

fn session_error(err: SessionError) -> ToolError {
    match err {
        SessionError::Stopping | SessionError::Store(_) => ToolError::failed(err.to_string()),
        // The gate records and counts it like every denial.
        SessionError::Denied(reason) => ToolError::denied(reason),
        other => ToolError::input(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
