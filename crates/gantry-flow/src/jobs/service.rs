//! What people, programs and tools do with jobs. The callers check who may do it.

use gantry_agent::Authority;
use gantry_protocol::{
    CronCancelled, CronHistory, CronJob, CronJobInput, CronJobList, CronPause, CronQueued, CronStatus,
};
use gantry_store::{CronJobRow, CronState, NewCronRun, NewOutboxMessage, StateChange};
use gantry_tool::{Label, Refusal, RefusalCode};
use uuid::Uuid;

use super::MAX_JOBS;
use super::definition::{CarriedAnswer, Carry, JobDefinition, JobSpec, RunSnapshot};
use super::info::{Job, run_info};
use super::input::CheckedJob;
use crate::access::{Named, pick, store_refusal};
use crate::domain::Flow;
use crate::slots::MAX_RUNS;
use crate::time::{Schedule, jitter_ms};

/// How often a change is tried again after another change of the same job.
const TRIES: usize = 3;

/// The agents whose jobs a caller sees. `None` means all.
pub(super) type Agents<'a> = Option<&'a [String]>;

impl Flow {
    /// Returns the job with this id, a unique beginning of it, or this name.
    pub(super) async fn find_job(&self, id: &str, agents: Agents<'_>) -> Result<Job, Refusal> {
        let limit = u32::try_from(MAX_JOBS).unwrap_or(u32::MAX);
        let (rows, _) =
            self.parts.database.list_cron_jobs(agents, true, limit, 0).await.map_err(store_refusal)?;
        let jobs: Vec<Job> = rows.into_iter().map(Job::of).collect::<Result<_, _>>()?;
        pick("job", id, "gantry cron", jobs, |job| Named {
            id: &job.row.id,
            name: Some(&job.definition.name),
        })
        .map_err(|message| Refusal::new(RefusalCode::InvalidInput, message))
    }

    /// Stores a new job. Without `confirmed_by` it waits for a person.
    pub(super) async fn store_job(
        &self,
        checked: CheckedJob,
        authority: Authority,
        enabled: bool,
        confirmed_by: Option<String>,
    ) -> Result<CronJob, Refusal> {
        let now = self.parts.clock.now();
        let mut row = CronJobRow {
            // A random id has a short unique beginning.
            id: Uuid::new_v4().simple().to_string(),
            rev: 1,
            agent: authority.agent.clone(),
            enabled,
            definition: json(&checked.definition)?,
            authority: json(&authority)?,
            confirmed_by,
            created: now,
            updated: now,
            ..CronJobRow::default()
        };
        if row.enabled && row.confirmed_by.is_some() {
            let (next_at, due_at) = first_run(&row.id, &checked.definition, now);
            row.state = CronState { next_at, due_at, ..CronState::default() };
        }
        let job = Job { row, definition: checked.definition, authority };
        let message = self.confirmation(&job);
        let stored = self.parts.database.add_cron_job(&job.row, message.as_ref(), MAX_JOBS).await;
        stored.map_err(store_refusal)?;
        self.changed(message.is_some());
        let mut notes = checked.notes;
        notes.extend(message.map(|_| waits_for_confirmation(&job.row.id)));
        Ok(self.job_info(&job, notes))
    }

    /// The notice that an unconfirmed job waits for a person.
    fn confirmation(&self, job: &Job) -> Option<NewOutboxMessage> {
        if job.row.confirmed_by.is_some() {
            return None;
        }
        let id = &job.row.id;
        let text = format!(
            "{}\n\nTo allow it, run `gantry cron confirm {id} --seen {}`. To remove it, run `gantry cron remove {id}`.",
            self.described(job),
            job.content_hash()
        );
        let key = format!("cron-confirm:{id}:{}", job.row.rev);
        let labels = &job.authority.labels;
        Some(self.notice(
            &job.row.agent,
            "A job waits for your yes",
            &text,
            &key,
            &format!("cron:{id}"),
            labels,
        ))
    }

    /// Describes a job to the person who allows it.
    fn described(&self, job: &Job) -> String {
        let receiver = match &job.definition.spec {
            JobSpec::Task { deliver: true, to, .. } if to.channel != crate::outbox::SESSION => {
                format!(" Its answers go to {} {}.", to.channel, to.to)
            }
            _ => String::new(),
        };
        format!(
            "{} wants to run {:?} unattended, {}.{receiver} Its task is:\n\n{}",
            job.authority.created_by,
            job.definition.name,
            job.definition.schedule.describe(&self.parts.zone),
            job.definition.spec.text()
        )
    }

