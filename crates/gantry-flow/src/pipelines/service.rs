//! [`Pipelines`] starts, resumes, retries and cancels runs, and finds them for those who read them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gantry_agent::{AccountBudget, Authority, Payer};
use gantry_protocol::{OnFailure, PipelineDefinition, PipelineStatus, StepModification, StepStatus};
use gantry_store::{ACCOUNT_SEPARATOR, PipelineRow, PipelineStepRow, RunEnd};
use gantry_tool::Label;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::definition::{self, KnownNames};
use super::error::PipelineError;
use super::runner::{self, Control};
use super::state::{RunInput, RunState, parse, retried, run_word, step_word, text};
use super::{costs, inputs, parameters, run_pipeline};
use crate::domain::Flow;

/// The most runs at the same time.
const MAX_RUNS: usize = 200;
const MAX_CONTEXT_BYTES: usize = 64 * 1024;
const UNNAMED: &str = "pipeline";

/// The runs of this process.
#[derive(Default)]
pub(crate) struct Pipelines {
    live: Mutex<HashMap<String, Live>>,
    /// Held while a run is started, so that no run has two runners.
    starting: tokio::sync::Mutex<()>,
    workers: OnceLock<Workers>,
    generation: AtomicU64,
}

struct Workers {
    tasks: TaskTracker,
    stopping: CancellationToken,
}

/// A run with a runner.
struct Live {
    generation: u64,
    control: Control,
    state: watch::Receiver<Arc<RunState>>,
}

/// A run to start.
pub(crate) struct NewRun {
    pub(crate) id: String,
    /// The stored pipeline, if there is one.
    pub(crate) pipeline: Option<PipelineRow>,
    pub(crate) definition: PipelineDefinition,
    pub(crate) context: BTreeMap<String, Value>,
    pub(crate) params: BTreeMap<String, Value>,
    pub(crate) on_failure: Option<OnFailure>,
    pub(crate) modifications: Vec<StepModification>,
    pub(crate) authority: Authority,
    /// Who pays, if a session started the run.
    pub(crate) payer: Option<Payer>,
}

impl Flow {
    /// Resumes the runs of an earlier process.
    pub(crate) fn start_pipelines(self: &Arc<Flow>, tasks: TaskTracker, stopping: CancellationToken) {
        let _ = self.pipelines.workers.set(Workers { tasks, stopping });
        let flow = self.clone();
        self.pipelines.spawn(async move {
            match flow.parts.database.unfinished_pipeline_runs().await {
                Ok(ids) => {
                    for id in ids {
                        if let Err(error) = flow.attach_run(&id).await {
                            tracing::error!(run = %id, %error, "pipeline_not_resumed");
                        }
                    }
                }
                Err(error) => tracing::error!(%error, "pipelines_not_resumed"),
            }
        });
    }

    /// Returns everything that is wrong with a definition, also tools, roles and models that do not exist.
    pub(crate) async fn pipeline_errors(
        &self,
        definition: &PipelineDefinition,
        known: KnownNames<'_>,
        authority: &Authority,
    ) -> Vec<String> {
        let mut errors = definition::errors(definition, known);
        for step in definition.steps.iter().take(definition::MAX_STEPS) {
            if step.tool.as_deref() == Some(run_pipeline::NAME) {
                errors.push(format!("step {:?}: a step cannot start a pipeline", step.id));
                continue;
            }
            if step.tool.as_ref().is_some_and(|tool| self.parts.sessions.runs_commands(authority, tool)) {
                let found = inputs::command_errors(step, &definition.steps);
                errors.extend(found.into_iter().map(|error| format!("step {:?}: {error}", step.id)));
            }
            let (tool, role, model) = (step.tool.as_deref(), step.role.as_deref(), step.model.as_deref());
            let found = self.parts.sessions.background_errors(authority, tool, role, model).await;
            errors.extend(found.into_iter().map(|error| format!("step {:?}: {error}", step.id)));
        }
        errors
    }

