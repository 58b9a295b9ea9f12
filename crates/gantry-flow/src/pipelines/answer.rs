//! The state of a run as callers see it.

use gantry_protocol::{PipelineOutcome, PipelineRunInfo, PipelineRunState, StepOutcome, StepStatus};
use gantry_store::{PipelineRunRow, PipelineStepRow};

use super::state::{RunState, run_status, step_status};

/// The longest result of a step in an answer, in bytes.
const MAX_RESULT_BYTES: usize = 50 * 1024;

/// Returns the state of a run. `now` ends the duration of running steps.
pub(crate) fn outcome(run: &RunState, total_nanos: i64, now: i64) -> PipelineOutcome {
    let steps = run.steps.iter().enumerate();
    PipelineOutcome {
        pipeline_id: run.pipeline.clone(),
        run_id: run.id.clone(),
        name: run.name.clone(),
        status: run.status,
        reason: run.reason.clone(),
        steps: steps.map(|(index, step)| step_outcome(step, run.waiting.contains(&index), now)).collect(),
        total_duration_ms: run.ended.unwrap_or(now).saturating_sub(run.started).max(0),
        total_cost_usd: dollars(total_nanos),
    }
}

pub(crate) fn run_state(run: &RunState, total_nanos: i64, now: i64) -> PipelineRunState {
    PipelineRunState {
        outcome: outcome(run, total_nanos, now),
        agent: run.agent.clone(),
        definition: run.definition.clone(),
        started: run.started,
        ended: run.ended,
    }
}

pub(crate) fn run_info(row: PipelineRunRow) -> PipelineRunInfo {
    PipelineRunInfo {
        status: run_status(&row.state),
        run_id: row.id,
        pipeline_id: row.pipeline,
        name: row.name,
        agent: row.agent,
        reason: row.reason,
        started: row.started,
        ended: row.ended,
    }
}

fn step_outcome(step: &PipelineStepRow, waits: bool, now: i64) -> StepOutcome {
    let duration = step.started.map_or(0, |started| step.ended.unwrap_or(now).saturating_sub(started));
    StepOutcome {
        step_id: step.step.clone(),
        status: if waits { StepStatus::Waiting } else { step_status(step) },
        result: step.result.as_deref().map(|result| shown(result, step.session.as_deref())),
        duration_ms: duration.max(0),
        tokens_in: u64::try_from(step.tokens_in).unwrap_or(0),
        tokens_out: u64::try_from(step.tokens_out).unwrap_or(0),
        cost_usd: dollars(step.cost_nanos),
        error: step.error.clone(),
        skip_reason: step.skip_reason.clone(),
        session_key: step.session.clone(),
    }
}

/// Cuts a long result. The session of the step keeps the whole.
fn shown(result: &str, session: Option<&str>) -> String {
    if result.len() <= MAX_RESULT_BYTES {
        return result.to_owned();
    }
    let end = result.floor_char_boundary(MAX_RESULT_BYTES);
    format!(
        "{}\n[cut: the first {end} of {} bytes; the session {} has the whole result]",
        &result[..end],
        result.len(),
        session.unwrap_or("of the step")
    )
}

fn dollars(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_results_are_cut_with_a_note() {
        let exact = "x".repeat(MAX_RESULT_BYTES);
        assert_eq!(shown(&exact, Some("s")), exact);
        let long = shown(&format!("{exact}äää"), Some("agent:main:pipeline:r:a:1"));
        assert!(
            long.starts_with(&exact) && long.contains("the first 51200 of 51206 bytes"),
            "{}",
            &long[51_100..]
        );
        assert!(long.contains("agent:main:pipeline:r:a:1"));
    }
}
