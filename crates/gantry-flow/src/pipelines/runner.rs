//! The runner performs one run: it starts the steps that are ready, waits for their ends, and records both together.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_agent::{
    BackgroundChange, BackgroundEnd, BackgroundRun, BackgroundSpec, SessionError, Slash, ToolLimits,
};
use gantry_protocol::{OnFailure, RunEvent, RunKind, StepStatus};
use gantry_store::{ACCOUNT_SEPARATOR, PipelineStepRow, RunEnd, StepSession};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::definition::session_part;
use super::state::{Next, RunState, is_final, next, run_word, step_status, step_word};
use super::{inputs, run_pipeline};
use crate::domain::Flow;
use crate::run_events::RunName;

/// The time limit of a step without `timeout_ms`.
const STEP_TIMEOUT_MS: u64 = 600_000;
/// Minutes until an unanswered question of a step counts as a no.
const APPROVAL_MINUTES: u32 = 24 * 60;
/// The longest result that is stored with a step.
const MAX_STORED_BYTES: usize = 1024 * 1024;
/// The pause after a failed write.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// How often a session is started when the database fails.
const START_ATTEMPTS: usize = 3;

/// What a runner shares with those who watch or cancel its run.
#[derive(Clone)]
pub(crate) struct Control {
    pub(crate) cancel: CancellationToken,
    /// Who cancelled the run.
    pub(crate) cancelled_by: Arc<Mutex<Option<String>>>,
    pub(crate) state: watch::Sender<Arc<RunState>>,
}

/// The end of a step.
struct StepEnd {
    index: usize,
    end: BackgroundEnd,
}

/// Runs until the run has ended.
pub(crate) async fn drive(flow: Arc<Flow>, mut run: RunState, control: Control) {
    let (mut active, mut steps) = (BTreeSet::new(), JoinSet::new());
    // Ends that are not yet in the database.
    let mut changed: Vec<usize> = Vec::new();
    let resumed = run.steps.iter().any(|step| step.state != step_word(StepStatus::Pending));
    flow.publish(run_name(&run), RunEvent::Started { session_key: None, resumed });
    loop {
        let found = next(&run, &active);
        apply(&flow, &mut run, &found, &mut changed).await;
        let end = found.end.map(|(status, reason)| {
            let at = flow.parts.clock.now();
            (run.status, run.reason, run.ended) = (status, reason.clone(), Some(at));
            RunEnd { state: run_word(status).to_owned(), reason, at }
        });
        record(&flow, &run, &mut changed, end.as_ref()).await;
        for index in found.start {
            active.insert(index);
            spawn(&flow, &run, index, &control, &mut steps);
        }
        publish(&control, &run);
        if let Some(end) = end {
            let duration_ms = end.at.saturating_sub(run.started).max(0);
            flow.publish(
                run_name(&run),
                RunEvent::Ended { status: end.state, error: end.reason, duration_ms },
            );
            return;
        }
        wait(&flow, &mut run, &mut active, &mut steps, &control, &mut changed).await;
    }
}

/// Marks the steps that start, stop or are skipped.
async fn apply(flow: &Flow, run: &mut RunState, found: &Next, changed: &mut Vec<usize>) {
    let now = flow.parts.clock.now();
    for (index, why) in &found.skip {
        if let Some(step) = run.steps.get_mut(*index) {
            step.state = step_word(StepStatus::Skipped).to_owned();
            step.skip_reason = Some(why.clone());
            step.ended = Some(now);
            changed.push(*index);
        }
    }
    for index in &found.start {
        let key = session_key(run, *index);
        if let Some(step) = run.steps.get_mut(*index)
            && step.state != step_word(StepStatus::Running)
        {
            step.state = step_word(StepStatus::Running).to_owned();
            step.started = Some(now);
            step.session = Some(key);
            changed.push(*index);
        }
    }
    for index in &found.stop {
        let by = run.cancelled_by.clone().unwrap_or_default();
        let Some(step) = run.steps.get_mut(*index) else { continue };
        if let Some(key) = step.session.as_deref().and_then(|key| flow.parts.sessions.key(key, None).ok()) {
            // A session that was never started has nothing to stop.
            let _ = flow.parts.sessions.command(&key, Slash::Stop, &by).await;
        }
        step.state = step_word(StepStatus::Failed).to_owned();
        step.error = Some(format!("stopped by {by}"));
        step.ended = Some(now);
        changed.push(*index);
    }
}

