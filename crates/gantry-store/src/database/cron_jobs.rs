//! Scheduled jobs: their definitions, and their runtime state in rows of their own. A write of a definition is conditional on
//! its revision, so a run never overwrites an edit.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::database::outbox::{NewOutboxMessage, insert_outbox};
use crate::database::{Database, DatabaseError, query_error};

const SELECT: &str = "SELECT j.id, j.rev, j.agent, j.enabled, j.definition, j.authority, j.confirmed_by,
      j.created, j.updated, s.next_at, s.due_at, s.paused, s.errors, s.skipped, s.last_run_at, s.last_status, s.last_error,
      s.last_duration, s.last_answer,
      (SELECT COUNT(*) FROM cron_runs r WHERE r.job = j.id AND r.state IN ('queued', 'running', 'parked')) AS live,
      (SELECT MIN(r.started) FROM cron_runs r WHERE r.job = j.id AND r.state IN ('running', 'parked')) AS running_at
    FROM cron_jobs j JOIN cron_state s ON s.job = j.id";

/// A job. The texts of `definition` and `authority` are JSON of the scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CronJobRow {
    pub id: String,
    /// Each change of the definition adds one.
    pub rev: i64,
    pub agent: String,
    pub enabled: bool,
    pub definition: String,
    pub authority: String,
    /// The person who allowed it. An unconfirmed job does not run.
    pub confirmed_by: Option<String>,
    pub created: i64,
    pub updated: i64,
    pub state: CronState,
    /// The number of its runs that wait or run.
    pub live: i64,
    /// The start of the run in progress.
    pub running_at: Option<i64>,
}

/// The runtime state of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CronState {
    /// The instant of the next occurrence.
    pub next_at: Option<i64>,
    /// When that occurrence is admitted.
    pub due_at: Option<i64>,
    /// Why it was paused, as JSON of the scheduler.
    pub paused: Option<String>,
    /// Errors in a row.
    pub errors: i64,
    /// Occurrences in a row that were skipped because a run still ran.
    pub skipped: i64,
    pub last_run_at: Option<i64>,
    pub last_status: Option<String>,
    pub last_error: Option<String>,
    pub last_duration: Option<i64>,
    /// The answer of the last run, shortened.
    pub last_answer: Option<String>,
}

/// What a change of a definition does to the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateChange {
    Keep,
    /// Sets the next occurrence and when it is admitted.
    Arm {
        next_at: Option<i64>,
        due_at: Option<i64>,
    },
    /// As `Arm`. Also ends a pause and forgets earlier errors.
    Restart {
        next_at: Option<i64>,
        due_at: Option<i64>,
    },
}