    /// Stores a pipeline after all checks.
    pub(crate) async fn store_pipeline(
        &self,
        id: &str,
        definition: &PipelineDefinition,
        source: &str,
        authority: &Authority,
    ) -> Result<PipelineRow, PipelineError> {
        let errors = self.pipeline_errors(definition, KnownNames::default(), authority).await;
        if !errors.is_empty() {
            return Err(PipelineError::Invalid(errors));
        }
        let mut definition = definition.clone();
        if definition.name.trim().is_empty() {
            definition.name = UNNAMED.to_owned();
        }
        let row = PipelineRow {
            id: id.to_owned(),
            agent: authority.agent.clone(),
            name: definition.name.clone(),
            definition: text(&definition)?,
            labels: authority.labels.iter().map(|label| label.name().to_owned()).collect(),
            source: source.to_owned(),
            created_by: authority.created_by.clone(),
            created: self.parts.clock.now(),
        };
        self.parts.database.add_pipeline(&row).await?;
        Ok(row)
    }

    /// Starts a run, or joins it if a run with this id exists. Nothing is stored if anything is wrong.
    pub(crate) async fn begin_run(self: &Arc<Flow>, new: NewRun) -> Result<String, PipelineError> {
        if self.parts.database.pipeline_run(&new.id).await?.is_some() {
            self.attach_run(&new.id).await?;
            return Ok(new.id);
        }
        let id = new.id.clone();
        let run = self.prepare_run(new).await?;
        let guard = self.pipelines.starting.lock().await;
        if self.pipelines.count() >= MAX_RUNS {
            let error = format!("{MAX_RUNS} pipelines are running; wait until one has ended");
            return Err(PipelineError::invalid(error));
        }
        if self.parts.database.begin_pipeline_run(&run.row()?, &run.steps).await? {
            self.pipelines.run(self, run)?;
            return Ok(id);
        }
        // The same call was made twice at once.
        drop(guard);
        self.attach_run(&id).await?;
        Ok(id)
    }

    async fn prepare_run(&self, new: NewRun) -> Result<RunState, PipelineError> {
        let NewRun { id, pipeline, mut definition, context, params, mut authority, payer, .. } = new;
        let mut errors = Vec::new();
        if let Err(found) = definition::modify(&mut definition, &new.modifications) {
            errors.extend(found);
        }
        definition.on_failure = new.on_failure.unwrap_or(definition.on_failure);
        if definition.name.trim().is_empty() {
            definition.name = UNNAMED.to_owned();
        }
        let now = self.parts.clock.now();
        let params =
            match parameters::resolve(&definition.parameters, &params, &context, now, &self.parts.zone) {
                Ok(values) => values,
                Err(found) => {
                    errors.extend(found);
                    params
                }
            };
        if text(&context)?.len() + text(&params)?.len() > MAX_CONTEXT_BYTES {
            errors.push(format!("context and params may have at most {MAX_CONTEXT_BYTES} bytes"));
        }
        let known = KnownNames { context: Some(&context), params: Some(&params) };
        errors.extend(self.pipeline_errors(&definition, known, &authority).await);
        if !errors.is_empty() {
            return Err(PipelineError::Invalid(errors));
        }
        let stored = pipeline.iter().flat_map(|row| &row.labels).filter_map(|name| Label::from_name(name));
        for label in stored.collect::<Vec<_>>() {
            if !authority.labels.contains(&label) {
                authority.labels.push(label);
            }
        }
        let (account, budgets) = self.run_account(&id, payer);
        let rows = definition.steps.iter().enumerate().map(|(position, step)| PipelineStepRow {
            position: i64::try_from(position).unwrap_or(i64::MAX),
            step: step.id.clone(),
            state: step_word(StepStatus::Pending).to_owned(),
            attempt: 1,
            tier: costs::tier(step),
            ..PipelineStepRow::default()
        });
        Ok(RunState {
            pipeline: pipeline.map_or_else(|| id.clone(), |row| row.id),
            agent: authority.agent.clone(),
            name: definition.name.clone(),
            steps: rows.collect(),
            input: RunInput { context, params, retried_by: None },
            id,
            definition,
            authority,
            account,
            budgets,
            status: PipelineStatus::Running,
            reason: None,
            cancelled_by: None,
            started: now,
            ended: None,
            waiting: Default::default(),
        })
    }

