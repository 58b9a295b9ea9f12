//! Runs of scheduled jobs. Nothing has a running flag: a run belongs to a process by its lease.

use gantry_protocol::OutboxState;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::database::cron_occurrences::trim_history;
use crate::database::outbox::{NewOutboxMessage, insert_outbox};
use crate::database::run_leases::{Lease, RunTable};
use crate::database::{Database, DatabaseError, query_error};

/// The dedupe key of the message that delivers a run's answer is this prefix with the run's id.
pub const RUN_MESSAGE: &str = "cron-run:";
/// The beginning of the error of a run whose answer could not be delivered.
const NOWHERE: &str = "delivered nowhere";
/// The sessions of a job's last runs that are kept whatever their age.
const KEPT_SESSIONS: i64 = 10;
const KEPT_MS: i64 = 30 * 24 * 3600 * 1000;
/// How many sessions one transaction removes.
const BATCH: i64 = 200;

pub(super) const RUN_COLUMNS: &str =
    "r.id, r.job AS run_job, r.rev, r.kind AS run_kind, r.snapshot, r.state, r.owner, r.epoch, r.session,
    r.queued, r.not_before, r.started, r.ended, r.error, r.summary, r.cost, r.delivery, r.best_effort";
const RUNS: RunTable = RunTable {
    name: "cron_runs",
    columns: "id, job AS run_job, rev, kind AS run_kind, snapshot, state, owner, epoch, session, queued, not_before, started, \
              ended, error, summary, cost, delivery, best_effort",
};

/// A run of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronRunRow {
    pub id: String,
    pub job: String,
    pub rev: i64,
    pub kind: String,
    pub snapshot: String,
    /// `queued`, `running`, `parked`, `ok`, `error`, `interrupted`, `cancelled` or `retired`.
    pub state: String,
    pub owner: Option<String>,
    pub epoch: i64,
    pub session: Option<String>,
    pub queued: i64,
    pub not_before: i64,
    pub started: Option<i64>,
    pub ended: Option<i64>,
    pub error: Option<String>,
    pub summary: Option<String>,
    /// Billionths of a dollar.
    pub cost: i64,
    pub delivery: String,
    pub best_effort: bool,
}

impl CronRunRow {
    fn lease(&self) -> Lease<'_> {
        Lease { id: &self.id, owner: self.owner.as_deref(), epoch: self.epoch }
    }
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedRun<'a> {
    pub run: &'a CronRunRow,
    /// `ok`, `error`, `interrupted` or `cancelled`.
    pub state: &'static str,
    pub error: Option<String>,
    pub summary: Option<String>,
    /// The answer for the job's next run, shortened.
    pub answer: Option<String>,
    pub cost: i64,
    pub delivery: &'static str,
    pub messages: Vec<NewOutboxMessage>,
    /// What the end means for the job. `None` for manual runs.
    pub job: Option<JobAfterRun>,
}

/// The state of a job after a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobAfterRun {
    pub errors: i64,
    /// The reason of a pause, as JSON of the scheduler.
    pub paused: Option<String>,
    /// Nothing is admitted before this time.
    pub not_before: Option<i64>,
    /// The job has run for the last time.
    pub disable: bool,
    /// The job is removed. Its history stays.
    pub delete: bool,
}

impl Database {
    /// Takes up to `limit` queued runs for this process. At most one run of a job runs at a time.
    pub async fn claim_cron_runs(
        &self,
        owner: &str,
        limit: u32,
        now: i64,
    ) -> Result<Vec<CronRunRow>, DatabaseError> {
        const DOING: &str = "take queued runs";
        let failed = query_error(DOING);
        let startable = sqlx::query_scalar::<_, String>(STARTABLE)
            .bind(now)
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(&failed)?;
        if startable.is_empty() {
            return Ok(Vec::new());
        }
        let mut transaction = self.write(DOING).await?;
        let rows = RUNS.claim(&mut transaction, STARTABLE, owner, limit, now).await?;
        transaction.commit().await.map_err(&failed)?;
        rows.iter().map(|row| run(DOING, row)).collect()
    }

