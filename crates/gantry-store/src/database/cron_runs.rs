//! Occurrences and runs of scheduled jobs.
//!
//! Admission is one transaction: the occurrence, the run and the job's next time. A run belongs to the process in `owner`, and
//! every write of that process carries the run's epoch. Nothing has a running flag.

use gantry_protocol::OutboxState;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::database::outbox::{NewOutboxMessage, insert_outbox};
use crate::database::{Database, DatabaseError, query_error};

/// The dedupe key of the message that delivers a run's answer is this prefix with the run's id.
pub const RUN_MESSAGE: &str = "cron-run:";
/// The beginning of the error of a run whose answer could not be delivered.
const NOWHERE: &str = "delivered nowhere";
/// Rows of history that are kept per job.
pub const MAX_HISTORY_ROWS: i64 = 200;
/// The sessions of a job's last runs that are kept whatever their age.
const KEPT_SESSIONS: i64 = 10;
const KEPT_MS: i64 = 30 * 24 * 3600 * 1000;
/// How many sessions one transaction removes.
const BATCH: i64 = 200;

const RUN_COLUMNS: &str =
    "r.id, r.job AS run_job, r.rev, r.kind AS run_kind, r.snapshot, r.state, r.owner, r.epoch, r.session,
    r.queued, r.not_before, r.started, r.ended, r.error, r.summary, r.cost, r.delivery, r.best_effort";

/// A run to queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCronRun {
    pub id: String,
    /// The job as it is now, as JSON of the scheduler.
    pub snapshot: String,
    pub session: Option<String>,
    /// It does not start earlier.
    pub not_before: i64,
    /// A failed delivery does not make it an error.
    pub best_effort: bool,
}

/// An occurrence of a job to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOccurrence {
    pub scheduled_at: i64,
    /// The last instant that the row covers.
    pub through: i64,
    /// `due` or `catchup`.
    pub kind: &'static str,
    /// `admitted`, `skipped` or `missed`.
    pub outcome: &'static str,
    pub reason: Option<String>,
    pub run: Option<NewCronRun>,
}

/// The admission of a due job: what becomes of its occurrences, and when it is due next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    pub job: String,
    pub agent: String,
    /// The admission happens only if these two are unchanged.
    pub rev: i64,
    pub expected_next: i64,
    pub next_at: Option<i64>,
    pub due_at: Option<i64>,
    pub skipped: i64,
    pub occurrences: Vec<NewOccurrence>,
    /// The job ends here, with this status and error.
    pub ends: Option<(&'static str, String)>,
    pub messages: Vec<NewOutboxMessage>,
}

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

