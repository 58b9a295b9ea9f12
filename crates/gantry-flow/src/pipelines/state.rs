//! The state of a run, folded from its rows, and [`next`], which decides without I/O what happens next.

use std::collections::{BTreeMap, BTreeSet};

use gantry_agent::{AccountBudget, Authority};
use gantry_protocol::{OnFailure, PipelineDefinition, PipelineStatus, PipelineStep, StepStatus};
use gantry_store::{DatabaseError, PipelineRunRow, PipelineStepRow};
use gantry_tool::Label;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most steps of one run that work at the same time.
pub(crate) const MAX_AT_ONCE: usize = 5;

/// What the caller gave to a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunInput {
    pub(crate) context: BTreeMap<String, Value>,
    pub(crate) params: BTreeMap<String, Value>,
    /// The call that retried the run last. The same call does not retry it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retried_by: Option<String>,
}

/// A run and its steps. The steps have the order of the definition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunState {
    pub(crate) id: String,
    pub(crate) pipeline: String,
    pub(crate) agent: String,
    pub(crate) name: String,
    pub(crate) definition: PipelineDefinition,
    pub(crate) input: RunInput,
    pub(crate) authority: Authority,
    pub(crate) account: String,
    pub(crate) budgets: Vec<AccountBudget>,
    pub(crate) status: PipelineStatus,
    pub(crate) reason: Option<String>,
    pub(crate) cancelled_by: Option<String>,
    pub(crate) started: i64,
    pub(crate) ended: Option<i64>,
    pub(crate) steps: Vec<PipelineStepRow>,
    /// The steps that wait for a person's answer. This is not stored.
    pub(crate) waiting: BTreeSet<usize>,
}

impl RunState {
    /// Reads a run from its rows.
    pub(crate) fn read(row: PipelineRunRow, steps: Vec<PipelineStepRow>) -> Result<RunState, DatabaseError> {
        Ok(RunState {
            definition: parse(&row.definition)?,
            input: parse(&row.input)?,
            authority: parse(&row.authority)?,
            budgets: parse(&row.budgets)?,
            status: run_status(&row.state),
            id: row.id,
            pipeline: row.pipeline,
            agent: row.agent,
            name: row.name,
            account: row.account,
            reason: row.reason,
            cancelled_by: row.cancelled_by,
            started: row.started,
            ended: row.ended,
            steps,
            waiting: BTreeSet::new(),
        })
    }

    pub(crate) fn row(&self) -> Result<PipelineRunRow, DatabaseError> {
        Ok(PipelineRunRow {
            id: self.id.clone(),
            pipeline: self.pipeline.clone(),
            agent: self.agent.clone(),
            name: self.name.clone(),
            definition: text(&self.definition)?,
            input: text(&self.input)?,
            authority: text(&self.authority)?,
            account: self.account.clone(),
            budgets: text(&self.budgets)?,
            state: run_word(self.status).to_owned(),
            reason: self.reason.clone(),
            cancelled_by: self.cancelled_by.clone(),
            started: self.started,
            ended: self.ended,
        })
    }

    pub(crate) fn step_of(&self, id: &str) -> Option<&PipelineStepRow> {
        self.steps.iter().find(|step| step.step == id)
    }

    /// The labels of everything that the run has read, and the only host of its private content.
    pub(crate) fn labels(&self) -> Vec<(Label, Option<&str>)> {
        let own = self.authority.labels.iter().map(|label| (*label, None));
        let steps = self
            .steps
            .iter()
            .flat_map(|step| labels_of(step).into_iter().map(|label| (label, step.private_from.as_deref())));
        own.chain(steps).collect()
    }
}

/// What a run does next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Next {
    /// Steps to start, also those that an earlier process started.
    pub(crate) start: Vec<usize>,
    pub(crate) skip: Vec<(usize, String)>,
    /// Steps that an earlier process started, and that have to stop.
    pub(crate) stop: Vec<usize>,
    pub(crate) end: Option<(PipelineStatus, Option<String>)>,
}

