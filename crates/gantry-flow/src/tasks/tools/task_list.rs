//! `task_list` lists tasks.

use std::sync::Arc;

use gantry_protocol::{TaskDue, TaskStatus, TasksListParams};
use gantry_tool::{Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Ctx, tool_error};
use crate::tasks::actions::Actor;
use crate::tasks::texts;
use crate::tools::FlowTools;

/// List tasks by priority and due date, one line each: priority, id, title, assignee, scope, due date and status.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Only this scope: global, user:owner, agent:NAME, or a configured one.
    scope: Option<String>,
    /// Only this status. Without it, completed and cancelled tasks are left out.
    status: Option<TaskStatus>,
    /// Only tasks that are due today, within a week, or overdue.
    due: Option<TaskDue>,
    /// Only tasks of this assignee.
    assignee: Option<String>,
    /// 1 to 100 (default 20).
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
}

fn default_limit() -> u32 {
    20
}

pub(super) const NAME: &str = "task_list";

pub(super) fn tool(state: &Arc<FlowTools>) -> Tool {
    Tool::new(NAME, Toolset::Assistant, state, run)
        .read_only()
        .effects(&[])
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let flow = ctx.state.flow()?;
    let actor = Actor::of(&ctx.call).map_err(tool_error)?;
    let Input { scope, status, due, assignee, limit } = input;
    let params = TasksListParams { scope, status, due, assignee, limit: None };
    let (tasks, total) = flow.list_tasks(actor, &params, limit).await.map_err(tool_error)?;
    // The titles may hold what others wrote.
    for label in tasks.iter().flat_map(|task| &task.authority.labels) {
        ctx.call.findings.add(*label);
    }
    let infos: Vec<_> = tasks.iter().map(|task| task.info()).collect();
    Ok(Text(texts::list(&infos, total, due)))
}