/// Waits until a step ends or somebody cancels the run.
async fn wait(
    flow: &Flow,
    run: &mut RunState,
    active: &mut BTreeSet<usize>,
    steps: &mut JoinSet<StepEnd>,
    control: &Control,
    changed: &mut Vec<usize>,
) {
    if steps.is_empty() {
        return;
    }
    let is_cancelled = run.cancelled_by.is_some();
    let ended = tokio::select! {
        ended = steps.join_next() => ended,
        () = control.cancel.cancelled(), if !is_cancelled => None,
    };
    let by = control.cancelled_by.lock().unwrap_or_else(PoisonError::into_inner).clone();
    run.cancelled_by = run.cancelled_by.take().or(by);
    let mut ended = ended;
    while let Some(result) = ended {
        match result {
            Ok(StepEnd { index, end }) => {
                active.remove(&index);
                finish(flow, run, index, end).await;
                changed.push(index);
            }
            Err(error) => {
                tracing::error!(run = %run.id, %error, "pipeline_step_panicked");
                // Starting the sessions again finds them.
                active.clear();
                steps.shutdown().await;
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
        ended = steps.try_join_next();
    }
}

/// Writes the outcome into the step.
async fn finish(flow: &Flow, run: &mut RunState, index: usize, end: BackgroundEnd) {
    let account = step_account(run, index);
    let now = flow.parts.clock.now();
    let is_call = run.definition.steps.get(index).is_some_and(|step| step.tool.is_some());
    let Some(step) = run.steps.get_mut(index) else { return };
    match end.outcome {
        Ok(text) if is_call && command_failed(&text) => {
            step.state = step_word(StepStatus::Failed).to_owned();
            step.error = Some(format!("the command failed: {}", stored(text)));
        }
        Ok(text) => {
            step.state = step_word(StepStatus::Completed).to_owned();
            step.result = Some(stored(text));
        }
        Err(error) => {
            step.state = step_word(StepStatus::Failed).to_owned();
            step.error = Some(stored(error));
        }
    }
    if step.error.is_some() && run.definition.on_failure == OnFailure::Notify {
        let error = step.error.as_deref().unwrap_or_default();
        let text = format!("Step {:?} of the pipeline {:?} failed: {error}", step.step, run.name);
        let dedupe = format!("pipeline:{}:{}:{}", run.id, step.step, step.attempt);
        if let Err(error) = flow.notify(&run.agent, "A pipeline step failed", &text, &dedupe).await {
            tracing::warn!(run = %run.id, %error, "notice_not_stored");
        }
    }
    step.labels = end.labels.iter().map(|label| label.name().to_owned()).collect();
    step.private_from = end.private_from;
    step.tokens_in = i64::try_from(end.tokens_in).unwrap_or(i64::MAX);
    step.tokens_out = i64::try_from(end.tokens_out).unwrap_or(i64::MAX);
    step.ended = Some(now);
    // A tool call costs nothing.
    if step.tier.is_some() {
        match flow.parts.database.spending("", "", &account).await {
            Ok(spent) => step.cost_nanos = spent.run,
            Err(error) => tracing::warn!(%error, "pipeline_cost_unknown"),
        }
    }
}

/// Whether a result reports a command that failed: the tool answered, but the step did not do its work.
fn command_failed(result: &str) -> bool {
    // Warnings may follow the result.
    let first = serde_json::Deserializer::from_str(result).into_iter::<Value>().next();
    let Some(Ok(Value::Object(fields))) = first else { return false };
    let code = ["exitCode", "exit_code"].iter().find_map(|name| fields.get(*name)?.as_i64());
    let is_true = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    code.is_some_and(|code| code != 0) || is_true("timedOut")
}

fn stored(text: String) -> String {
    if text.len() <= MAX_STORED_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MAX_STORED_BYTES);
    format!("{}\n[cut: the first {end} of {} bytes]", &text[..end], text.len())
}

/// Writes changed steps and the end of the run. Retries until the database accepts them.
async fn record(flow: &Flow, run: &RunState, changed: &mut Vec<usize>, end: Option<&RunEnd>) {
    if changed.is_empty() && end.is_none() {
        return;
    }
    changed.sort_unstable();
    changed.dedup();
    let rows: Vec<PipelineStepRow> =
        changed.iter().filter_map(|index| run.steps.get(*index)).cloned().collect();
    let sessions: Vec<StepSession> = rows.iter().filter_map(|step| step_session(run, step)).collect();
    let database = &flow.parts.database;
    while let Err(error) = database.record_pipeline_steps(&run.id, &rows, &sessions, end).await {
        tracing::error!(run = %run.id, %error, "pipeline_not_recorded");
        tokio::time::sleep(RETRY_AFTER).await;
    }
    changed.clear();
    publish_steps(flow, run, &rows);
}

/// Publishes what is recorded of the steps.
fn publish_steps(flow: &Flow, run: &RunState, rows: &[PipelineStepRow]) {
    let has_ended = |step: &&PipelineStepRow| is_final(step_status(step));
    let mut done = run.steps.iter().filter(has_ended).count() - rows.iter().filter(has_ended).count();
    for step in rows {
        let (status, id) = (step_status(step), step.step.clone());
        let event = match is_final(status) {
            false => RunEvent::StepStarted { step: id, session_key: step.session.clone() },
            true => {
                done += 1;
                let ended = step.ended.unwrap_or_default();
                RunEvent::StepEnded {
                    step: id,
                    status,
                    duration_ms: ended.saturating_sub(step.started.unwrap_or(ended)).max(0),
                    error: step.error.clone().or_else(|| step.skip_reason.clone()),
                    done: done as u64,
                    total: run.steps.len() as u64,
                }
            }
        };
        flow.publish(run_name(run), event);
    }
}

fn run_name(run: &RunState) -> RunName<'_> {
    RunName {
        kind: RunKind::Pipeline,
        run: &run.id,
        source: &run.pipeline,
        name: &run.name,
        agent: &run.agent,
    }
}

