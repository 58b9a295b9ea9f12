//! `run_pipeline` runs steps that depend on each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_protocol::{OnFailure, PipelineDefinition, PipelineStep, StepModification};
use gantry_store::PipelineRow;
use gantry_tool::{Call, Effect, Label, Principal, Progress, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::error::PipelineError;
use super::service::NewRun;
use super::state::{RunState, is_final, step_status};
use super::{answer, costs};
use crate::domain::Flow;
use crate::time::counted;
use crate::tools::FlowTools;

type Ctx = gantry_tool::Ctx<FlowTools>;

/// The longest time that a call waits for the end of a run.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// The answer comes this long before the deadline of the call.
const BEFORE_DEADLINE: Duration = Duration::from_secs(5);

/// Run a workflow of 1 to 20 steps. Give steps, or pipeline_id for a stored workflow. A step is a task for an agent, or one
/// tool call (tool and input), which costs no tokens. Steps start when the steps in their input_from have ended; others run
/// at the same time, at most 5 at once. The answer has the result of every step. If the run takes longer than the call may,
/// the status is running: call again with runId.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The name of the run, for people.
    name: Option<String>,
    /// The steps of a new workflow.
    steps: Option<Vec<PipelineStep>>,
    /// A stored workflow, from plan_task, promote_process or `gantry pipelines`.
    pipeline_id: Option<String>,
    /// When a step fails: stop (default), continue with the others, or continue and notify the owner.
    on_failure: Option<OnFailure>,
    /// Values that every task sees, and that {{name}} stands for.
    context: Option<BTreeMap<String, Value>>,
    /// Values for {{params.name}}.
    params: Option<BTreeMap<String, Value>>,
    /// Runs failed and skipped steps of the last run again. Completed steps keep their results.
    #[serde(default)]
    retry: bool,
    /// Changes of a stored workflow for this run only.
    modifications: Option<Vec<StepModification>>,
    /// Reads or retries this run in place of starting one.
    #[serde(rename = "runId")]
    run_id: Option<String>,
}

pub(crate) const NAME: &str = "run_pipeline";

pub(crate) fn tool(state: &Arc<FlowTools>) -> Tool {
    // The calls of the steps go through the gate one by one, so this tool itself is additive.
    Tool::new(NAME, Toolset::Assistant, state, run)
        .additive()
        .effects(&[Effect::StartsAgents])
        .resumable()
        .works_without_machine()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let (flow, call) = (ctx.state.flow()?, &ctx.call);
    check_caller(call)?;
    let id = begin(flow, call, input).await?;
    wait(flow, call, &id).await?;
    let run = flow.run_now(&id).await?;
    note_labels(call, &run);
    let outcome = answer::outcome(&run, flow.run_cost(&run).await?, flow.parts.clock.now());
    to_text(&outcome)
}

/// The JSON text of a result.
pub(crate) fn to_text(value: &impl serde::Serialize) -> Result<Text, ToolError> {
    let text = serde_json::to_string_pretty(value);
    text.map(Text).map_err(|error| ToolError::internal(format!("cannot serialise the output: {error}")))
}

/// Rejects programs, because a tool does not know which agents a token allows. They use `/v1/pipelines`.
pub(crate) fn check_caller(call: &Call) -> Result<(), ToolError> {
    match call.principal {
        Principal::Operator | Principal::Agent { .. } | Principal::Scheduler => Ok(()),
        Principal::Client { .. } | Principal::Mcp { .. } => {
            let message = "only agents and their owner can use pipelines as tools";
            Err(ToolError::denied(message)
                .with_hint("programs use /v1/pipelines with a token that names the agents"))
        }
    }
}

/// A name that stays the same when the call is repeated after a restart.
pub(crate) fn id_of(call: &Call, kind: &str) -> String {
    let step = call.step.as_deref().unwrap_or(&call.id);
    blake3::hash(format!("{kind}\n{step}").as_bytes()).to_hex()[..16].to_owned()
}

/// Starts, retries or finds the run that the input means.
async fn begin(flow: &Arc<Flow>, call: &Call, input: Input) -> Result<String, PipelineError> {
    let sessions = &flow.parts.sessions;
    let is_new = input.steps.is_some() || input.modifications.is_some();
    if let Some(run) = &input.run_id {
        if is_new || input.pipeline_id.is_some() {
            return Err(PipelineError::invalid(
                "runId reads a run; leave out steps, pipeline_id and modifications",
            ));
        }
        let id = own_run(flow, call, run).await?;
        return match input.retry {
            true => retry(flow, call, id).await,
            false => Ok(id),
        };
    }
    if input.retry {
        let (Some(pipeline), false) = (&input.pipeline_id, is_new) else {
            return Err(PipelineError::invalid(
                "retry needs pipeline_id or runId, without steps and modifications",
            ));
        };
        let id = last_run(flow, call, pipeline).await?;
        return retry(flow, call, id).await;
    }
    let (pipeline, mut definition) = match (input.steps, &input.pipeline_id) {
        (Some(steps), None) if input.modifications.is_none() => {
            (None, PipelineDefinition { steps, ..PipelineDefinition::default() })
        }
        (Some(_), None) => {
            return Err(PipelineError::invalid(
                "modifications change a stored pipeline; change the steps instead",
            ));
        }
        (None, Some(id)) => {
            let row = own_pipeline(flow, call, id).await?;
            let definition = Flow::definition_of(&row)?;
            (Some(row), definition)
        }
        _ => return Err(PipelineError::invalid("give steps or pipeline_id, and not both")),
    };
    definition.name = input.name.unwrap_or(definition.name);
    let id = id_of(call, NAME);
    let estimate = costs::estimate(&flow.parts.database, &definition, flow.parts.clock.now()).await?;
    let total = definition.steps.len();
    let new = NewRun {
        id,
        pipeline,
        definition,
        context: input.context.unwrap_or_default(),
        params: input.params.unwrap_or_default(),
        on_failure: input.on_failure,
        modifications: input.modifications.unwrap_or_default(),
        authority: sessions.authority(call).await?,
        payer: sessions.payer(call).await?,
    };
    let id = flow.begin_run(new).await?;
    report(call, 0, total, format!("{}, estimated cost {}", steps_text(total), costs::dollars(estimate)));
    Ok(id)
}

