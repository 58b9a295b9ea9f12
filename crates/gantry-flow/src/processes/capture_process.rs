//! `capture_process` stores the calls of the present session as a process.

use std::sync::Arc;

use gantry_protocol::{PipelineParameter, ProcessStep};
use gantry_store::ProcessRow;
use gantry_tool::{Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::capture::{MAX_CALLS, capture};
use crate::pipelines::PipelineError;
use crate::pipelines::run_pipeline::{check_caller, id_of, to_text};
use crate::pipelines::state;
use crate::tools::FlowTools;

type Ctx = gantry_tool::Ctx<FlowTools>;

const MAX_NAME_CHARS: usize = 100;
const MAX_DESCRIPTION_CHARS: usize = 2_000;

/// Store the tool calls of this session as a reusable process. Calls that failed, questions and memory are left out. Values
/// from the user's messages and dates become parameters. promote_process makes a workflow of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The name of the process.
    name: String,
    /// What the process is for.
    description: Option<String>,
}

#[derive(Debug, Serialize)]
struct Captured {
    process_id: String,
    name: String,
    steps: Vec<ProcessStep>,
    parameters: Vec<PipelineParameter>,
    step_count: usize,
    parameter_count: usize,
}

pub(super) const NAME: &str = "capture_process";

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
    let description = input.description.unwrap_or_default();
    let name = input.name.trim().to_owned();
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        return Err(ToolError::input(format!(
            "the name must have 1 to {MAX_NAME_CHARS} characters on one line"
        )));
    }
    if description.chars().count() > MAX_DESCRIPTION_CHARS {
        return Err(ToolError::input(format!(
            "the description may have at most {MAX_DESCRIPTION_CHARS} characters"
        )));
    }
    let Some(session) = &call.session else {
        return Err(ToolError::input(
            "capture_process records the calls of a session, and this call has none",
        )
        .with_hint("ask an agent to call it at the end of its work"));
    };
    let parts = &flow.parts;
    let key = parts.sessions.key(session, None).map_err(PipelineError::from)?;
    let recorded = parts.sessions.recorded_calls(&key).await.map_err(PipelineError::from)?;
    let now = parts.clock.now();
    let found = capture(recorded, parts.sessions.gate().masker(), now, &parts.zone);
    if found.steps.is_empty() {
        return Err(ToolError::input("this session has no successful tool calls to capture"));
    }
    if found.steps.len() > MAX_CALLS {
        let message =
            format!("this session has {} calls; a process may have at most {MAX_CALLS}", found.steps.len());
        return Err(ToolError::input(message).with_hint("repeat the work in a new session with fewer calls"));
    }
    let row = ProcessRow {
        id: id_of(call, NAME),
        agent: call.agent.clone(),
        name,
        description,
        record: state::text(&found).map_err(PipelineError::from)?,
        labels: call.labels.iter().map(|label| label.name().to_owned()).collect(),
        session: key.key,
        created: now,
        pipeline: None,
    };
    parts.database.add_process(&row).await.map_err(PipelineError::from)?;
    to_text(&Captured {
        process_id: row.id,
        name: row.name,
        step_count: found.steps.len(),
        parameter_count: found.parameters.len(),
        steps: found.steps,
        parameters: found.parameters,
    })
}