    /// Returns when the next queued run may start. Runs that wait for another run of their job are left out.
    pub async fn next_cron_start(&self) -> Result<Option<i64>, DatabaseError> {
        sqlx::query_scalar(
            "SELECT MIN(r.not_before) FROM cron_runs r WHERE r.state = 'queued' AND NOT EXISTS
               (SELECT 1 FROM cron_runs o WHERE o.job = r.job AND o.state IN ('running', 'parked'))",
        )
        .fetch_one(&self.readers)
        .await
        .map_err(query_error("look for queued runs"))
    }

    /// Takes over the runs that other processes left.
    pub async fn adopt_cron_runs(&self, owner: &str) -> Result<Vec<CronRunRow>, DatabaseError> {
        let rows = RUNS.adopt(self, owner).await?;
        rows.iter().map(|row| run("take over interrupted runs", row)).collect()
    }

    /// Parks a run that waits for a person, or continues it. Returns false if the run is no longer this process's.
    pub async fn park_cron_run(&self, run: &CronRunRow, parked: bool) -> Result<bool, DatabaseError> {
        RUNS.park(self, run.lease(), parked).await
    }

    /// Ends a run, if it is still this process's: its outcome, the job's state, its messages and the limits of its history in
    /// one transaction.
    pub async fn finish_cron_run(&self, end: &FinishedRun<'_>, now: i64) -> Result<bool, DatabaseError> {
        const DOING: &str = "end a run";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let ended = (end.state, end.error.as_deref(), end.cost);
        if !RUNS.end(&mut transaction, end.run.lease(), ended, now).await? {
            return Ok(false);
        }
        sqlx::query("UPDATE cron_runs SET summary = $2, delivery = $3 WHERE id = $1")
            .bind(&end.run.id)
            .bind(&end.summary)
            .bind(end.delivery)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        let started = end.run.started.unwrap_or(now);
        sqlx::query(
            "UPDATE cron_state SET last_run_at = $2, last_status = $3, last_error = $4, last_duration = $5,
               last_answer = COALESCE($6, last_answer) WHERE job = $1",
        )
        .bind(&end.run.job)
        .bind(started)
        .bind(end.state)
        .bind(&end.error)
        .bind(now.saturating_sub(started))
        .bind(&end.answer)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        if let Some(after) = &end.job {
            change_job(&mut transaction, end.run, after).await?;
        }
        for message in &end.messages {
            insert_outbox(&mut transaction, message, now).await?;
        }
        trim_history(&mut transaction, &end.run.job).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(true)
    }

    /// Ends a queued run before it starts. Returns whether it still waited.
    pub async fn cancel_queued_cron_run(&self, id: &str, why: &str, now: i64) -> Result<bool, DatabaseError> {
        let cancelled = sqlx::query(
            "UPDATE cron_runs SET state = 'cancelled', error = $2, ended = $3 WHERE id = $1 AND state = 'queued'",
        )
        .bind(id)
        .bind(why)
        .bind(now)
        .execute(&self.writer)
        .await
        .map_err(query_error("cancel a run"))?;
        Ok(cancelled.rows_affected() > 0)
    }