    /// Stores a changed job. `confirmed` says who allowed it, if the change needs that.
    pub(super) async fn store_job_change(
        &self,
        job: Job,
        input: &CronJobInput,
        checked: CheckedJob,
        authority: Authority,
        confirmed: Option<Option<String>>,
    ) -> Result<CronJob, Refusal> {
        let now = self.parts.clock.now();
        let CheckedJob { definition, mut notes } = checked;
        let is_finished = job.definition.schedule.is_once() && !job.row.enabled;
        let reschedules = definition.schedule != job.definition.schedule || input.schedule.is_some();
        let mut enabled = input.enabled.unwrap_or(job.row.enabled);
        if is_finished && reschedules && input.enabled.is_none() {
            enabled = true;
            notes.push("the job had ended; its new schedule makes it active again".to_owned());
        }
        let enables = enabled && !job.row.enabled;
        if enables && !reschedules && is_past(&definition.schedule, now) {
            let message = "the time of this job has passed; give it a new schedule";
            return Err(Refusal::new(RefusalCode::InvalidInput, message));
        }
        let changes_work =
            reschedules || definition.spec != job.definition.spec || authority.agent != job.row.agent;
        let mut row = job.row.clone();
        row.agent = authority.agent.clone();
        row.enabled = enabled;
        row.definition = json(&definition)?;
        row.authority = json(&authority)?;
        row.confirmed_by = confirmed.unwrap_or(row.confirmed_by);
        row.updated = now;
        let is_allowed = row.enabled && row.confirmed_by.is_some();
        let rearms = reschedules || enables || definition.jitter_seconds != job.definition.jitter_seconds;
        let state = match () {
            () if !is_allowed => StateChange::Arm { next_at: None, due_at: None },
            () if rearms || job.row.confirmed_by.is_none() => {
                let (next_at, due_at) = first_run(&row.id, &definition, now);
                match job.row.state.paused {
                    Some(_) if !reschedules && !enables => StateChange::Keep,
                    _ => StateChange::Restart { next_at, due_at },
                }
            }
            () => StateChange::Keep,
        };
        let changed = Job { row, definition, authority };
        let message = self.confirmation(&changed);
        let retires = changes_work || !is_allowed;
        let stored =
            self.parts.database.update_cron_job(&changed.row, state, retires, message.as_ref()).await;
        if !stored.map_err(store_refusal)? {
            let text = format!("the job {} was changed meanwhile; try again", changed.row.id);
            return Err(Refusal::new(RefusalCode::Unavailable, text));
        }
        self.changed(message.is_some());
        notes.extend(message.map(|_| waits_for_confirmation(&changed.row.id)));
        let job = self.find_job(&changed.row.id, None).await?;
        Ok(self.job_info(&job, notes))
    }

    /// Wakes the workers after a change.
    fn changed(&self, has_message: bool) {
        self.jobs.wake.notify_one();
        if has_message {
            self.parts.outbox.wake();
        }
    }

    /// Removes a job with its history, and stops its runs. Returns whether it existed.
    pub(super) async fn remove_job(&self, job: &Job) -> Result<bool, Refusal> {
        let live = self.parts.database.live_cron_runs(&job.row.id).await.map_err(store_refusal)?;
        let removed = self.parts.database.remove_cron_job(&job.row.id).await.map_err(store_refusal)?;
        for run in live {
            self.jobs.cancel(&run.id);
        }
        self.changed(false);
        Ok(removed)
    }

    /// Queues a run by hand. It never moves the schedule.
    pub(super) async fn start_job(&self, job: &Job) -> Result<CronQueued, Refusal> {
        if job.row.confirmed_by.is_none() {
            let message = format!("the job {} waits for a person's yes", job.row.id);
            let hint = format!("run `gantry cron confirm {}`", job.row.id);
            return Err(Refusal::new(RefusalCode::Denied, message).with_hint(hint));
        }
        let now = self.parts.clock.now();
        let run = new_run(job, now, now)?;
        let database = &self.parts.database;
        let admitted = database.admit_manual_cron(&job.row.id, &job.row.agent, job.row.rev, &run, now).await;
        if !admitted.map_err(store_refusal)? {
            let text = format!("the job {} was changed meanwhile; try again", job.row.id);
            return Err(Refusal::new(RefusalCode::Unavailable, text));
        }
        self.jobs.wake.notify_one();
        Ok(queued(job, &run.id))
    }

    /// Pauses a job until somebody resumes it.
    pub(super) async fn pause_job(&self, id: &str, agents: Agents<'_>, by: &str) -> Result<CronJob, Refusal> {
        let pause = CronPause { reason: format!("paused by {by}"), at: self.parts.clock.now(), count: 0 };
        let pause = json(&pause)?;
        let job = self.find_job(id, agents).await?;
        self.parts.database.pause_cron_job(&job.row.id, &pause).await.map_err(store_refusal)?;
        self.changed(false);
        let job = self.find_job(&job.row.id, agents).await?;
        Ok(self.job_info(&job, Vec::new()))
    }

