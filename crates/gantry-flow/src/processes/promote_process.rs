//! `promote_process` makes a workflow of a process.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_tool::{Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::pipelines::PipelineError;
use crate::pipelines::run_pipeline::{check_caller, to_text};
use crate::tools::FlowTools;

type Ctx = gantry_tool::Ctx<FlowTools>;

/// Make a reusable workflow of a captured process. Its steps are the recorded calls, which run without a model. Returns the
/// pipeline_id for run_pipeline.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The process, from capture_process. A unique beginning of its id is enough.
    process_id: String,
    /// New defaults of parameters, by name.
    parameter_values: Option<BTreeMap<String, Value>>,
}

pub(super) const NAME: &str = "promote_process";

pub(super) fn tool(state: &Arc<FlowTools>) -> Tool {
    Tool::new(NAME, Toolset::Assistant, state, run)
        .additive()
        .effects(&[])
        .resumable()
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let (flow, call) = (ctx.state.flow()?, &ctx.call);
    check_caller(call)?;
    let row = flow.find_process(&input.process_id, |agent| agent == call.agent).await?;
    let authority = flow.parts.sessions.authority(call).await.map_err(PipelineError::from)?;
    let promoted = flow.promote(&row, &input.parameter_values.unwrap_or_default(), authority).await?;
    to_text(&promoted)
}
