//! `task_update` changes a task.

use std::sync::Arc;

use gantry_protocol::{TaskChanges, TaskStatus};
use gantry_tool::{Effect, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Ctx, tool_error};
use crate::tasks::actions::Actor;
use crate::tasks::texts;
use crate::tools::FlowTools;

/// Change a task: its status, priority, due date, title, description, tags or assignee. Completing a task completes its
/// subtasks. The owner is asked before a changed task of yours runs in the background.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Input(TaskChanges);

pub(super) const NAME: &str = "task_update";

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
    let is_completed = input.0.status == Some(TaskStatus::Completed);
    let task = flow.update_task(actor, input.0).await.map_err(tool_error)?;
    task.authority.labels.iter().for_each(|label| ctx.call.findings.add(*label));
    let what = if is_completed { "Task completed" } else { "Task updated" };
    Ok(Text(format!("{what}: {}", texts::line(&task.info()))))
}
