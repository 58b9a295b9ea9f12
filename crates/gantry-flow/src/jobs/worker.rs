//! The worker of scheduled jobs: admits what is due, starts runs, and checks once a minute that every job will run.

use std::sync::Arc;
use std::time::Duration;

use gantry_protocol::CronQueued;
use gantry_store::{Admission, CronJobRow, CronRunRow, DatabaseError, NewOccurrence};
use gantry_tool::Refusal;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::info::Job;
use super::plan::{DueJob, Outcome, Plan, plan};
use super::run::execute;
use super::service::{Agents, first_run, new_run, queued};
use crate::domain::Flow;
use crate::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Schedule, jitter_ms, local_text};

/// The number of jobs that one transaction admits.
const BATCH: u32 = 100;
/// The time between two starts of runs that catch up.
const CATCH_UP_PAUSE_MS: i64 = 5 * SECOND_MS;
/// The pause after a failed access to the database.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// A larger delay of the worker means that the machine slept or the clock jumped.
const JUMP_MS: i64 = 5 * MINUTE_MS;

/// The worker's memory. Nothing in it is needed after a restart.
struct Worker {
    flow: Arc<Flow>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    next_check: i64,
    next_sweep: i64,
}

/// Runs scheduled jobs until the gateway stops.
pub(crate) fn run(flow: Arc<Flow>, tasks: &TaskTracker, stopping: &CancellationToken) {
    let now = flow.parts.clock.now();
    let (spawner, ended) = (tasks.clone(), stopping.clone());
    let mut worker =
        Worker { flow, tasks: tasks.clone(), stopping: stopping.clone(), next_check: now, next_sweep: now };
    let work = async move {
        let mut is_adopted = false;
        let mut expected = i64::MAX;
        loop {
            let now = worker.flow.parts.clock.now();
            if now.saturating_sub(expected) > JUMP_MS {
                tracing::warn!(lateMs = now - expected, "clock_jumped");
            }
            let next = match is_adopted {
                true => worker.turn().await,
                false => worker.adopt().await.map(|()| {
                    is_adopted = true;
                    now
                }),
            };
            match next {
                Ok(next) => {
                    expected = next;
                    tokio::select! {
                        () = worker.flow.jobs.wake.notified() => {}
                        () = worker.flow.parts.clock.wait_until(next) => {}
                    }
                }
                Err(err) => {
                    tracing::warn!(error = %err, "schedules_failed");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    };
    spawner.spawn(async move {
        tokio::select! {
            () = ended.cancelled() => {}
            () = work => {}
        }
    });
}

impl Worker {
    /// Continues the runs of an earlier process.
    async fn adopt(&mut self) -> Result<(), DatabaseError> {
        for run in self.flow.parts.database.adopt_cron_runs(&self.flow.owner).await? {
            self.start(run);
        }
        Ok(())
    }

    /// Does what is due now. Returns when to look again.
    async fn turn(&mut self) -> Result<i64, DatabaseError> {
        let database = &self.flow.parts.database;
        let now = self.flow.parts.clock.now();
        while !self.flow.admit_due(None, None).await?.is_empty() {}
        {
            let _claiming = self.flow.slots.claiming().await;
            let free = u32::try_from(self.flow.slots.free()).unwrap_or(0);
            if free > 0 {
                for run in database.claim_cron_runs(&self.flow.owner, free, now).await? {
                    self.start(run);
                }
            }
        }
        if now >= self.next_check {
            self.flow.check_jobs().await?;
            self.next_check = now + MINUTE_MS;
        }
        if now >= self.next_sweep {
            database.sweep_cron(now).await?;
            database.sweep_tasks(now).await?;
            database.sweep_outbox(now).await?;
            database.sweep_channel_events(now).await?;
            self.next_sweep = now + HOUR_MS;
        }
        let free = self.flow.slots.free() > 0;
        let start = if free { database.next_cron_start().await? } else { None };
        let due = database.next_cron_due().await?;
        let next = [due, start].into_iter().flatten().fold(self.next_check, i64::min);
        Ok(next)
    }

    fn start(&self, run: CronRunRow) {
        let slot = self.flow.slots.take();
        let (flow, stopping) = (self.flow.clone(), self.stopping.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = execute(flow, run, slot) => {}
            }
        });
    }
}

impl Flow {
    /// Admits due jobs: all, those of some agents, or one. Returns the runs that were queued, and for others an empty entry, so that an empty
    /// answer means that nothing was due.
    pub(super) async fn admit_due(
        &self,
        agents: Agents<'_>,
        only: Option<&str>,
    ) -> Result<Vec<Option<CronQueued>>, DatabaseError> {
        let now = self.parts.clock.now();
        let rows = self.parts.database.due_cron_jobs(now, BATCH).await?;
        let (mut admissions, mut queued_runs) = (Vec::new(), Vec::new());
        let is_chosen = |row: &CronJobRow| {
            only.is_none_or(|only| row.id == only) && agents.is_none_or(|agents| agents.contains(&row.agent))
        };
        for row in rows.into_iter().filter(is_chosen) {
            let id = row.id.clone();
            let admitted = Job::of(row).and_then(|job| self.admission(&job, now));
            match admitted {
                Ok((admission, run)) => {
                    admissions.push(admission);
                    queued_runs.push(run);
                }
                Err(refusal) => tracing::error!(job = id, error = %refusal, "job_not_readable"),
            }
        }
        if admissions.is_empty() {
            return Ok(Vec::new());
        }
        let admitted = self.parts.database.admit_cron(&admissions, now).await?;
        if admissions.iter().any(|admission| !admission.messages.is_empty()) {
            self.parts.outbox.wake();
        }
        for (admission, _) in admissions.iter().zip(&admitted).filter(|(_, is_admitted)| **is_admitted) {
            for occurrence in &admission.occurrences {
                self.metrics.occurrence(occurrence.outcome, now.saturating_sub(occurrence.scheduled_at));
            }
        }
        for admission in &admissions {
            let late = now.saturating_sub(admission.expected_next);
            tracing::debug!(job = admission.job, lateMs = late, "job_admitted");
        }
        Ok(queued_runs
            .into_iter()
            .zip(admitted)
            .map(|(run, is_admitted)| run.filter(|_| is_admitted))
            .collect())
    }

    fn admission(&self, job: &Job, now: i64) -> Result<(Admission, Option<CronQueued>), Refusal> {
        let state = &job.row.state;
        let (next_at, due_at) = (state.next_at.unwrap_or(now), state.due_at.unwrap_or(now));
        let running = i64::from(job.row.running_at.is_some());
        let due = DueJob {
            id: &job.row.id,
            schedule: &job.definition.schedule,
            catch_up: job.definition.catch_up,
            overlap: job.definition.overlap,
            jitter_seconds: job.definition.jitter_seconds,
            next_at,
            due_at,
            running,
            queued: job.row.live - running,
        };
        let planned = plan(&due, now);
        let mut admission = Admission {
            job: job.row.id.clone(),
            agent: job.row.agent.clone(),
            rev: job.row.rev,
            expected_next: next_at,
            next_at: planned.next_at,
            due_at: planned.due_at,
            skipped: state.skipped,
            occurrences: Vec::new(),
            ends: None,
            messages: Vec::new(),
        };
        let run = self.record(job, planned, &mut admission, now)?;
        Ok((admission, run))
    }

    /// Turns a plan into rows.
    fn record(
        &self,
        job: &Job,
        planned: Plan,
        admission: &mut Admission,
        now: i64,
    ) -> Result<Option<CronQueued>, Refusal> {
        let mut queued_run = None;
        for one in planned.occurrences {
            let (kind, outcome, reason) = match one.outcome {
                Outcome::Run { is_catch_up: true } => ("catchup", "admitted", None),
                Outcome::Run { is_catch_up: false } => ("due", "admitted", None),
                Outcome::Overlaps(why) => ("due", "skipped", Some(why)),
                Outcome::BacksOff => ("due", "skipped", Some("the job waits after errors")),
                Outcome::Missed(why) => ("due", "missed", Some(why)),
            };
            let run = match one.outcome {
                Outcome::Run { is_catch_up } => {
                    let not_before = if is_catch_up { self.jobs.catch_up_start(now) } else { now };
                    Some(new_run(job, one.from, not_before)?)
                }
                _ => None,
            };
            admission.skipped = match one.outcome {
                Outcome::Overlaps(_) => admission.skipped + 1,
                Outcome::Run { .. } => 0,
                _ => admission.skipped,
            };
            queued_run = run.as_ref().map(|run| queued(job, &run.id)).or(queued_run);
            if let (Outcome::Missed(why), true) = (&one.outcome, job.definition.schedule.is_once()) {
                let when = local_text(one.from, &self.parts.zone);
                admission.ends = Some(("missed", format!("{why}: it was due {when}")));
                let text = format!("{:?} was due {when} and did not run: {why}.", job.definition.name);
                let key = format!("cron-missed:{}:{}", job.row.id, one.from);
                let from = format!("cron:{}", job.row.id);
                admission.messages.push(self.notice(
                    &job.row.agent,
                    "A job was missed",
                    &text,
                    &key,
                    &from,
                    &[],
                ));
            }
            admission.occurrences.push(NewOccurrence {
                scheduled_at: one.from,
                through: one.through,
                kind,
                outcome,
                reason: reason.map(str::to_owned),
                run,
            });
        }
        Ok(queued_run)
    }

    /// Arms active jobs that have no next run, and corrects next runs after the clock or the time zone database changed. It
    /// never makes a job due.
    pub(super) async fn check_jobs(&self) -> Result<(), DatabaseError> {
        let limit = u32::try_from(super::MAX_JOBS).unwrap_or(u32::MAX);
        let (rows, _) = self.parts.database.list_cron_jobs(None, false, limit, 0).await?;
        let now = self.parts.clock.now();
        for row in rows {
            let Ok(job) = Job::of(row) else { continue };
            if !job.is_active() {
                continue;
            }
            let schedule = &job.definition.schedule;
            let (next, why) = match (job.row.state.next_at, schedule) {
                (None, _) if job.row.live > 0 => continue,
                (None, _) => (first_run(&job.row.id, &job.definition, now).0, "it had no next run"),
                (Some(_), Schedule::At { .. }) => continue,
                (Some(known), schedule) => {
                    let jitter = jitter_ms(&job.row.id, job.definition.jitter_seconds);
                    let next = schedule.next_after(now.saturating_sub(jitter));
                    if known <= now || next == Some(known) {
                        continue;
                    }
                    (next, "the clock or the time zone rules changed")
                }
            };
            let jitter = jitter_ms(&job.row.id, job.definition.jitter_seconds);
            let due = next.map(|next| next.saturating_add(jitter).max(now.saturating_add(1)));
            if self.parts.database.arm_cron_job(&job.row, next, due).await? {
                tracing::warn!(job = job.row.id, nextAt = next, why, "job_armed_again");
            }
        }
        Ok(())
    }
}

impl super::Jobs {
    /// Returns when the next run that catches up may start, so that they do not start all at once.
    fn catch_up_start(&self, now: i64) -> i64 {
        let mut next = self.next_catch_up.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let start = (*next).max(now).min(now.saturating_add(HOUR_MS));
        *next = start + CATCH_UP_PAUSE_MS;
        start
    }
}