    /// Returns the runs whose ids start with `prefix`, at most six.
    pub async fn find_cron_runs(&self, prefix: &str) -> Result<Vec<CronRunRow>, DatabaseError> {
        const DOING: &str = "read a run";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {RUN_COLUMNS} FROM cron_runs r WHERE r.id >= $1 AND substr(r.id, 1, length($1)) = $1 ORDER BY r.id LIMIT 6"
        )))
        .bind(prefix)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error(DOING))?;
        rows.iter().map(|row| run(DOING, row)).collect()
    }

    /// Returns the runs of a job that wait or run.
    pub async fn live_cron_runs(&self, job: &str) -> Result<Vec<CronRunRow>, DatabaseError> {
        const DOING: &str = "read the runs of a job";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {RUN_COLUMNS} FROM cron_runs r WHERE r.job = $1 AND r.state IN ('queued', 'running', 'parked')
             ORDER BY r.queued, r.id"
        )))
        .bind(job)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error(DOING))?;
        rows.iter().map(|row| run(DOING, row)).collect()
    }

    /// Removes the sessions of old runs: those older than 30 days, except of the last ten runs of each job. Also removes the
    /// history of jobs that are gone for 30 days. Returns how many sessions were removed.
    pub async fn sweep_cron(&self, now: i64) -> Result<u64, DatabaseError> {
        const DOING: &str = "remove old runs of jobs";
        let failed = query_error(DOING);
        let before = now.saturating_sub(KEPT_MS);
        let gone = "NOT EXISTS (SELECT 1 FROM cron_jobs j WHERE j.id = job)";
        let mut transaction = self.write(DOING).await?;
        for statement in [
            format!("DELETE FROM cron_occurrences WHERE at <= $1 AND {gone}"),
            format!("DELETE FROM cron_runs WHERE ended <= $1 AND {gone}"),
        ] {
            let statement = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(before);
            statement.execute(&mut *transaction).await.map_err(&failed)?;
        }
        transaction.commit().await.map_err(&failed)?;
        let mut swept = 0;
        loop {
            let mut transaction = self.write(DOING).await?;
            let old: Vec<String> = sqlx::query_scalar(
                "SELECT key FROM sessions WHERE key GLOB 'agent:*:cron:*' AND parent IS NULL AND has_work = 0
                   AND last_activity <= $1 AND key NOT IN (
                     SELECT session FROM (
                       SELECT session, ROW_NUMBER() OVER (PARTITION BY job ORDER BY queued DESC, id DESC) AS place
                       FROM cron_runs WHERE session IS NOT NULL) AS newest WHERE place <= $2)
                 LIMIT $3",
            )
            .bind(before)
            .bind(KEPT_SESSIONS)
            .bind(BATCH)
            .fetch_all(&mut *transaction)
            .await
            .map_err(&failed)?;
            if old.is_empty() {
                return Ok(swept);
            }
            super::retention::remove_sessions(&mut transaction, DOING, &old).await?;
            transaction.commit().await.map_err(&failed)?;
            swept += old.len() as u64;
        }
    }
}

/// Queued runs that may start: at most one of each job, the oldest first.
const STARTABLE: &str =
    "SELECT q.id FROM cron_runs q WHERE q.state = 'queued' AND q.not_before <= $1 AND NOT EXISTS
      (SELECT 1 FROM cron_runs o WHERE o.job = q.job AND (o.state IN ('running', 'parked')
        OR (o.state = 'queued' AND (o.queued < q.queued OR (o.queued = q.queued AND o.id < q.id)))))
    ORDER BY q.not_before, q.queued, q.id LIMIT $2";

async fn change_job(
    connection: &mut SqliteConnection,
    run: &CronRunRow,
    after: &JobAfterRun,
) -> Result<(), DatabaseError> {
    let failed = query_error("record what a run means for its job");
    sqlx::query(
        "UPDATE cron_state SET errors = $2, paused = COALESCE($3, paused),
           next_at = CASE WHEN $3 IS NULL THEN next_at ELSE NULL END,
           due_at = CASE WHEN $3 IS NOT NULL THEN NULL WHEN due_at < $4 THEN $4 ELSE due_at END WHERE job = $1",
    )
    .bind(&run.job)
    .bind(after.errors)
    .bind(&after.paused)
    .bind(after.not_before)
    .execute(&mut *connection)
    .await
    .map_err(&failed)?;
    let ends = [
        (after.disable, "UPDATE cron_jobs SET enabled = 0 WHERE id = $1 AND rev = $2"),
        (after.delete, "DELETE FROM cron_jobs WHERE id = $1 AND rev = $2"),
    ];
    for (_, statement) in ends.into_iter().filter(|(applies, _)| *applies) {
        sqlx::query(statement)
            .bind(&run.job)
            .bind(run.rev)
            .execute(&mut *connection)
            .await
            .map_err(&failed)?;
    }
    if after.delete {
        sqlx::query(
            "DELETE FROM cron_state WHERE job = $1 AND NOT EXISTS (SELECT 1 FROM cron_jobs j WHERE j.id = $1)",
        )
        .bind(&run.job)
        .execute(&mut *connection)
        .await
        .map_err(&failed)?;
    }
    Ok(())
}