/// Decides what happens next. `active` are the steps that this process runs.
pub(crate) fn next(run: &RunState, active: &BTreeSet<usize>) -> Next {
    let mut next = Next::default();
    let with = |status: StepStatus| {
        let steps = run.steps.iter().enumerate();
        steps.filter(move |(_, step)| step_status(step) == status).map(|(index, _)| index)
    };
    let begun: Vec<usize> = with(StepStatus::Running).collect();
    let orphans = begun.iter().copied().filter(|index| !active.contains(index));
    let failed = with(StepStatus::Failed).next().and_then(|index| run.steps.get(index));
    let stops = failed.filter(|_| run.definition.on_failure == OnFailure::Stop);
    let halt = match (&run.cancelled_by, stops) {
        (Some(by), _) => Some(format!("{by} cancelled the run")),
        (None, Some(failed)) => Some(format!("step {:?} failed", failed.step)),
        (None, None) => None,
    };
    match run.cancelled_by {
        Some(_) => next.stop.extend(orphans),
        None => next.start.extend(orphans),
    }
    match halt {
        Some(why) => next.skip.extend(with(StepStatus::Pending).map(|index| (index, why.clone()))),
        None => {
            let room = MAX_AT_ONCE.saturating_sub(begun.len());
            let ready =
                |index: &usize| run.definition.steps.get(*index).is_some_and(|step| is_ready(run, step));
            next.start.extend(with(StepStatus::Pending).filter(ready).take(room));
        }
    }
    let is_over = begun.is_empty() && next.start.is_empty();
    if is_over {
        next.end = Some(end(run, failed, &next.skip));
    }
    next
}

fn end(
    run: &RunState,
    failed: Option<&PipelineStepRow>,
    skip: &[(usize, String)],
) -> (PipelineStatus, Option<String>) {
    let is_complete =
        skip.is_empty() && run.steps.iter().all(|step| step_status(step) == StepStatus::Completed);
    match (is_complete, &run.cancelled_by, failed) {
        (true, _, _) => (PipelineStatus::Completed, None),
        (false, Some(by), _) => (PipelineStatus::Interrupted, Some(format!("cancelled by {by}"))),
        (false, None, Some(failed)) => {
            let error = failed.error.as_deref().unwrap_or_default();
            let error: String = error.chars().take(500).collect();
            (PipelineStatus::Failed, Some(format!("step {:?} failed: {error}", failed.step)))
        }
        (false, None, None) => (PipelineStatus::Failed, Some("steps were skipped".to_owned())),
    }
}

fn is_ready(run: &RunState, step: &PipelineStep) -> bool {
    let has_ended = |from: &String| run.step_of(from).is_some_and(|step| is_final(step_status(step)));
    step.input_from.iter().all(has_ended)
}

pub(crate) fn is_final(status: StepStatus) -> bool {
    matches!(status, StepStatus::Completed | StepStatus::Failed | StepStatus::Skipped)
}

/// Prepares failed and skipped steps for another attempt. Returns the changed steps.
pub(crate) fn retried(run: &RunState) -> Vec<PipelineStepRow> {
    let again = run.steps.iter().filter(|step| step_status(step) != StepStatus::Completed);
    let again = again.map(|step| PipelineStepRow {
        position: step.position,
        step: step.step.clone(),
        state: step_word(StepStatus::Pending).to_owned(),
        attempt: step.attempt.saturating_add(1),
        tier: step.tier.clone(),
        ..PipelineStepRow::default()
    });
    again.collect()
}

pub(crate) fn labels_of(step: &PipelineStepRow) -> Vec<Label> {
    step.labels.iter().filter_map(|name| Label::from_name(name)).collect()
}

pub(crate) fn step_status(step: &PipelineStepRow) -> StepStatus {
    match step.state.as_str() {
        "running" => StepStatus::Running,
        "completed" => StepStatus::Completed,
        "failed" => StepStatus::Failed,
        "skipped" => StepStatus::Skipped,
        _ => StepStatus::Pending,
    }
}

pub(crate) fn step_word(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Pending => "pending",
        // Only a live run knows that a step waits.
        StepStatus::Running | StepStatus::Waiting => "running",
        StepStatus::Completed => "completed",
        StepStatus::Failed => "failed",
        StepStatus::Skipped => "skipped",
    }
}

