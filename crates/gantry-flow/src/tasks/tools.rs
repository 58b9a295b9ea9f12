//! The tools of tasks.

mod task_create;
mod task_list;
mod task_update;

use gantry_tool::ToolError;

use super::actions::TaskError;
use crate::tools::{FlowTools, MakeTool};

type Ctx = gantry_tool::Ctx<FlowTools>;

pub(crate) const TOOLS: &[(&str, MakeTool)] = &[
    (task_create::NAME, task_create::tool),
    (task_update::NAME, task_update::tool),
    (task_list::NAME, task_list::tool),
];

fn tool_error(err: TaskError) -> ToolError {
    match err {
        TaskError::Invalid(_) => ToolError::input(err.to_string()),
        TaskError::NotFound(_) => {
            ToolError::input(err.to_string()).with_hint("task_list shows the ids of the tasks")
        }
        TaskError::Denied(reason) => ToolError::denied(reason),
        TaskError::Failed(reason) => ToolError::failed(reason),
    }
}
