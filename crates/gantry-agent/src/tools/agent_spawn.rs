//! `tool::agent_spawn` starts a child from a configured agent.

use std::sync::Arc;

use gantry_tool::{Effect, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentTools, Ctx, check_caller, check_self, note_labels, session_error};
use crate::children::MAX_DEPTH;

/// Start a child agent from a configured agent, send it a message and wait for its answer. It has at most your own tools and
/// rights. Child agents can be nested at most 5 deep, and at most 20 run for one conversation at a time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Input {
    /// The name of the configured agent.
    template: String,
    /// Your own id, if you want it checked: your session's key or your agent's name.
    parent_id: Option<String>,
    /// The task of the child.
    message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The child's id, for `tool::agent_send`.
    agent_id: String,
    /// The child's answer.
    response: String,
    /// The depth: 1 for a child of a conversation that is not a child itself.
    depth: u32,
}

pub(super) const NAME: &str = "tool::agent_spawn";

pub(super) fn tool(state: &Arc<AgentTools>) -> Tool {
    Tool::new(NAME, Toolset::Guarded, state, run)
        .additive()
        .effects(&[Effect::StartsAgents])
        .resumable()
        .bounds_depth()
        .works_without_machine()
        .without_owner_data()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    let (sessions, call) = (ctx.state.sessions()?, &ctx.call);
    check_caller(call)?;
    if let Some(parent) = &input.parent_id {
        check_self(call, "parentId", parent)?;
    }
    let started = sessions.start_from_template(call, &input.template, input.message).await;
    let child = started.map_err(session_error)?;
    let (agent_id, depth) = (child.key.key.clone(), child.child.depth.min(MAX_DEPTH));
    let end = tokio::select! {
        biased;
        () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
        end = child.end() => end,
    };
    note_labels(call, &end);
    match end.outcome {
        Ok(response) => Ok(Output { agent_id, response, depth }),
        Err(cause) => Err(ToolError::failed(format!("the agent {agent_id} failed: {cause}"))),
    }
}
