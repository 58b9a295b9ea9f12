//! Jobs and runs as people and programs see them.

use gantry_agent::Authority;
use gantry_protocol::{CronInstant, CronJob, CronJobState, CronRun};
use gantry_store::{CronHistoryRow, CronJobRow};
use gantry_tool::{Refusal, RefusalCode};
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;

use super::definition::JobDefinition;
use crate::access::content_hash;
use crate::domain::Flow;
use crate::time::{local_text, relative_text, utc_text, zone_named};

/// The number of next runs in answers.
const NEXT_RUNS: usize = 3;

/// A job with its parsed parts.
pub(crate) struct Job {
    pub(crate) row: CronJobRow,
    pub(crate) definition: JobDefinition,
    pub(crate) authority: Authority,
}

impl Job {
    pub(crate) fn of(row: CronJobRow) -> Result<Job, Refusal> {
        let definition = parsed(&row.id, &row.definition)?;
        let authority = parsed(&row.id, &row.authority)?;
        Ok(Job { row, definition, authority })
    }

    /// Identifies what the job does, so that a person allows what they read.
    pub(crate) fn content_hash(&self) -> String {
        content_hash(&(&self.definition, &self.authority.agent))
    }

    /// Whether nothing but the time keeps it from running.
    pub(crate) fn is_active(&self) -> bool {
        self.row.enabled && self.row.confirmed_by.is_some() && self.row.state.paused.is_none()
    }
}

fn parsed<T: DeserializeOwned>(id: &str, text: &str) -> Result<T, Refusal> {
    serde_json::from_str(text).map_err(|err| {
        Refusal::new(RefusalCode::Unavailable, format!("the stored job {id} cannot be read: {err}"))
    })
}

impl Flow {
    pub(super) fn job_info(&self, job: &Job, notes: Vec<String>) -> CronJob {
        let Job { row, definition, authority } = job;
        let now = self.parts.clock.now();
        let own = definition.schedule.zone().and_then(|name| zone_named(name).ok());
        let zone = own.as_ref().unwrap_or(&self.parts.zone);
        let instant =
            |at_ms: i64| CronInstant { at_ms, local: local_text(at_ms, zone), utc: utc_text(at_ms) };
        let next = match row.state.next_at {
            Some(next) => std::iter::once(next)
                .chain(definition.schedule.next_runs(next, NEXT_RUNS - 1))
                .take(NEXT_RUNS)
                .collect(),
            None if row.enabled => definition.schedule.next_runs(now, NEXT_RUNS),
            None => Vec::new(),
        };
        let human = |at: i64| format!("{} ({})", local_text(at, zone), relative_text(at, now));
        let state = &row.state;
        CronJob {
            id: row.id.clone(),
            agent_id: row.agent.clone(),
            name: definition.name.clone(),
            description: definition.description.clone(),
            enabled: row.enabled,
            delete_after_run: definition.delete_after_run,
            created_at_ms: row.created,
            updated_at_ms: row.updated,
            schedule: serde_json::to_value(&definition.schedule).unwrap_or_default(),
            spec: serde_json::to_value(&definition.spec).unwrap_or_default(),
            catch_up: definition.catch_up.name().to_owned(),
            overlap: definition.overlap.name().to_owned(),
            jitter_seconds: definition.jitter_seconds,
            carry: definition.carry.name().to_owned(),
            state: CronJobState {
                next_run_at_ms: state.next_at,
                running_at_ms: row.running_at,
                last_run_at_ms: state.last_run_at,
                last_status: state.last_status.clone(),
                last_error: state.last_error.clone(),
                last_duration_ms: state.last_duration,
                consecutive_errors: state.errors,
                skipped_in_a_row: state.skipped,
                paused: state.paused.as_deref().and_then(|text| serde_json::from_str(text).ok()),
            },
            next_runs: next.into_iter().map(instant).collect(),
            schedule_human: definition.schedule.describe(zone),
            next_run_human: state.next_at.map(human),
            last_run_human: state.last_run_at.map(human),
            confirmed_by: row.confirmed_by.clone(),
            created_by: authority.created_by.clone(),
            content_hash: job.content_hash(),
            notes,
        }
    }

    pub(super) fn timezone(&self) -> String {
        zone_text(&self.parts.zone)
    }

    pub(super) fn current_time(&self) -> String {
        let now = self.parts.clock.now();
        format!("{} ({})", local_text(now, &self.parts.zone), utc_text(now))
    }
}

fn zone_text(zone: &TimeZone) -> String {
    zone.iana_name().unwrap_or("UTC").to_owned()
}

/// Describes one occurrence. `now` is the end of a run that has not ended.
pub(super) fn run_info(row: CronHistoryRow, now: i64) -> CronRun {
    let through_ms = Some(row.through).filter(|through| *through > row.scheduled_at);
    let base = CronRun {
        job_id: row.job,
        run_id: None,
        kind: row.kind,
        scheduled_at_ms: row.scheduled_at,
        admitted_at_ms: row.at,
        through_ms,
        started_at_ms: None,
        ended_at_ms: None,
        status: row.outcome,
        error: row.reason.clone(),
        summary: None,
        duration_ms: None,
        session_key: None,
        cost_usd: None,
        delivery: "none".to_owned(),
    };
    let Some(run) = row.run else { return base };
    #[expect(clippy::cast_precision_loss, reason = "costs are far below 2^53 nanodollars")]
    let cost_usd = Some(run.cost as f64 / 1e9);
    CronRun {
        run_id: Some(run.id),
        started_at_ms: run.started,
        ended_at_ms: run.ended,
        status: if run.state == "retired" { "skipped".to_owned() } else { run.state },
        error: run.error.or(row.reason),
        summary: run.summary,
        duration_ms: run.started.map(|started| run.ended.unwrap_or(now).saturating_sub(started)),
        session_key: run.session,
        cost_usd,
        delivery: run.delivery,
        ..base
    }
}