/// An occurrence with its run, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronHistoryRow {
    pub job: String,
    pub agent: String,
    pub scheduled_at: i64,
    pub through: i64,
    pub kind: String,
    pub outcome: String,
    pub reason: Option<String>,
    pub at: i64,
    pub run: Option<CronRunRow>,
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
    /// Admits due jobs in one transaction. A job whose definition or next time changed meanwhile is left out. Returns which
    /// were admitted.
    pub async fn admit_cron(&self, admissions: &[Admission], now: i64) -> Result<Vec<bool>, DatabaseError> {
        const DOING: &str = "admit due jobs";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let mut admitted = Vec::with_capacity(admissions.len());
        for one in admissions {
            let moved = sqlx::query(
                "UPDATE cron_state SET next_at = $4, due_at = $5, skipped = $6 WHERE job = $1 AND next_at = $3
                   AND EXISTS (SELECT 1 FROM cron_jobs j WHERE j.id = $1 AND j.rev = $2)",
            )
            .bind(&one.job)
            .bind(one.rev)
            .bind(one.expected_next)
            .bind(one.next_at)
            .bind(one.due_at)
            .bind(one.skipped)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
            admitted.push(moved.rows_affected() > 0);
            if moved.rows_affected() == 0 {
                continue;
            }
            for occurrence in &one.occurrences {
                insert_occurrence(&mut transaction, one, occurrence, now).await?;
            }
            if let Some((status, error)) = &one.ends {
                sqlx::query("UPDATE cron_jobs SET enabled = 0 WHERE id = $1 AND rev = $2")
                    .bind(&one.job)
                    .bind(one.rev)
                    .execute(&mut *transaction)
                    .await
                    .map_err(&failed)?;
                sqlx::query("UPDATE cron_state SET last_status = $2, last_error = $3 WHERE job = $1")
                    .bind(&one.job)
                    .bind(status)
                    .bind(error)
                    .execute(&mut *transaction)
                    .await
                    .map_err(&failed)?;
            }
            for message in &one.messages {
                insert_outbox(&mut transaction, message, now).await?;
            }
        }
        transaction.commit().await.map_err(failed)?;
        Ok(admitted)
    }

    /// Queues a manual run of a job. It does not move the job's next time. Returns whether the job still has this revision.
    pub async fn admit_manual_cron(
        &self,
        job: &str,
        agent: &str,
        rev: i64,
        run: &NewCronRun,
        now: i64,
    ) -> Result<bool, DatabaseError> {
        const DOING: &str = "start a job by hand";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let known: Option<i64> = sqlx::query_scalar("SELECT rev FROM cron_jobs WHERE id = $1 AND rev = $2")
            .bind(job)
            .bind(rev)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(&failed)?;
        if known.is_none() {
            return Ok(false);
        }
        let number: i64 = sqlx::query_scalar(
            "SELECT COALESCE(MAX(manual_no), 0) + 1 FROM cron_occurrences WHERE job = $1 AND scheduled_at = $2",
        )
        .bind(job)
        .bind(now)
        .fetch_one(&mut *transaction)
        .await
        .map_err(&failed)?;
        sqlx::query(
            "INSERT INTO cron_occurrences (job, agent, scheduled_at, manual_no, through, kind, outcome, run, at)
             VALUES ($1, $2, $3, $4, $3, 'manual', 'admitted', $5, $3)",
        )
        .bind(job)
        .bind(agent)
        .bind(now)
        .bind(number)
        .bind(&run.id)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        insert_run(&mut transaction, job, rev, "manual", run, now).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(true)
    }

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
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "UPDATE cron_runs AS r SET state = 'running', owner = $3, epoch = epoch + 1, started = $1
             WHERE r.id IN ({STARTABLE}) RETURNING {}",
            RUN_COLUMNS.replace("r.", "")
        )))
        .bind(now)
        .bind(limit)
        .bind(owner)
        .fetch_all(&mut *transaction)
        .await
        .map_err(&failed)?;
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

    /// Takes over the runs that other processes left. They must have ended: one gateway at a time locks the data directory.
    pub async fn adopt_cron_runs(&self, owner: &str) -> Result<Vec<CronRunRow>, DatabaseError> {
        const DOING: &str = "take over interrupted runs";
        let failed = query_error(DOING);
        let left: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM cron_runs WHERE state IN ('running', 'parked') AND owner <> $1",
        )
        .bind(owner)
        .fetch_one(&self.readers)
        .await
        .map_err(&failed)?;
        if left == 0 {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "UPDATE cron_runs SET owner = $1, epoch = epoch + 1 WHERE state IN ('running', 'parked') AND owner <> $1
             RETURNING {}",
            RUN_COLUMNS.replace("r.", "")
        )))
        .bind(owner)
        .fetch_all(&self.writer)
        .await
        .map_err(&failed)?;
        rows.iter().map(|row| run(DOING, row)).collect()
    }

    /// Parks a run that waits for a person, or continues it. Returns false if the run is no longer this process's.
    pub async fn park_cron_run(&self, run: &CronRunRow, parked: bool) -> Result<bool, DatabaseError> {
        let (from, to) = if parked { ("running", "parked") } else { ("parked", "running") };
        let changed = sqlx::query(
            "UPDATE cron_runs SET state = $4 WHERE id = $1 AND owner = $2 AND epoch = $3 AND state = $5",
        )
        .bind(&run.id)
        .bind(&run.owner)
        .bind(run.epoch)
        .bind(to)
        .bind(from)
        .execute(&self.writer)
        .await
        .map_err(query_error("park a run"))?;
        Ok(changed.rows_affected() > 0)
    }

    /// Ends a run, if it is still this process's: its outcome, the job's state, its messages and the limits of its history in
    /// one transaction.
    pub async fn finish_cron_run(&self, end: &FinishedRun<'_>, now: i64) -> Result<bool, DatabaseError> {
        const DOING: &str = "end a run";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let ended = sqlx::query(
            "UPDATE cron_runs SET state = $4, ended = $5, error = $6, summary = $7, cost = $8, delivery = $9
             WHERE id = $1 AND owner = $2 AND epoch = $3 AND state IN ('running', 'parked')",
        )
        .bind(&end.run.id)
        .bind(&end.run.owner)
        .bind(end.run.epoch)
        .bind(end.state)
        .bind(now)
        .bind(&end.error)
        .bind(&end.summary)
        .bind(end.cost)
        .bind(end.delivery)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        if ended.rows_affected() == 0 {
            return Ok(false);
        }
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

    /// Returns the runs whose ids start with `prefix`, at most two.
    pub async fn find_cron_runs(&self, prefix: &str) -> Result<Vec<CronRunRow>, DatabaseError> {
        const DOING: &str = "read a run";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {RUN_COLUMNS} FROM cron_runs r WHERE r.id >= $1 AND substr(r.id, 1, length($1)) = $1 ORDER BY r.id LIMIT 2"
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

    /// Returns the history of a job or of all, the newest first, with the number of all rows. With agents, only theirs.
    pub async fn cron_history(
        &self,
        job: Option<&str>,
        agents: Option<&[String]>,
        limit: u32,
        offset: u32,
    ) -> Result<(Vec<CronHistoryRow>, u64), DatabaseError> {
        const DOING: &str = "read the history of jobs";
        let failed = query_error(DOING);
        let agents = agents.map(|agents| serde_json::json!(agents).to_string());
        let matches =
            "($1 IS NULL OR o.job = $1) AND ($2 IS NULL OR o.agent IN (SELECT value FROM json_each($2)))";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT o.job, o.agent, o.scheduled_at, o.through, o.kind, o.outcome, o.reason, o.at, {RUN_COLUMNS}
             FROM cron_occurrences o LEFT JOIN cron_runs r ON r.id = o.run WHERE {matches}
             ORDER BY o.at DESC, o.scheduled_at DESC, o.manual_no DESC LIMIT $3 OFFSET $4"
        )))
        .bind(job)
        .bind(&agents)
        .bind(limit)
        .bind(offset)
        .fetch_all(&self.readers)
        .await
        .map_err(&failed)?;
        let count = format!("SELECT COUNT(*) FROM cron_occurrences o WHERE {matches}");
        let total: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .bind(job)
            .bind(&agents)
            .fetch_one(&self.readers)
            .await
            .map_err(&failed)?;
        let history: Result<Vec<_>, _> = rows.iter().map(|row| history_row(DOING, row)).collect();
        Ok((history?, total.unsigned_abs()))
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