    /// Ends a pause, forgets earlier errors and enables the job.
    pub(super) async fn resume_job(&self, id: &str, agents: Agents<'_>) -> Result<CronJob, Refusal> {
        self.with_job(id, agents, |flow, job| {
            let now = flow.parts.clock.now();
            if is_past(&job.definition.schedule, now) {
                let message = "the time of this job has passed; give it a new schedule";
                return Err(Refusal::new(RefusalCode::InvalidInput, message));
            }
            job.row.enabled = true;
            Ok(())
        })
        .await
    }

    /// Records a person's yes to a job that an agent added.
    ///
    /// `seen` is the content hash of what the person read. Other content is not allowed.
    pub(super) async fn confirm_job(
        &self,
        id: &str,
        seen: Option<&str>,
        by: &str,
    ) -> Result<CronJob, Refusal> {
        self.with_job(id, None, |flow, job| {
            if let Some(seen) = seen.filter(|seen| *seen != job.content_hash()) {
                let id = &job.row.id;
                let message = format!(
                    "the job {id} is not what you read: its content is {} and not {}. Now {}",
                    job.content_hash(),
                    seen.chars().take(16).collect::<String>(),
                    flow.described(job)
                );
                let hint = format!("`gantry cron confirm {id}` shows and allows it");
                return Err(Refusal::new(RefusalCode::Denied, message).with_hint(hint));
            }
            job.row.confirmed_by = Some(by.to_owned());
            Ok(())
        })
        .await
    }

    /// Changes a job and arms it again. Another change of the same job meanwhile is not overwritten.
    async fn with_job(
        &self,
        id: &str,
        agents: Agents<'_>,
        change: impl Fn(&Flow, &mut Job) -> Result<(), Refusal>,
    ) -> Result<CronJob, Refusal> {
        for _ in 0..TRIES {
            let mut job = self.find_job(id, agents).await?;
            change(self, &mut job)?;
            let now = self.parts.clock.now();
            job.row.updated = now;
            let (next_at, due_at) = match job.row.enabled && job.row.confirmed_by.is_some() {
                true => first_run(&job.row.id, &job.definition, now),
                false => (None, None),
            };
            let state = StateChange::Restart { next_at, due_at };
            if self
                .parts
                .database
                .update_cron_job(&job.row, state, false, None)
                .await
                .map_err(store_refusal)?
            {
                self.changed(false);
                let job = self.find_job(&job.row.id, agents).await?;
                return Ok(self.job_info(&job, Vec::new()));
            }
        }
        Err(Refusal::new(RefusalCode::Unavailable, "the job changes too often; try again"))
    }

    pub(super) async fn list_jobs(
        &self,
        agents: Agents<'_>,
        with_disabled: bool,
        limit: u32,
        offset: u32,
    ) -> Result<CronJobList, Refusal> {
        let listed = self.parts.database.list_cron_jobs(agents, with_disabled, limit, offset).await;
        let (rows, count) = listed.map_err(store_refusal)?;
        let jobs: Result<Vec<CronJob>, Refusal> =
            rows.into_iter().map(|row| Job::of(row).map(|job| self.job_info(&job, Vec::new()))).collect();
        Ok(CronJobList { jobs: jobs?, count, timezone: self.timezone(), current_time: self.current_time() })
    }

    /// The labels of the conversations in which jobs were added. Their texts come from there.
    pub(super) async fn labels_of_jobs(&self, agents: Agents<'_>) -> Result<Vec<Label>, Refusal> {
        let limit = u32::try_from(MAX_JOBS).unwrap_or(u32::MAX);
        let (rows, _) =
            self.parts.database.list_cron_jobs(agents, true, limit, 0).await.map_err(store_refusal)?;
        let mut labels = Vec::new();
        for row in rows {
            labels.extend(Job::of(row)?.authority.labels);
        }
        Ok(labels)
    }

    pub(super) async fn jobs_status(&self, agents: Agents<'_>) -> Result<CronStatus, Refusal> {
        let limit = u32::try_from(MAX_JOBS).unwrap_or(u32::MAX);
        let listed = self.parts.database.list_cron_jobs(agents, true, limit, 0).await;
        let (rows, count) = listed.map_err(store_refusal)?;
        let now = self.parts.clock.now();
        let counted = |is: &dyn Fn(&CronJobRow) -> bool| rows.iter().filter(|row| is(row)).count() as u64;
        Ok(CronStatus {
            enabled: self.parts.config.enabled,
            count,
            due_count: counted(&|row| row.state.due_at.is_some_and(|due| due <= now)),
            running_count: counted(&|row| row.running_at.is_some()),
            next_run_at_ms: rows.iter().filter_map(|row| row.state.next_at).min(),
            max_jobs: MAX_JOBS.unsigned_abs(),
            max_concurrent_runs: MAX_RUNS as u64,
            current_time: self.current_time(),
            timezone: self.timezone(),
        })
    }

