//! Plans: an agent presents what it is going to do, and a person answers. A plan never approves itself.

pub(crate) mod api;
mod plan;
mod plan_task;

use crate::tools::MakeTool;

pub(crate) const TOOLS: &[(&str, MakeTool)] = &[(plan_task::NAME, plan_task::tool)];
