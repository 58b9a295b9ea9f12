//! `task_create` stores a task.

use std::sync::Arc;

use gantry_protocol::NewTask;
use gantry_tool::{Effect, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Ctx, tool_error};
use crate::tasks::actions::Actor;
use crate::tasks::texts;
use crate::tools::FlowTools;

/// Create a task. With schedule it runs in the background at these times, with watch_url when a page changes, with
/// pipeline_id as a stored workflow, and with an agent as assignee at once. Otherwise it is a note of what is to be done. The
/// owner is asked before a task of yours runs in the background for the first time. Results and questions reach the owner.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Input(NewTask);

pub(super) const NAME: &str = "task_create";

pub(super) fn tool(state: &Arc<FlowTools>) -> Tool {
    Tool::new(NAME, Toolset::Assistant, state, run)
        .additive()
        .effects(&[Effect::StartsAgents])
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let flow = ctx.state.flow()?;
    let actor = Actor::of(&ctx.call).map_err(tool_error)?;
    let task = flow.create_task(actor, input.0).await.map_err(tool_error)?;
    Ok(Text(texts::created(&task.info(), &flow.parts.zone)))
}