/// The row of a session that is about to start. Written with its step, it needs no transaction of its own.
fn step_session(run: &RunState, step: &PipelineStepRow) -> Option<StepSession> {
    let key = step.session.clone().filter(|_| step.state == step_word(StepStatus::Running))?;
    let agent = run.authority.agent.clone();
    Some(StepSession { key, agent, label: session_label(run, &step.step), at: step.started? })
}

fn session_label(run: &RunState, step: &str) -> String {
    format!("{}: {step}", run.name)
}

fn publish(control: &Control, run: &RunState) {
    let mut run = run.clone();
    control.state.send_modify(|known| {
        let is_running = |index: &usize| {
            run.steps.get(*index).is_some_and(|step| step.state == step_word(StepStatus::Running))
        };
        run.waiting = known.waiting.iter().copied().filter(is_running).collect();
        *known = Arc::new(run);
    });
}

/// Starts the session of a step, or finds it.
fn spawn(flow: &Arc<Flow>, run: &RunState, index: usize, control: &Control, steps: &mut JoinSet<StepEnd>) {
    let Some(step) = run.definition.steps.get(index) else { return };
    let timeout_ms = step.timeout_ms.unwrap_or(STEP_TIMEOUT_MS);
    let tool = step.tool.as_deref();
    let runs_commands = tool.is_some_and(|tool| flow.parts.sessions.runs_commands(&run.authority, tool));
    let spec = inputs::work(run, step, runs_commands).map(|work| BackgroundSpec {
        conversation: conversation(run, index),
        label: session_label(run, &step.id),
        work,
        authority: run.authority.clone(),
        labels: inputs::labels(run, step),
        role: step.role.clone(),
        model: step.model.clone(),
        thinking: None,
        effort: None,
        // A pipeline in a step of a pipeline could start pipelines without end.
        tools: vec![ToolLimits { allow: None, deny: vec![run_pipeline::NAME.to_owned()] }],
        max_turns: None,
        account: step_account(run, index),
        budgets: run.budgets.clone(),
        approval_minutes: APPROVAL_MINUTES,
    });
    let labels = run.authority.labels.clone();
    let (flow, control) = (flow.clone(), control.clone());
    steps.spawn(async move {
        let ended = match spec {
            Ok(spec) => perform(&flow, spec, index, timeout_ms, &control).await,
            Err(error) => Err(error),
        };
        let nothing = |error| BackgroundEnd {
            outcome: Err(error),
            stopped: false,
            labels,
            private_from: None,
            tokens_in: 0,
            tokens_out: 0,
        };
        StepEnd { index, end: ended.unwrap_or_else(nothing) }
    });
}