/// Records in a run how the delivery of its answer went.
pub(super) async fn note_delivery(
    connection: &mut SqliteConnection,
    dedupe: &str,
    state: OutboxState,
    error: Option<&str>,
) -> Result<(), DatabaseError> {
    let Some(id) = dedupe.strip_prefix(RUN_MESSAGE) else { return Ok(()) };
    let failed = query_error("record a delivery");
    let delivery = match state {
        OutboxState::Held | OutboxState::Queued | OutboxState::Sending => "queued",
        OutboxState::Sent => "sent",
        OutboxState::Unknown => "unknown",
        OutboxState::Failed | OutboxState::Expired | OutboxState::Dropped => "failed",
    };
    let nowhere = match error {
        Some(error) => format!("{NOWHERE}: {error}"),
        None => format!("{NOWHERE}: the message is {}", state.name()),
    };
    let job: Option<String> = sqlx::query_scalar(
        "UPDATE cron_runs SET delivery = $2,
           state = CASE WHEN $2 = 'failed' AND best_effort = 0 AND state = 'ok' THEN 'error'
                        WHEN $2 = 'sent' AND state = 'error' AND substr(error, 1, length($4)) = $4 THEN 'ok' ELSE state END,
           error = CASE WHEN $2 = 'failed' AND best_effort = 0 AND state = 'ok' THEN $3
                        WHEN $2 = 'sent' AND substr(error, 1, length($4)) = $4 THEN NULL ELSE error END
         WHERE id = $1 RETURNING job",
    )
    .bind(id)
    .bind(delivery)
    .bind(&nowhere)
    .bind(NOWHERE)
    .fetch_optional(&mut *connection)
    .await
    .map_err(&failed)?;
    let Some(job) = job else { return Ok(()) };
    sqlx::query(
        "UPDATE cron_state SET last_status = r.state, last_error = r.error FROM cron_runs r
         WHERE cron_state.job = $1 AND r.id = $2 AND cron_state.last_run_at = r.started",
    )
    .bind(&job)
    .bind(id)
    .execute(connection)
    .await
    .map_err(&failed)?;
    Ok(())
}

pub(super) fn run(doing: &'static str, row: &SqliteRow) -> Result<CronRunRow, DatabaseError> {
    let failed = query_error(doing);
    let text = |name: &str| row.try_get::<String, _>(name).map_err(&failed);
    let maybe_text = |name: &str| row.try_get::<Option<String>, _>(name).map_err(&failed);
    let number = |name: &str| row.try_get::<i64, _>(name).map_err(&failed);
    let maybe = |name: &str| row.try_get::<Option<i64>, _>(name).map_err(&failed);
    Ok(CronRunRow {
        id: text("id")?,
        job: text("run_job")?,
        rev: number("rev")?,
        kind: text("run_kind")?,
        snapshot: text("snapshot")?,
        state: text("state")?,
        owner: maybe_text("owner")?,
        epoch: number("epoch")?,
        session: maybe_text("session")?,
        queued: number("queued")?,
        not_before: number("not_before")?,
        started: maybe("started")?,
        ended: maybe("ended")?,
        error: maybe_text("error")?,
        summary: maybe_text("summary")?,
        cost: number("cost")?,
        delivery: text("delivery")?,
        best_effort: number("best_effort")? != 0,
    })
}

#[cfg(test)]
mod tests;