    /// Returns the account of a run and the budgets that limit it. A run of a session is below the session's account, so
    /// the session's own budgets limit it too.
    fn run_account(&self, id: &str, payer: Option<Payer>) -> (String, Vec<AccountBudget>) {
        let own = format!("pipeline:{id}");
        let (account, mut budgets) = match payer {
            Some(payer) => (format!("{}{ACCOUNT_SEPARATOR}{own}", payer.account), payer.budgets),
            None => (own, Vec::new()),
        };
        budgets.push(AccountBudget::background(&account, self.parts.config.run_budget_usd));
        (account, budgets)
    }

    /// Runs failed and skipped steps again. Completed steps keep their results.
    ///
    /// `authority` and `payer` replace those of the run, so that a retry has no more rights than its caller. `None` keeps
    /// them. The same `key` does not retry twice.
    pub(crate) async fn retry_run(
        self: &Arc<Flow>,
        id: &str,
        key: Option<String>,
        caller: Option<(Authority, Option<Payer>)>,
    ) -> Result<(), PipelineError> {
        let _guard = self.pipelines.starting.lock().await;
        let mut run = self.stored_run(id).await?;
        if key.is_some() && run.input.retried_by == key {
            return self.attach(run);
        }
        if run.ended.is_none() {
            return Err(PipelineError::invalid(format!("the run {id} has not ended")));
        }
        let again = retried(&run);
        if again.is_empty() {
            return Err(PipelineError::invalid(format!("the run {id} has no failed or skipped steps")));
        }
        if let Some((mut authority, payer)) = caller {
            for label in &run.authority.labels {
                if !authority.labels.contains(label) {
                    authority.labels.push(*label);
                }
            }
            run.authority = authority;
            (run.account, run.budgets) = self.run_account(id, payer);
        }
        let errors = self.run_errors(&run).await;
        if !errors.is_empty() {
            return Err(PipelineError::Invalid(errors));
        }
        (run.status, run.reason, run.cancelled_by, run.ended) = (PipelineStatus::Running, None, None, None);
        run.input.retried_by = key;
        for step in &again {
            let position = usize::try_from(step.position).unwrap_or(usize::MAX);
            if let Some(known) = run.steps.get_mut(position) {
                known.clone_from(step);
            }
        }
        if !self.parts.database.reopen_pipeline_run(&run.row()?, &again).await? {
            return Err(PipelineError::invalid(format!("the run {id} has not ended")));
        }
        self.pipelines.run(self, run)
    }

    /// Stops the sessions of all running steps, and starts no other step.
    pub(crate) async fn cancel_run(self: &Arc<Flow>, id: &str, by: &str) -> Result<(), PipelineError> {
        if !self.parts.database.cancel_pipeline_run(id, by).await? {
            return Err(PipelineError::invalid(format!("the run {id} has ended or was cancelled before")));
        }
        let control = self.pipelines.control(id);
        if let Some(control) = control {
            *control.cancelled_by.lock().unwrap_or_else(PoisonError::into_inner) = Some(by.to_owned());
            control.cancel.cancel();
        }
        self.attach_run(id).await
    }

    /// Returns the present state of a run.
    pub(crate) async fn run_now(&self, id: &str) -> Result<Arc<RunState>, PipelineError> {
        match self.pipelines.watch(id) {
            Some(state) => Ok(state.borrow().clone()),
            None => Ok(Arc::new(self.stored_run(id).await?)),
        }
    }

    /// Follows a run. `None` if it has ended.
    pub(crate) async fn follow_run(
        self: &Arc<Flow>,
        id: &str,
    ) -> Result<Option<watch::Receiver<Arc<RunState>>>, PipelineError> {
        self.attach_run(id).await?;
        Ok(self.pipelines.watch(id))
    }