async fn insert_occurrence(
    connection: &mut SqliteConnection,
    admission: &Admission,
    occurrence: &NewOccurrence,
    now: i64,
) -> Result<(), DatabaseError> {
    const DOING: &str = "record an occurrence of a job";
    // An instant that a clock set back reaches again is known already.
    let inserted = sqlx::query(
        "INSERT INTO cron_occurrences (job, agent, scheduled_at, manual_no, through, kind, outcome, reason, run, at)
         VALUES ($1, $2, $3, 0, $4, $5, $6, $7, $8, $9) ON CONFLICT (job, scheduled_at, manual_no) DO NOTHING",
    )
    .bind(&admission.job)
    .bind(&admission.agent)
    .bind(occurrence.scheduled_at)
    .bind(occurrence.through)
    .bind(occurrence.kind)
    .bind(occurrence.outcome)
    .bind(&occurrence.reason)
    .bind(occurrence.run.as_ref().map(|run| &run.id))
    .bind(now)
    .execute(&mut *connection)
    .await
    .map_err(query_error(DOING))?;
    match &occurrence.run {
        Some(run) if inserted.rows_affected() > 0 => {
            insert_run(connection, &admission.job, admission.rev, occurrence.kind, run, now).await
        }
        _ => Ok(()),
    }
}