impl Database {
    /// Stores a job, unless there are `max` already, with a message about it.
    pub async fn add_cron_job(
        &self,
        job: &CronJobRow,
        message: Option<&NewOutboxMessage>,
        max: i64,
    ) -> Result<(), DatabaseError> {
        const DOING: &str = "store a scheduled job";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM cron_jobs")
            .fetch_one(&mut *transaction)
            .await
            .map_err(&failed)?;
        if count >= max {
            return Err(DatabaseError::Refused(format!(
                "there are {max} scheduled jobs already; `gantry cron remove ID` removes one"
            )));
        }
        sqlx::query(
            "INSERT INTO cron_jobs (id, rev, agent, enabled, definition, authority, confirmed_by, created, updated)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(&job.id)
        .bind(job.rev)
        .bind(&job.agent)
        .bind(job.enabled)
        .bind(&job.definition)
        .bind(&job.authority)
        .bind(&job.confirmed_by)
        .bind(job.created)
        .bind(job.updated)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        sqlx::query(
            "INSERT INTO cron_state (job, next_at, due_at, errors, skipped) VALUES ($1, $2, $3, 0, 0)",
        )
        .bind(&job.id)
        .bind(job.state.next_at)
        .bind(job.state.due_at)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        if let Some(message) = message {
            insert_outbox(&mut transaction, message, job.created).await?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Changes a definition whose revision is still `job.rev`, which then grows by one. With `retire`, runs that still wait
    /// end as retired. Returns whether the job changed.
    pub async fn update_cron_job(
        &self,
        job: &CronJobRow,
        state: StateChange,
        retire: bool,
        message: Option<&NewOutboxMessage>,
    ) -> Result<bool, DatabaseError> {
        const DOING: &str = "change a scheduled job";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let changed = sqlx::query(
            "UPDATE cron_jobs SET rev = rev + 1, agent = $3, enabled = $4, definition = $5, authority = $6,
               confirmed_by = $7, updated = $8 WHERE id = $1 AND rev = $2",
        )
        .bind(&job.id)
        .bind(job.rev)
        .bind(&job.agent)
        .bind(job.enabled)
        .bind(&job.definition)
        .bind(&job.authority)
        .bind(&job.confirmed_by)
        .bind(job.updated)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        if changed.rows_affected() == 0 {
            return Ok(false);
        }
        let (next_at, due_at, restarts) = match state {
            StateChange::Keep => (None, None, None),
            StateChange::Arm { next_at, due_at } => (next_at, due_at, Some(false)),
            StateChange::Restart { next_at, due_at } => (next_at, due_at, Some(true)),
        };
        if let Some(restarts) = restarts {
            sqlx::query(
                "UPDATE cron_state SET next_at = $2, due_at = $3, paused = CASE WHEN $4 = 1 THEN NULL ELSE paused END,
                   errors = CASE WHEN $4 = 1 THEN 0 ELSE errors END, skipped = 0 WHERE job = $1",
            )
            .bind(&job.id)
            .bind(next_at)
            .bind(due_at)
            .bind(restarts)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        }
        if retire {
            const WHY: &str = "the job changed before the run started";
            sqlx::query(
                "UPDATE cron_occurrences SET outcome = 'skipped', reason = $2 WHERE job = $1 AND run IN
                   (SELECT id FROM cron_runs WHERE job = $1 AND state = 'queued')",
            )
            .bind(&job.id)
            .bind(WHY)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
            sqlx::query("UPDATE cron_runs SET state = 'retired', error = $2, ended = $3 WHERE job = $1 AND state = 'queued'")
                .bind(&job.id)
                .bind(WHY)
                .bind(job.updated)
                .execute(&mut *transaction)
                .await
                .map_err(&failed)?;
        }
        if let Some(message) = message {
            insert_outbox(&mut transaction, message, job.updated).await?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(true)
    }

    /// Sets the next occurrence of a job, if neither its definition nor its next occurrence changed meanwhile.
    pub async fn arm_cron_job(
        &self,
        job: &CronJobRow,
        next_at: Option<i64>,
        due_at: Option<i64>,
    ) -> Result<bool, DatabaseError> {
        const DOING: &str = "set the next run of a job";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let armed = sqlx::query(
            "UPDATE cron_state SET next_at = $3, due_at = $4 WHERE job = $1 AND COALESCE(next_at, -1) = COALESCE($5, -1)
               AND EXISTS (SELECT 1 FROM cron_jobs j WHERE j.id = $1 AND j.rev = $2)",
        )
        .bind(&job.id)
        .bind(job.rev)
        .bind(next_at)
        .bind(due_at)
        .bind(job.state.next_at)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(armed.rows_affected() > 0)
    }

    /// Pauses a job. It has no next run until it is resumed.
    pub async fn pause_cron_job(&self, id: &str, paused: &str) -> Result<bool, DatabaseError> {
        let changed =
            sqlx::query("UPDATE cron_state SET paused = $2, next_at = NULL, due_at = NULL WHERE job = $1 AND paused IS NULL")
                .bind(id)
                .bind(paused)
                .execute(&self.writer)
                .await
                .map_err(query_error("pause a scheduled job"))?;
        Ok(changed.rows_affected() > 0)
    }

    /// Removes a job with its history. Returns whether it existed.
    pub async fn remove_cron_job(&self, id: &str) -> Result<bool, DatabaseError> {
        const DOING: &str = "remove a scheduled job";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let removed = sqlx::query("DELETE FROM cron_jobs WHERE id = $1")
            .bind(id)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        for statement in [
            "DELETE FROM cron_state WHERE job = $1",
            "DELETE FROM cron_occurrences WHERE job = $1",
            "DELETE FROM cron_runs WHERE job = $1",
        ] {
            sqlx::query(statement).bind(id).execute(&mut *transaction).await.map_err(&failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(removed.rows_affected() > 0)
    }

    /// Returns jobs, those with the nearest next run first, with the number of all that match. With agents, only theirs.
    pub async fn list_cron_jobs(
        &self,
        agents: Option<&[String]>,
        with_disabled: bool,
        limit: u32,
        offset: u32,
    ) -> Result<(Vec<CronJobRow>, u64), DatabaseError> {
        const DOING: &str = "list the scheduled jobs";
        let failed = query_error(DOING);
        let agents = agents.map(|agents| serde_json::json!(agents).to_string());
        let matches =
            "($1 IS NULL OR j.agent IN (SELECT value FROM json_each($1))) AND ($2 = 1 OR j.enabled = 1)";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "{SELECT} WHERE {matches}
             ORDER BY CASE WHEN s.next_at IS NULL THEN 1 ELSE 0 END, s.next_at, j.created, j.id LIMIT $3 OFFSET $4"
        )))
        .bind(&agents)
        .bind(with_disabled)
        .bind(limit)
        .bind(offset)
        .fetch_all(&self.readers)
        .await
        .map_err(&failed)?;
        let count = format!("SELECT COUNT(*) FROM cron_jobs j WHERE {matches}");
        let total: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .bind(&agents)
            .bind(with_disabled)
            .fetch_one(&self.readers)
            .await
            .map_err(&failed)?;
        let jobs: Result<Vec<_>, _> = rows.iter().map(|row| job(DOING, row)).collect();
        Ok((jobs?, total.unsigned_abs()))
    }

    /// Returns the job with this id.
    pub async fn cron_job(&self, id: &str) -> Result<Option<CronJobRow>, DatabaseError> {
        const DOING: &str = "read a scheduled job";
        let row = sqlx::query(sqlx::AssertSqlSafe(format!("{SELECT} WHERE j.id = $1")))
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error(DOING))?;
        row.map(|row| job(DOING, &row)).transpose()
    }

    /// Returns the jobs that are due now, the oldest first.
    pub async fn due_cron_jobs(&self, now: i64, limit: u32) -> Result<Vec<CronJobRow>, DatabaseError> {
        const DOING: &str = "look for due jobs";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "{SELECT} WHERE s.due_at <= $1 ORDER BY s.due_at, j.id LIMIT $2"
        )))
        .bind(now)
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error(DOING))?;
        rows.iter().map(|row| job(DOING, row)).collect()
    }

    /// Returns when the next job is due.
    pub async fn next_cron_due(&self) -> Result<Option<i64>, DatabaseError> {
        sqlx::query_scalar("SELECT MIN(due_at) FROM cron_state")
            .fetch_one(&self.readers)
            .await
            .map_err(query_error("look for the next job"))
    }
}