    /// Makes sure that an unfinished run has a runner.
    pub(crate) async fn attach_run(self: &Arc<Flow>, id: &str) -> Result<(), PipelineError> {
        if self.pipelines.watch(id).is_some() {
            return Ok(());
        }
        let _guard = self.pipelines.starting.lock().await;
        let run = self.stored_run(id).await?;
        if run.ended.is_some() || self.pipelines.watch(id).is_some() {
            return Ok(());
        }
        let errors = self.run_errors(&run).await;
        // A cancelled run only stops what it began.
        if !errors.is_empty() && run.cancelled_by.is_none() {
            let end = RunEnd {
                state: run_word(PipelineStatus::Rejected).to_owned(),
                reason: Some(errors.join("; ")),
                at: self.parts.clock.now(),
            };
            self.parts.database.record_pipeline_steps(id, &[], &[], Some(&end)).await?;
            return Ok(());
        }
        self.attach(run)
    }

    fn attach(self: &Arc<Flow>, run: RunState) -> Result<(), PipelineError> {
        match run.ended.is_some() || self.pipelines.watch(&run.id).is_some() {
            true => Ok(()),
            false => self.pipelines.run(self, run),
        }
    }

    async fn run_errors(&self, run: &RunState) -> Vec<String> {
        let known = KnownNames { context: Some(&run.input.context), params: Some(&run.input.params) };
        self.pipeline_errors(&run.definition, known, &run.authority).await
    }

    async fn stored_run(&self, id: &str) -> Result<RunState, PipelineError> {
        let unknown =
            || PipelineError::invalid(format!("unknown run {id:?}; `gantry pipelines runs` lists them"));
        let row = self.parts.database.pipeline_run(id).await?.ok_or_else(unknown)?;
        let steps = self.parts.database.pipeline_steps(id).await?;
        Ok(RunState::read(row, steps)?)
    }

    /// What a run has cost, in billionths of a dollar.
    pub(crate) async fn run_cost(&self, run: &RunState) -> Result<i64, PipelineError> {
        // Tool calls cost nothing.
        if run.steps.iter().all(|step| step.tier.is_none()) {
            return Ok(0);
        }
        Ok(self.parts.database.spending("", "", &run.account).await?.run)
    }

    /// Reads the definition of a stored pipeline.
    pub(crate) fn definition_of(row: &PipelineRow) -> Result<PipelineDefinition, PipelineError> {
        Ok(parse(&row.definition)?)
    }
}

impl Pipelines {
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Some(workers) = self.workers.get() else { return };
        let stopping = workers.stopping.clone();
        workers.tasks.spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Starts a runner. The caller holds `starting`.
    fn run(&self, flow: &Arc<Flow>, run: RunState) -> Result<(), PipelineError> {
        if self.workers.get().is_none_or(|workers| workers.stopping.is_cancelled()) {
            return Err(PipelineError::Stopping);
        }
        let id = run.id.clone();
        let generation = self.generation.fetch_add(1, Ordering::Relaxed);
        let (sender, state) = watch::channel(Arc::new(run.clone()));
        let control = Control {
            cancel: CancellationToken::new(),
            cancelled_by: Arc::new(Mutex::new(run.cancelled_by.clone())),
            state: sender,
        };
        if run.cancelled_by.is_some() {
            control.cancel.cancel();
        }
        self.lock().insert(id.clone(), Live { generation, control: control.clone(), state });
        let flow = flow.clone();
        self.spawn(async move {
            runner::drive(flow.clone(), run, control).await;
            let mut live = flow.pipelines.lock();
            if live.get(&id).is_some_and(|known| known.generation == generation) {
                live.remove(&id);
            }
        });
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        self.lock().values().filter(|live| live.state.borrow().ended.is_none()).count()
    }

    /// Follows a run that has not ended.
    fn watch(&self, id: &str) -> Option<watch::Receiver<Arc<RunState>>> {
        let live = self.lock();
        let state = &live.get(id)?.state;
        let is_over = state.borrow().ended.is_some();
        (!is_over).then(|| state.clone())
    }

    fn control(&self, id: &str) -> Option<Control> {
        self.lock().get(id).map(|live| live.control.clone())
    }
}
