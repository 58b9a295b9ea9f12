//! Occurrences of scheduled jobs. Admission is one transaction: the occurrence, the run and the job's next time.

use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::database::cron_runs::{self, CronRunRow, RUN_COLUMNS};
use crate::database::outbox::{NewOutboxMessage, insert_outbox};
use crate::database::{Database, DatabaseError, placeholders, query_error};

/// Rows of history that are kept per job.
pub const MAX_HISTORY_ROWS: i64 = 200;

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
        let agents_in = match agents {
            Some(agents) => format!("o.agent IN ({})", placeholders(4, agents.len())),
            None => "TRUE".to_owned(),
        };
        let matches = format!("($1 IS NULL OR o.job = $1) AND {agents_in}");
        let listed = format!(
            "SELECT o.job, o.agent, o.scheduled_at, o.through, o.kind, o.outcome, o.reason, o.at, {RUN_COLUMNS}
             FROM cron_occurrences o LEFT JOIN cron_runs r ON r.id = o.run WHERE {matches}
             ORDER BY o.at DESC, o.scheduled_at DESC, o.manual_no DESC LIMIT $2 OFFSET $3"
        );
        let mut query = sqlx::query(sqlx::AssertSqlSafe(listed)).bind(job).bind(limit).bind(offset);
        for agent in agents.into_iter().flatten() {
            query = query.bind(agent);
        }
        let rows = query.fetch_all(&self.readers).await.map_err(&failed)?;
        // The numbers of the parameters are those of the other statement.
        let counted =
            format!("SELECT COUNT(*) FROM cron_occurrences o WHERE {matches} AND $2 IS NULL AND $3 IS NULL");
        let mut query =
            sqlx::query_scalar(sqlx::AssertSqlSafe(counted)).bind(job).bind(None::<i64>).bind(None::<i64>);
        for agent in agents.into_iter().flatten() {
            query = query.bind(agent);
        }
        let total: i64 = query.fetch_one(&self.readers).await.map_err(&failed)?;
        let history: Result<Vec<_>, _> = rows.iter().map(|row| history_row(DOING, row)).collect();
        Ok((history?, total.unsigned_abs()))
    }
}

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

/// Removes the oldest rows of a long history.
pub(super) async fn trim_history(connection: &mut SqliteConnection, job: &str) -> Result<(), DatabaseError> {
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
        run: run_id.map(|_| cron_runs::run(doing, row)).transpose()?,
    })
}