pub(crate) fn run_status(state: &str) -> PipelineStatus {
    match state {
        "completed" => PipelineStatus::Completed,
        "failed" => PipelineStatus::Failed,
        "rejected" => PipelineStatus::Rejected,
        "interrupted" => PipelineStatus::Interrupted,
        _ => PipelineStatus::Running,
    }
}

pub(crate) fn run_word(status: PipelineStatus) -> &'static str {
    match status {
        PipelineStatus::Running => "running",
        PipelineStatus::Completed => "completed",
        PipelineStatus::Failed => "failed",
        PipelineStatus::Rejected => "rejected",
        PipelineStatus::Interrupted => "interrupted",
    }
}

const DOING: &str = "read a pipeline";

pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, DatabaseError> {
    serde_json::from_str(text).map_err(|cause| DatabaseError::Damaged { doing: DOING, cause })
}

pub(crate) fn text(value: &impl Serialize) -> Result<String, DatabaseError> {
    serde_json::to_string(value).map_err(|cause| DatabaseError::Damaged { doing: "store a pipeline", cause })
}

#[cfg(test)]
mod tests {
    use gantry_tool::Autonomy;
    use serde_json::json;

    use super::*;

    /// A run whose steps are `(id, input_from, state)`.
    fn run(steps: &[(&str, &[&str], &str)], on_failure: OnFailure) -> RunState {
        let definitions =
            steps.iter().map(|(id, from, _)| json!({"id": id, "task": "x", "input_from": from}));
        let mut definition: PipelineDefinition =
            serde_json::from_value(json!({"steps": definitions.collect::<Vec<_>>()})).unwrap();
        definition.on_failure = on_failure;
        let rows = steps.iter().enumerate().map(|(position, (id, _, state))| PipelineStepRow {
            position: position as i64,
            step: (*id).to_owned(),
            state: (*state).to_owned(),
            attempt: 1,
            error: (*state == "failed").then(|| "why".to_owned()),
            ..PipelineStepRow::default()
        });
        let authority = Authority {
            agent: "main".into(),
            autonomy: Autonomy::Guided,
            workspace: "/".into(),
            tools: Vec::new(),
            policy_agents: Vec::new(),
            isolated_memory: false,
            unattended: false,
            labels: Vec::new(),
            created_by: "operator".into(),
            by_agent: false,
        };
        RunState {
            id: "r".into(),
            pipeline: "p".into(),
            agent: "main".into(),
            name: "n".into(),
            definition,
            input: RunInput::default(),
            authority,
            account: "a".into(),
            budgets: Vec::new(),
            status: PipelineStatus::Running,
            reason: None,
            cancelled_by: None,
            started: 0,
            ended: None,
            steps: rows.collect(),
            waiting: BTreeSet::new(),
        }
    }

    fn active(steps: &[usize]) -> BTreeSet<usize> {
        steps.iter().copied().collect()
    }

    #[test]
    fn step_starts_when_its_own_inputs_are_ready() {
        // `c` does not wait for `b`, which is still running.
        let state = run(
            &[
                ("a", &[], "completed"),
                ("b", &[], "running"),
                ("c", &["a"], "pending"),
                ("d", &["b"], "pending"),
            ],
            OnFailure::Stop,
        );
        assert_eq!(next(&state, &active(&[1])), Next { start: vec![2], ..Next::default() });
        let again = next(&state, &active(&[]));
        assert_eq!(again.start, [1, 2], "an earlier process started b");
    }

    #[test]
    fn five_steps_work_at_once() {
        let steps: Vec<(String, &[&str], &str)> =
            (0..20).map(|n| (format!("s{n}"), &[][..], if n < 2 { "running" } else { "pending" })).collect();
        let steps: Vec<(&str, &[&str], &str)> =
            steps.iter().map(|(id, from, state)| (id.as_str(), *from, *state)).collect();
        assert_eq!(next(&run(&steps, OnFailure::Stop), &active(&[0, 1])).start, [2, 3, 4]);
    }