async fn retry(flow: &Arc<Flow>, call: &Call, id: String) -> Result<String, PipelineError> {
    let sessions = &flow.parts.sessions;
    let caller = (sessions.authority(call).await?, sessions.payer(call).await?);
    flow.retry_run(&id, Some(id_of(call, "retry")), Some(caller)).await?;
    Ok(id)
}

/// Finds a pipeline of the caller's agent.
async fn own_pipeline(flow: &Flow, call: &Call, id: &str) -> Result<PipelineRow, PipelineError> {
    let row = flow.find_pipeline(id, |agent| agent == call.agent).await?;
    Ok(row)
}

/// Finds a run of the caller's agent.
async fn own_run(flow: &Flow, call: &Call, id: &str) -> Result<String, PipelineError> {
    Ok(flow.find_run(id, |agent| agent == call.agent).await?.id)
}

/// Finds the last run of a pipeline. The id of a run without a stored pipeline is that run.
async fn last_run(flow: &Flow, call: &Call, pipeline: &str) -> Result<String, PipelineError> {
    let runs = flow.parts.database.list_pipeline_runs(Some(pipeline), 1_000).await?;
    match runs.into_iter().find(|run| run.agent == call.agent) {
        Some(run) => Ok(run.id),
        None => {
            let row = own_pipeline(flow, call, pipeline).await?;
            if row.id == pipeline {
                return Err(PipelineError::invalid(format!("the pipeline {pipeline} has no run to retry")));
            }
            Box::pin(last_run(flow, call, &row.id)).await
        }
    }
}

/// Waits for the end of the run, or until the call has to answer. A stopped session cancels its run.
async fn wait(flow: &Arc<Flow>, call: &Call, id: &str) -> Result<(), ToolError> {
    let Some(mut state) = flow.follow_run(id).await? else { return Ok(()) };
    let deadline = call.deadline.and_then(|deadline| deadline.checked_sub(BEFORE_DEADLINE));
    let latest = Instant::now() + MAX_WAIT;
    let until = deadline.map_or(latest, |deadline| Instant::from_std(deadline).min(latest));
    loop {
        report_state(call, &state.borrow_and_update());
        if state.borrow().ended.is_some() {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => {
                stop_with_session(flow, call, id).await;
                return Err(ToolError::Cancelled);
            }
            changed = state.changed() => if changed.is_err() {
                // The run has ended, or the gateway stops, which also cancels this call.
                let is_over = flow.run_now(id).await.is_ok_and(|run| run.ended.is_some());
                if !is_over {
                    let _ = tokio::time::timeout(BEFORE_DEADLINE, call.cancel.cancelled()).await;
                }
                return Ok(());
            },
            () = tokio::time::sleep_until(until) => return Ok(()),
        }
    }
}

/// Cancels the run of a session that was stopped. A session that stops with the gateway resumes its run later.
async fn stop_with_session(flow: &Arc<Flow>, call: &Call, id: &str) {
    let sessions = &flow.parts.sessions;
    let Some(key) = call.session.as_deref().and_then(|key| sessions.key(key, None).ok()) else { return };
    if sessions.status(&key).await.is_ok()
        && let Err(error) = flow.cancel_run(id, "the end of its session's run").await
    {
        tracing::warn!(run = id, %error, "pipeline_not_cancelled");
    }
}

fn report_state(call: &Call, run: &RunState) {
    let done = run.steps.iter().filter(|step| is_final(step_status(step))).count();
    let waiting = run.waiting.iter().filter_map(|index| run.steps.get(*index)?.session.as_deref());
    let waiting: Vec<&str> = waiting.collect();
    let message = match waiting.as_slice() {
        [] => format!("{done} of {} ended", steps_text(run.steps.len())),
        keys => format!("waiting for an answer in {}", keys.join(", ")),
    };
    report(call, done, run.steps.len(), message);
}

fn steps_text(count: usize) -> String {
    counted(i64::try_from(count).unwrap_or(i64::MAX), "step")
}

fn report(call: &Call, done: usize, total: usize, message: String) {
    if let Some(progress) = &call.progress {
        let (done, total) = (u64::try_from(done).unwrap_or(0), u64::try_from(total).ok());
        progress.report(Progress { done, total, message });
    }
}

/// Adds the labels of the run to the call that reads it.
fn note_labels(call: &Call, run: &RunState) {
    for (label, host) in run.labels() {
        match (host, label) {
            (Some(host), Label::Private) => call.findings.add_private_from(host),
            _ => call.findings.add(label),
        }
    }
}