async fn insert_run(
    connection: &mut SqliteConnection,
    job: &str,
    rev: i64,
    kind: &str,
    run: &NewCronRun,
    now: i64,
) -> Result<(), DatabaseError> {
    sqlx::query(
        "INSERT INTO cron_runs (id, job, rev, kind, snapshot, state, epoch, session, queued, not_before, cost, delivery,
           best_effort) VALUES ($1, $2, $3, $4, $5, 'queued', 0, $6, $7, $8, 0, 'none', $9)",
    )
    .bind(&run.id)
    .bind(job)
    .bind(rev)
    .bind(kind)
    .bind(&run.snapshot)
    .bind(&run.session)
    .bind(now)
    .bind(run.not_before)
    .bind(run.best_effort)
    .execute(connection)
    .await
    .map_err(query_error("queue a run"))?;
    Ok(())
}

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

async fn trim_history(connection: &mut SqliteConnection, job: &str) -> Result<(), DatabaseError> {
    let failed = query_error("shorten the history of a job");
    let trimmed = sqlx::query(
        "DELETE FROM cron_occurrences WHERE job = $1 AND at < COALESCE((SELECT at FROM cron_occurrences
           WHERE job = $1 ORDER BY at DESC LIMIT 1 OFFSET $2), 0)",
    )
    .bind(job)
    .bind(MAX_HISTORY_ROWS - 1)
    .execute(&mut *connection)
    .await
    .map_err(&failed)?;
    if trimmed.rows_affected() > 0 {
        sqlx::query(
            "DELETE FROM cron_runs WHERE job = $1 AND state NOT IN ('queued', 'running', 'parked') AND NOT EXISTS
               (SELECT 1 FROM cron_occurrences o WHERE o.job = $1 AND o.run = cron_runs.id)",
        )
        .bind(job)
        .execute(connection)
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

fn history_row(doing: &'static str, row: &SqliteRow) -> Result<CronHistoryRow, DatabaseError> {
    let failed = query_error(doing);
    let text = |name: &str| row.try_get::<String, _>(name).map_err(&failed);
    let number = |name: &str| row.try_get::<i64, _>(name).map_err(&failed);
    let run_id: Option<String> = row.try_get("id").map_err(&failed)?;
    Ok(CronHistoryRow {
        job: text("job")?,
        agent: text("agent")?,
        scheduled_at: number("scheduled_at")?,
        through: number("through")?,
        kind: text("kind")?,
        outcome: text("outcome")?,
        reason: row.try_get("reason").map_err(&failed)?,
        at: number("at")?,
        run: run_id.map(|_| run(doing, row)).transpose()?,
    })
}

fn run(doing: &'static str, row: &SqliteRow) -> Result<CronRunRow, DatabaseError> {
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
mod tests {
    use super::*;
    use crate::database::testing::database;
    use crate::{CronJobRow, CronState, Journal};

    const DAY: i64 = 24 * 3600 * 1000;

    async fn job(database: &Database, id: &str) {
        let state = CronState { next_at: Some(10), due_at: Some(10), ..CronState::default() };
        let row = CronJobRow {
            id: id.into(),
            rev: 1,
            agent: "main".into(),
            enabled: true,
            state,
            ..CronJobRow::default()
        };
        database.add_cron_job(&row, None, 200).await.unwrap();
    }

    fn admission(job: &str, expected: i64, run: &str) -> Admission {
        let new = NewCronRun {
            id: run.into(),
            snapshot: "{}".into(),
            session: Some(format!("agent:main:cron:{run}")),
            not_before: expected,
            best_effort: false,
        };
        Admission {
            job: job.into(),
            agent: "main".into(),
            rev: 1,
            expected_next: expected,
            next_at: Some(expected + 10),
            due_at: Some(expected + 10),
            skipped: 0,
            occurrences: vec![NewOccurrence {
                scheduled_at: expected,
                through: expected,
                kind: "due",
                outcome: "admitted",
                reason: None,
                run: Some(new),
            }],
            ends: None,
            messages: Vec::new(),
        }
    }

    async fn ran(database: &Database, job: &str, expected: i64, run: &str, at: i64) {
        assert_eq!(database.admit_cron(&[admission(job, expected, run)], at).await.unwrap(), [true]);
        let claimed = database.claim_cron_runs("me", 1, at.max(expected)).await.unwrap();
        let end = FinishedRun {
            run: &claimed[0],
            state: "ok",
            error: None,
            summary: None,
            answer: None,
            cost: 0,
            delivery: "none",
            messages: Vec::new(),
            job: Some(JobAfterRun::default()),
        };
        assert!(database.finish_cron_run(&end, at).await.unwrap());
        assert!(!database.finish_cron_run(&end, at).await.unwrap(), "an ended run does not end again");
    }

    #[tokio::test]
    async fn s03_occurrence_is_admitted_once_and_only_by_the_known_revision_and_time() {
        let (_folder, database) = database().await;
        job(&database, "j").await;
        let first = admission("j", 10, "r1");
        let stale = Admission { rev: 2, ..admission("j", 10, "r2") };
        let again = admission("j", 10, "r3");
        assert_eq!(database.admit_cron(&[stale, first, again], 10).await.unwrap(), [false, true, false]);
        let (history, count) = database.cron_history(Some("j"), None, 10, 0).await.unwrap();
        assert_eq!((history[0].run.as_ref().unwrap().id.as_str(), count), ("r1", 1));
        // A clock that went back reaches the same instant: no second run.
        let row = database.cron_job("j").await.unwrap().unwrap();
        assert!(database.arm_cron_job(&row, Some(10), Some(10)).await.unwrap());
        assert_eq!(database.admit_cron(&[admission("j", 10, "r4")], 10).await.unwrap(), [true]);
        assert_eq!(database.cron_history(Some("j"), None, 10, 0).await.unwrap().1, 1);
        assert!(database.find_cron_runs("r4").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn s07_writes_of_a_process_that_lost_its_run_change_nothing() {
        let (_folder, database) = database().await;
        job(&database, "j").await;
        database.admit_cron(&[admission("j", 10, "r1")], 10).await.unwrap();
        let old = database.claim_cron_runs("old", 4, 10).await.unwrap().remove(0);
        assert!(database.adopt_cron_runs("old").await.unwrap().is_empty());
        let adopted = database.adopt_cron_runs("new").await.unwrap().remove(0);
        assert_eq!((adopted.epoch, adopted.owner.as_deref()), (old.epoch + 1, Some("new")));
        assert!(!database.park_cron_run(&old, true).await.unwrap());
        assert!(database.park_cron_run(&adopted, true).await.unwrap());
    }

    #[tokio::test]
    async fn s23_sessions_of_old_runs_are_removed_except_the_last_ten() {
        let (_folder, database) = database().await;
        let journal = Journal::new(database.clone());
        job(&database, "j").await;
        for number in 0..15 {
            let run = format!("r{number:02}");
            journal.open(&format!("agent:main:cron:{run}"), "main", number).await.unwrap();
            ran(&database, "j", 10 + number * 10, &run, 10 + number * 10).await;
        }
        journal.open("agent:main:main", "main", 0).await.unwrap();
        assert_eq!(database.sweep_cron(29 * DAY).await.unwrap(), 0);
        assert_eq!(database.sweep_cron(31 * DAY).await.unwrap(), 5);
        for number in 0..15 {
            let there = journal.exists(&format!("agent:main:cron:r{number:02}")).await.unwrap();
            assert_eq!(there, number >= 5, "{number}");
        }
        assert!(journal.exists("agent:main:main").await.unwrap());
    }

    #[tokio::test]
    async fn history_of_a_job_is_bounded() {
        let (_folder, database) = database().await;
        job(&database, "j").await;
        for number in 0..MAX_HISTORY_ROWS + 5 {
            ran(&database, "j", 10 + number * 10, &format!("r{number:03}"), 10 + number * 10).await;
        }
        let (_, count) = database.cron_history(Some("j"), None, 1, 0).await.unwrap();
        assert_eq!(i64::try_from(count).unwrap(), MAX_HISTORY_ROWS);
        assert!(database.find_cron_runs("r000").await.unwrap().is_empty());
    }
}