    #[test]
    fn failure_stops_the_run_after_running_siblings() {
        let steps: [(&str, &[&str], &str); 4] =
            [("a", &[], "failed"), ("b", &[], "running"), ("c", &["a"], "pending"), ("d", &[], "pending")];
        let state = run(&steps, OnFailure::Stop);
        let halted = next(&state, &active(&[1]));
        let why = "step \"a\" failed".to_owned();
        assert_eq!(halted, Next { skip: vec![(2, why.clone()), (3, why)], ..Next::default() });
        let over =
            run(&[("a", &[], "failed"), ("b", &[], "completed"), ("c", &["a"], "skipped")], OnFailure::Stop);
        let end = next(&over, &active(&[])).end.unwrap();
        assert_eq!(end, (PipelineStatus::Failed, Some("step \"a\" failed: why".to_owned())));
        for goes_on in [OnFailure::Continue, OnFailure::Notify] {
            assert_eq!(next(&run(&steps, goes_on), &active(&[1])).start, [2, 3]);
        }
    }

    #[test]
    fn cancelled_run_starts_nothing_and_stops_what_an_earlier_process_started() {
        let mut state =
            run(&[("a", &[], "running"), ("b", &[], "running"), ("c", &[], "pending")], OnFailure::Stop);
        state.cancelled_by = Some("operator".into());
        let found = next(&state, &active(&[1]));
        assert_eq!((found.start.as_slice(), found.stop.as_slice(), found.skip.len()), (&[][..], &[0][..], 1));
        let mut done = run(&[("a", &[], "failed"), ("c", &[], "skipped")], OnFailure::Stop);
        done.cancelled_by = Some("operator".into());
        assert_eq!(next(&done, &active(&[])).end.unwrap().0, PipelineStatus::Interrupted);
    }

    #[test]
    fn complete_run_ends_and_a_retry_keeps_finished_steps() {
        let done = run(&[("a", &[], "completed"), ("b", &["a"], "completed")], OnFailure::Stop);
        assert_eq!(next(&done, &active(&[])).end, Some((PipelineStatus::Completed, None)));
        let failed =
            run(&[("a", &[], "completed"), ("b", &[], "failed"), ("c", &["b"], "skipped")], OnFailure::Stop);
        let again = retried(&failed);
        let facts: Vec<_> =
            again.iter().map(|step| (step.step.as_str(), step.attempt, step.error.is_some())).collect();
        assert_eq!(facts, [("b", 2, false), ("c", 2, false)]);
    }

    /// Whatever order steps end in, a run ends, and no step starts twice or before its inputs.
    #[test]
    fn every_order_of_ends_leads_to_an_end() {
        let seed = std::cell::Cell::new(7_u64);
        let random = |below: usize| {
            seed.set(
                seed.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407),
            );
            (seed.get() >> 33) as usize % below
        };
        for round in 0..300 {
            let count = 1 + random(20);
            let ids: Vec<String> = (0..count).map(|n| format!("s{n}")).collect();
            let from: Vec<Vec<&str>> = (0..count)
                .map(|n| (0..n).filter(|_| random(4) == 0).map(|m| ids[m].as_str()).collect())
                .collect();
            let steps: Vec<(&str, &[&str], &str)> =
                (0..count).map(|n| (ids[n].as_str(), from[n].as_slice(), "pending")).collect();
            let mut state = run(&steps, [OnFailure::Stop, OnFailure::Continue][round % 2]);
            let (mut working, mut begun) = (BTreeSet::new(), BTreeSet::new());
            let end = loop {
                let found = next(&state, &working);
                for (index, _) in found.skip {
                    state.steps[index].state = "skipped".into();
                }
                for index in found.start {
                    assert!(begun.insert(index), "{index} started twice");
                    for input in &state.definition.steps[index].input_from {
                        assert!(is_final(step_status(state.step_of(input).unwrap())));
                    }
                    state.steps[index].state = "running".into();
                    working.insert(index);
                }
                assert!(working.len() <= MAX_AT_ONCE);
                if let Some(end) = found.end {
                    break end;
                }
                let ended = *working.iter().nth(random(working.len())).unwrap();
                working.remove(&ended);
                state.steps[ended].state = if random(6) == 0 { "failed" } else { "completed" }.into();
            };
            assert!(state.steps.iter().all(|step| is_final(step_status(step))), "{end:?}");
        }
    }
}
