//! `example_count` adds to the counter.

use std::sync::Arc;

use gantry_tool::{Ctx, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Counter;

/// Add one step to the counter and return it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The counter after the step.
    count: i64,
}

pub(super) fn tool(counter: &Arc<Counter>) -> Tool {
    Tool::new("example_count", Toolset::Gantry, counter, run).additive().effects(&[])
}

async fn run(ctx: Ctx<Counter>, _: Input) -> Result<Output, ToolError> {
    Ok(Output { count: ctx.state.add() })
}
