//! Runs the pipeline of a task. The pipeline's run has the id of the task's run, so starting it again after a restart finds
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_agent::{Authority, BackgroundEnd, Payer};
use gantry_protocol::PipelineStatus;
use gantry_store::TaskRunRow;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::worker::{STOPPED_BY, waits};
use crate::domain::Flow;
use crate::pipelines::PipelineError;
use crate::pipelines::answer::outcome;
use crate::pipelines::service::NewRun;
use crate::pipelines::state::RunState;
use crate::run_events::RunName;
use crate::slots::Slot;

/// A pipeline to run for a task.
pub(super) struct TaskPipeline<'a> {
    pub(super) id: &'a str,
    pub(super) params: Option<&'a Map<String, Value>>,
    pub(super) authority: &'a Authority,
    pub(super) payer: Payer,
    pub(super) name: RunName<'a>,
}

/// Starts or continues the run, and waits for its end.
pub(super) async fn run(
    flow: &Arc<Flow>,
    task: &TaskRunRow,
    pipeline: TaskPipeline<'_>,
    mut slot: Option<Slot>,
    stop: &CancellationToken,
) -> Result<BackgroundEnd, String> {
    let id = begin(flow, task, &pipeline).await.map_err(|err| err.to_string())?;
    let mut is_parked = false;
    if let Some(mut state) = flow.follow_run(&id).await.map_err(|err| err.to_string())? {
        let mut is_stopped = false;
        loop {
            let now = state.borrow_and_update().clone();
            if now.ended.is_some() {
                break;
            }
            if is_parked == now.waiting.is_empty() {
                is_parked = !is_parked;
                // The notice of the step names the question.
                waits(flow, task, is_parked, &mut slot, pipeline.name, None).await;
            }
            tokio::select! {
                changed = state.changed() => if changed.is_err() { break },
                () = stop.cancelled(), if !is_stopped => {
                    is_stopped = true;
                    let _ = flow.cancel_run(&id, STOPPED_BY).await;
                }
            }
        }
    }
    let ended = flow.run_now(&id).await.map_err(|err| err.to_string())?;
    if ended.ended.is_none() {
        // The gateway stops. The next one continues both runs.
        return std::future::pending().await;
    }
    Ok(end(flow, &ended))
}

async fn begin(
    flow: &Arc<Flow>,
    task: &TaskRunRow,
    pipeline: &TaskPipeline<'_>,
) -> Result<String, PipelineError> {
    let row = flow.find_pipeline(pipeline.id, |_| true).await?;
    let params: BTreeMap<String, Value> = pipeline.params.cloned().unwrap_or_default().into_iter().collect();
    let new = NewRun {
        id: task.id.get(..16).unwrap_or(&task.id).to_owned(),
        definition: Flow::definition_of(&row)?,
        pipeline: Some(row),
        context: BTreeMap::new(),
        params,
        on_failure: None,
        modifications: Vec::new(),
        authority: pipeline.authority.clone(),
        payer: Some(pipeline.payer.clone()),
    };
    flow.begin_run(new).await
}

fn end(flow: &Flow, run: &RunState) -> BackgroundEnd {
    let steps = outcome(run, 0, flow.parts.clock.now());
    let report = serde_json::to_string_pretty(&steps).unwrap_or_default();
    let stopped = run.cancelled_by.is_some();
    let outcome = match run.status {
        PipelineStatus::Completed => Ok(report),
        _ => {
            let reason = run.reason.as_deref().unwrap_or("a step failed");
            Err(format!(
                "the pipeline did not complete: {reason}; `gantry pipelines show {}` has its steps",
                run.id
            ))
        }
    };
    BackgroundEnd {
        outcome,
        stopped,
        labels: run.labels().into_iter().map(|(label, _)| label).collect(),
        private_from: None,
        tokens_in: 0,
        tokens_out: 0,
    }
}