fn job(doing: &'static str, row: &SqliteRow) -> Result<CronJobRow, DatabaseError> {
    let failed = query_error(doing);
    let text = |name: &str| row.try_get::<String, _>(name).map_err(&failed);
    let number = |name: &str| row.try_get::<i64, _>(name).map_err(&failed);
    let maybe = |name: &str| row.try_get::<Option<i64>, _>(name).map_err(&failed);
    let maybe_text = |name: &str| row.try_get::<Option<String>, _>(name).map_err(&failed);
    Ok(CronJobRow {
        id: text("id")?,
        rev: number("rev")?,
        agent: text("agent")?,
        enabled: number("enabled")? != 0,
        definition: text("definition")?,
        authority: text("authority")?,
        confirmed_by: maybe_text("confirmed_by")?,
        created: number("created")?,
        updated: number("updated")?,
        state: CronState {
            next_at: maybe("next_at")?,
            due_at: maybe("due_at")?,
            paused: maybe_text("paused")?,
            errors: number("errors")?,
            skipped: number("skipped")?,
            last_run_at: maybe("last_run_at")?,
            last_status: maybe_text("last_status")?,
            last_error: maybe_text("last_error")?,
            last_duration: maybe("last_duration")?,
            last_answer: maybe_text("last_answer")?,
        },
        live: number("live")?,
        running_at: maybe("running_at")?,
    })
}