/// Runs a step's session to its end. Stops it at its timeout, and when the run is cancelled.
async fn perform(
    flow: &Flow,
    spec: BackgroundSpec,
    index: usize,
    timeout_ms: u64,
    control: &Control,
) -> Result<BackgroundEnd, String> {
    let clock = &flow.parts.clock;
    let mut session = start(flow, spec).await?;
    let mut left_ms = i64::try_from(timeout_ms).unwrap_or(i64::MAX);
    let mut is_waiting = false;
    loop {
        let since = clock.now();
        let timeout = async {
            while clock.now().saturating_sub(since) < left_ms {
                clock.wait_until(since.saturating_add(left_ms)).await;
            }
        };
        let change = tokio::select! {
            biased;
            change = session.next() => change,
            () = control.cancel.cancelled() => return Ok(stop(&mut session, control).await),
            // The time that a person takes to answer does not count.
            () = timeout, if !is_waiting => {
                session.stop("the timeout").await;
                let end = session.end_of_session().await;
                let error = format!("took longer than {timeout_ms} ms and was stopped");
                // It may have ended just before.
                return Ok(match end.stopped {
                    true => BackgroundEnd { outcome: Err(error), ..end },
                    false => end,
                });
            }
        };
        if !is_waiting {
            left_ms = left_ms.saturating_sub(clock.now().saturating_sub(since).max(0)).max(1);
        }
        match change {
            BackgroundChange::Ended(end) => return Ok(end),
            BackgroundChange::Waiting => is_waiting = true,
            BackgroundChange::Working => is_waiting = false,
        }
        control.state.send_modify(|state| {
            let state = Arc::make_mut(state);
            match is_waiting {
                true => drop(state.waiting.insert(index)),
                false => drop(state.waiting.remove(&index)),
            }
        });
        let run = control.state.borrow().clone();
        if is_waiting {
            notify_question(flow, &run, index, &session.key.key).await;
        }
        let (session_key, step) =
            (session.key.key.clone(), run.steps.get(index).map(|step| step.step.clone()));
        flow.publish(
            run_name(&run),
            match is_waiting {
                true => RunEvent::Waiting { session_key, step },
                false => RunEvent::Continued { session_key, step },
            },
        );
    }
}

/// Tells the owner that a step asks. A repeated question of a step sends no second notice.
async fn notify_question(flow: &Flow, run: &RunState, index: usize, session: &str) {
    let Some(step) = run.steps.get(index) else { return };
    let text = format!(
        "Step {:?} of the pipeline {:?} waits for your answer. `gantry sessions questions {session}` shows the question. \
         Without an answer it counts as a no after 24 hours.",
        step.step, run.name
    );
    let dedupe = format!("pipeline-question:{}:{}:{}", run.id, step.step, step.attempt);
    if let Err(error) = flow.notify(&run.agent, "A pipeline step asks", &text, &dedupe).await {
        tracing::warn!(run = %run.id, %error, "notice_not_stored");
    }
}

async fn stop(session: &mut BackgroundRun, control: &Control) -> BackgroundEnd {
    let by = control.cancelled_by.lock().unwrap_or_else(PoisonError::into_inner).clone();
    session.stop(&by.unwrap_or_else(|| "the end of the run".to_owned())).await;
    session.end_of_session().await
}

async fn start(flow: &Flow, spec: BackgroundSpec) -> Result<BackgroundRun, String> {
    for attempt in 1.. {
        match flow.parts.sessions.start_background(spec.clone()).await {
            Ok(session) => return Ok(session),
            // The next process starts it.
            Err(SessionError::Stopping) => std::future::pending().await,
            Err(SessionError::Store(error)) if attempt < START_ATTEMPTS => {
                tracing::warn!(%error, "pipeline_step_not_started");
                tokio::time::sleep(RETRY_AFTER).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("the session could not be started".to_owned())
}

/// The end of the key of a step's session.
fn conversation(run: &RunState, index: usize) -> String {
    let step = run.steps.get(index);
    let (id, attempt) = step.map_or(("", 1), |step| (step.step.as_str(), step.attempt));
    format!("pipeline:{}:{}:{attempt}", run.id, session_part(id))
}

fn session_key(run: &RunState, index: usize) -> String {
    format!("agent:{}:{}", run.authority.agent, conversation(run, index))
}

/// The account of a step. All its attempts share it.
fn step_account(run: &RunState, index: usize) -> String {
    let id = run.steps.get(index).map_or("", |step| step.step.as_str());
    format!("{}{ACCOUNT_SEPARATOR}{}", run.account, session_part(id))
}