    pub(super) async fn jobs_history(
        &self,
        job: Option<&str>,
        agents: Agents<'_>,
        limit: u32,
        offset: u32,
    ) -> Result<CronHistory, Refusal> {
        // The history of a job that deleted itself has only the whole id.
        let id = match job {
            Some(prefix) => match self.find_job(prefix, agents).await {
                Ok(job) => Some(job.row.id),
                Err(_) => Some(prefix.to_owned()),
            },
            None => None,
        };
        let read = self.parts.database.cron_history(id.as_deref(), agents, limit, offset).await;
        let (rows, count) = read.map_err(store_refusal)?;
        let now = self.parts.clock.now();
        Ok(CronHistory { runs: rows.into_iter().map(|row| run_info(row, now)).collect(), count })
    }

    /// Returns a run by its id or a unique beginning of it, with the agent that it belongs to.
    pub(super) async fn find_job_run(&self, id: &str) -> Result<(String, String, String), Refusal> {
        let found = match id.trim() {
            "" => Vec::new(),
            id => self.parts.database.find_cron_runs(id).await.map_err(store_refusal)?,
        };
        let run = pick("run", id, "gantry cron history", found, |run| Named { id: &run.id, name: None })
            .map_err(|message| Refusal::new(RefusalCode::InvalidInput, message))?;
        let snapshot: RunSnapshot = serde_json::from_str(&run.snapshot)
            .map_err(|err| Refusal::new(RefusalCode::Unavailable, format!("cannot read the run: {err}")))?;
        Ok((run.id, run.state, snapshot.authority.agent))
    }

    /// Stops a run that waits or runs.
    pub(super) async fn cancel_job_run(
        &self,
        id: &str,
        state: &str,
        by: &str,
    ) -> Result<CronCancelled, Refusal> {
        let why = format!("cancelled by {by}");
        let now = self.parts.clock.now();
        let text = match () {
            () if self
                .parts
                .database
                .cancel_queued_cron_run(id, &why, now)
                .await
                .map_err(store_refusal)? =>
            {
                "the run is cancelled; it had not started"
            }
            () if self.jobs.cancel(id) => "the run is being stopped",
            () => return Err(Refusal::new(RefusalCode::InvalidInput, format!("the run has ended: {state}"))),
        };
        self.jobs.wake.notify_one();
        Ok(CronCancelled { run_id: id.to_owned(), text: text.to_owned() })
    }
}

/// The next occurrence of a job that starts now, and when it is admitted.
pub(super) fn first_run(id: &str, definition: &JobDefinition, now: i64) -> (Option<i64>, Option<i64>) {
    let next = match &definition.schedule {
        Schedule::At { at_ms } => Some(*at_ms),
        schedule => schedule.next_after(now),
    };
    (next, next.map(|next| next.saturating_add(jitter_ms(id, definition.jitter_seconds))))
}

fn is_past(schedule: &Schedule, now: i64) -> bool {
    matches!(schedule, Schedule::At { at_ms } if *at_ms <= now)
}

pub(super) fn new_run(job: &Job, scheduled_at: i64, not_before: i64) -> Result<NewCronRun, Refusal> {
    let id = Uuid::now_v7().simple().to_string();
    let agent = &job.authority.agent;
    let (session, best_effort) = match &job.definition.spec {
        JobSpec::SystemEvent { .. } => (format!("agent:{agent}:main"), false),
        JobSpec::Task { best_effort_deliver, .. } => {
            (format!("agent:{agent}:cron:{id}"), *best_effort_deliver)
        }
    };
    let carried = job.row.state.last_answer.as_deref().filter(|_| job.definition.carry == Carry::Summary);
    let carried = carried.map(CarriedAnswer::of);
    let snapshot = RunSnapshot {
        name: job.definition.name.clone(),
        spec: job.definition.spec.clone(),
        authority: job.authority.clone(),
        scheduled_at,
        is_once: job.definition.schedule.is_once(),
        delete_after_run: job.definition.delete_after_run,
        context: carried,
    };
    Ok(NewCronRun { snapshot: json(&snapshot)?, id, session: Some(session), not_before, best_effort })
}

pub(super) fn queued(job: &Job, run: &str) -> CronQueued {
    CronQueued {
        job_id: job.row.id.clone(),
        run_id: run.to_owned(),
        status: "queued".to_owned(),
        summary: format!("{:?} is queued as run {run}", job.definition.name),
    }
}

fn waits_for_confirmation(id: &str) -> String {
    format!("the job waits for a person's yes before its first run: `gantry cron confirm {id}`")
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, Refusal> {
    serde_json::to_string(value)
        .map_err(|err| Refusal::new(RefusalCode::Unavailable, format!("cannot store the job: {err}")))
}
