//! Tools over conversations and agents. The caller is known by its call alone.
//!
//! [`tools`] is the list. Without a gateway they answer that they need one.

mod agent_send;
mod agent_spawn;
mod session_send;
mod sessions_list;
mod spawn_agent;

use std::sync::Arc;

use gantry_tool::{Call, Principal, Tool, ToolError};

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

/// Every tool of this domain. `None` makes tools that are listed and described, and cannot run.
pub fn tools(sessions: Option<Sessions>) -> Vec<Tool> {
    let state = Arc::new(AgentTools(sessions));
    TOOLS.iter().map(|(_, tool)| tool(&state)).collect()
}

/// The names of [`tools`].
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _)| *name)
}

/// Refuses programs: a tool does not see which agents a token names. They use `/v1/sessions`.
fn check_caller(call: &Call) -> Result<(), ToolError> {
    match call.principal {
        Principal::Operator | Principal::Agent { .. } | Principal::Scheduler => Ok(()),
        Principal::Client { .. } | Principal::Mcp { .. } => {
            let message = "sessions are for agents and their owner";
            Err(ToolError::denied(message)
                .with_hint("programs use /v1/sessions with a token that names the agents"))
        }
    }
}

/// Refuses what is too long, and commands, which are for people.
fn check_message(message: &str) -> Result<(), ToolError> {
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(ToolError::input(format!("a message has at most {MAX_MESSAGE_BYTES} bytes")));
    }
    if message.trim_start().starts_with('/') {
        return Err(ToolError::input("commands are for people; say it in words"));
    }
    Ok(())
}

/// The sender's name, as the receiver sees it.
fn sender(call: &Call) -> String {
    call.session.clone().unwrap_or_else(|| call.principal.to_string())
}

/// Refuses a caller that names somebody else as itself.
fn check_self(call: &Call, field: &str, said: &str) -> Result<(), ToolError> {
    if call.session.as_deref() == Some(said) || call.agent == said || call.principal.to_string() == said {
        return Ok(());
    }
    let own = sender(call);
    Err(ToolError::denied(format!("{field} is not yours")).with_hint(format!("you are {own}")))
}

/// The labels of a child are the labels of its answer.
fn note_labels(call: &Call, end: &ChildEnd) {
    end.labels.iter().for_each(|label| call.findings.add(*label));
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
