//! Runs of tasks. A run belongs to a process by its lease.

use gantry_protocol::TaskStatus;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::database::run_leases::{Lease, RunTable};
use crate::database::{Database, DatabaseError, query_error, retention};

/// Runs that are kept of each task.
const KEPT_RUNS: i64 = 100;
/// How long a final task is kept.
const KEPT_MS: i64 = 365 * 24 * 3600 * 1000;
/// The sessions of a task's last runs that are kept whatever their age.
const KEPT_SESSIONS: i64 = 10;
/// How long other sessions of runs are kept.
const SESSION_KEPT_MS: i64 = 30 * 24 * 3600 * 1000;
/// How many sessions one transaction removes.
const BATCH: i64 = 200;

const RUN: &str = "id, task, scheduled_at, snapshot, state, owner, epoch, session, queued, started, ended, result, error, cost";
const RUNS: RunTable = RunTable { name: "task_runs", columns: RUN };
/// The oldest queued runs.
const STARTABLE: &str = "SELECT id FROM task_runs WHERE state = 'queued' ORDER BY queued, id LIMIT $2";

/// A run to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTaskRun {
    pub id: String,
    pub task: String,
    pub scheduled_at: i64,
    pub snapshot: String,
    pub session: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRunRow {
    pub id: String,
    pub task: String,
    pub scheduled_at: i64,
    pub snapshot: String,
    pub state: String,
    pub owner: Option<String>,
    pub epoch: i64,
    pub session: String,
    pub queued: i64,
    pub started: Option<i64>,
    pub ended: Option<i64>,
    pub result: Option<String>,
    pub error: Option<String>,
    /// Billionths of a dollar.
    pub cost: i64,
}

impl TaskRunRow {
    fn lease(&self) -> Lease<'_> {
        Lease { id: &self.id, owner: self.owner.as_deref(), epoch: self.epoch }
    }
}

/// An occurrence of a task without a run. The history has a row for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOccurrence {
    pub id: String,
    pub scheduled_at: i64,
    /// `skipped` or `missed`.
    pub state: &'static str,
    pub reason: String,
}

/// A pause after errors: the occurrence that is skipped first, and the next time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPause {
    pub skipped: TaskOccurrence,
    pub next_at: Option<i64>,
}

/// The end of a run, and what it means for its task.
#[derive(Debug, Clone)]
pub struct FinishedTaskRun<'a> {
    pub run: &'a TaskRunRow,
    /// `ok`, `error` or `cancelled`.
    pub state: &'static str,
    pub result: Option<String>,
    pub error: Option<String>,
    pub cost: i64,
    /// The new status of the task, if it is open.
    pub status: Option<TaskStatus>,
    /// Errors in a row of the task.
    pub errors: i64,
    /// The task has no next run.
    pub ends: bool,
    /// The task waits after this error.
    pub pause: Option<TaskPause>,
}

impl Database {
    /// Moves a task to its next time, and stores the run of the present one and the occurrences without a run. Does nothing and returns false if another
    /// process did so first.
    pub async fn admit_task(
        &self,
        id: &str,
        expected: i64,
        next_at: Option<i64>,
        run: Option<&NewTaskRun>,
        others: &[TaskOccurrence],
        now: i64,
    ) -> Result<bool, DatabaseError> {
        const DOING: &str = "start the task";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let moved = sqlx::query("UPDATE task_state SET next_at = $3 WHERE task = $1 AND next_at = $2")
            .bind(id)
            .bind(expected)
            .bind(next_at)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        if moved.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some(run) = run {
            insert_run(&mut transaction, run, now).await.map_err(&failed)?;
        }
        for other in others {
            insert_occurrence(&mut transaction, id, other, now).await.map_err(&failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(true)
    }

    /// Stores a run that a person started. It does not move the task's next time.
    pub async fn add_manual_task_run(&self, run: &NewTaskRun, now: i64) -> Result<(), DatabaseError> {
        const DOING: &str = "start the task";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let number: i64 =
            sqlx::query_scalar("SELECT coalesce(MIN(scheduled_at), 0) FROM task_runs WHERE task = $1")
                .bind(&run.task)
                .fetch_one(&mut *transaction)
                .await
                .map_err(&failed)?;
        let run = NewTaskRun { scheduled_at: number.min(0) - 1, ..run.clone() };
        insert_run(&mut transaction, &run, now).await.map_err(&failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Takes the oldest queued run.
    pub async fn claim_task_run(&self, owner: &str, now: i64) -> Result<Option<TaskRunRow>, DatabaseError> {
        const DOING: &str = "take a run of a task";
        let failed = query_error(DOING);
        let queued: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM task_runs WHERE state = 'queued'")
            .fetch_one(&self.readers)
            .await
            .map_err(&failed)?;
        if queued == 0 {
            return Ok(None);
        }
        let mut transaction = self.write(DOING).await?;
        let rows = RUNS.claim(&mut transaction, STARTABLE, owner, 1, now).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(rows.first().map(task_run))
    }

    /// Takes over the unfinished runs of earlier processes.
    pub async fn adopt_task_runs(&self, owner: &str) -> Result<Vec<TaskRunRow>, DatabaseError> {
        Ok(RUNS.adopt(self, owner).await?.iter().map(task_run).collect())
    }

    /// Parks a run that waits for a person, or continues it. Returns false if the run is no longer this process's.
    pub async fn park_task_run(&self, run: &TaskRunRow, parked: bool) -> Result<bool, DatabaseError> {
        RUNS.park(self, run.lease(), parked).await
    }

    /// Records the end of a run and its meaning for the task. Returns false if this process lost the run.
    pub async fn finish_task_run(&self, end: &FinishedTaskRun<'_>, now: i64) -> Result<bool, DatabaseError> {
        const DOING: &str = "record the end of a run";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let ended = (end.state, end.error.as_deref(), end.cost);
        if !RUNS.end(&mut transaction, end.run.lease(), ended, now).await? {
            return Ok(false);
        }
        sqlx::query("UPDATE task_runs SET result = $2 WHERE id = $1")
            .bind(&end.run.id)
            .bind(&end.result)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        if let Some(pause) = &end.pause {
            let moved = sqlx::query("UPDATE task_state SET next_at = $3 WHERE task = $1 AND next_at = $2")
                .bind(&end.run.task)
                .bind(pause.skipped.scheduled_at)
                .bind(pause.next_at)
                .execute(&mut *transaction)
                .await
                .map_err(&failed)?;
            if moved.rows_affected() > 0 {
                insert_occurrence(&mut transaction, &end.run.task, &pause.skipped, now)
                    .await
                    .map_err(&failed)?;
            }
        }
        sqlx::query(
            "UPDATE task_state SET errors = $2, last_run_at = $3, last_status = $4, last_result = $5,
               next_at = CASE WHEN $6 = 1 THEN NULL ELSE next_at END WHERE task = $1",
        )
        .bind(&end.run.task)
        .bind(end.errors)
        .bind(now)
        .bind(end.state)
        .bind(end.result.as_ref().or(end.error.as_ref()))
        .bind(i64::from(end.ends))
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        if let Some(status) = end.status {
            sqlx::query(
                "UPDATE tasks SET status = $2, completed = $3, updated = $3, rev = rev + 1
                 WHERE id = $1 AND status IN ('open', 'in_progress')",
            )
            .bind(&end.run.task)
            .bind(status.name())
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(true)
    }

    /// Cancels the queued runs of a task. Returns the ids of its other unfinished runs.
    pub async fn cancel_task_runs(&self, task: &str, now: i64) -> Result<Vec<String>, DatabaseError> {
        const DOING: &str = "cancel the runs of a task";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        sqlx::query(
            "UPDATE task_runs SET state = 'cancelled', ended = $2 WHERE task = $1 AND state = 'queued'",
        )
        .bind(task)
        .bind(now)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        let live =
            sqlx::query_scalar("SELECT id FROM task_runs WHERE task = $1 AND state IN ('running', 'parked')")
                .bind(task)
                .fetch_all(&mut *transaction)
                .await
                .map_err(&failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(live)
    }

    /// Returns the runs of a task, the newest first.
    pub async fn task_runs(&self, task: &str, limit: u32) -> Result<Vec<TaskRunRow>, DatabaseError> {
        let statement =
            format!("SELECT {RUN} FROM task_runs WHERE task = $1 ORDER BY queued DESC, id LIMIT $2");
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(task)
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("read the runs of a task"))?;
        Ok(rows.iter().map(task_run).collect())
    }

    /// Removes old runs and their sessions, and final tasks past their retention.
    pub async fn sweep_tasks(&self, now: i64) -> Result<u64, DatabaseError> {
        const DOING: &str = "remove old tasks";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let mut removed = 0;
        for statement in [
            "DELETE FROM task_runs WHERE state NOT IN ('queued', 'running', 'parked') AND id NOT IN (SELECT id FROM
               (SELECT id, ROW_NUMBER() OVER (PARTITION BY task ORDER BY queued DESC) AS place FROM task_runs) ranked
               WHERE place <= $2) AND $1 > 0",
            "DELETE FROM tasks WHERE completed < $1 AND $2 > 0",
            "DELETE FROM task_runs WHERE task NOT IN (SELECT id FROM tasks) AND $1 + $2 > 0",
            "DELETE FROM task_state WHERE task NOT IN (SELECT id FROM tasks) AND $1 + $2 > 0",
            "DELETE FROM watches WHERE task NOT IN (SELECT id FROM tasks) AND $1 + $2 > 0",
        ] {
            let done = sqlx::query(statement)
                .bind(now.saturating_sub(KEPT_MS).max(1))
                .bind(KEPT_RUNS)
                .execute(&mut *transaction)
                .await
                .map_err(&failed)?;
            removed += done.rows_affected();
        }
        transaction.commit().await.map_err(failed)?;
        Ok(removed + self.sweep_task_sessions(now).await?)
    }

    /// Removes the sessions of runs that ended 30 days ago, except of the last ten runs of each open task.
    async fn sweep_task_sessions(&self, now: i64) -> Result<u64, DatabaseError> {
        const DOING: &str = "remove old sessions of tasks";
        let failed = query_error(DOING);
        let mut swept = 0;
        loop {
            let mut transaction = self.write(DOING).await?;
            let old: Vec<String> = sqlx::query_scalar(
                "SELECT key FROM sessions WHERE key GLOB 'agent:*:task:*' AND parent IS NULL AND has_work = 0
                   AND last_activity <= $1 AND key NOT IN (
                     SELECT session FROM (
                       SELECT r.session, ROW_NUMBER() OVER (PARTITION BY r.task ORDER BY r.queued DESC, r.id DESC) AS place
                       FROM task_runs r JOIN tasks t ON t.id = r.task WHERE t.completed IS NULL AND r.session <> '')
                       AS newest WHERE place <= $2)
                 LIMIT $3",
            )
            .bind(now.saturating_sub(SESSION_KEPT_MS))
            .bind(KEPT_SESSIONS)
            .bind(BATCH)
            .fetch_all(&mut *transaction)
            .await
            .map_err(&failed)?;
            if old.is_empty() {
                return Ok(swept);
            }
            retention::remove_sessions(&mut transaction, DOING, &old).await?;
            transaction.commit().await.map_err(&failed)?;
            swept += old.len() as u64;
        }
    }
}

pub(super) async fn insert_run(
    connection: &mut SqliteConnection,
    run: &NewTaskRun,
    now: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO task_runs (id, task, scheduled_at, snapshot, state, epoch, session, queued, cost)
         VALUES ($1, $2, $3, $4, 'queued', 0, $5, $6, 0) ON CONFLICT (task, scheduled_at) DO NOTHING",
    )
    .bind(&run.id)
    .bind(&run.task)
    .bind(run.scheduled_at)
    .bind(&run.snapshot)
    .bind(&run.session)
    .bind(now)
    .execute(connection)
    .await
    .map(drop)
}

/// Stores the row of an occurrence without a run.
async fn insert_occurrence(
    connection: &mut SqliteConnection,
    task: &str,
    occurrence: &TaskOccurrence,
    now: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO task_runs (id, task, scheduled_at, snapshot, state, epoch, session, queued, ended, error, cost)
         VALUES ($1, $2, $3, '{}', $4, 0, '', $5, $5, $6, 0) ON CONFLICT (task, scheduled_at) DO NOTHING",
    )
    .bind(&occurrence.id)
    .bind(task)
    .bind(occurrence.scheduled_at)
    .bind(occurrence.state)
    .bind(now)
    .bind(&occurrence.reason)
    .execute(connection)
    .await
    .map(drop)
}

fn task_run(row: &SqliteRow) -> TaskRunRow {
    TaskRunRow {
        id: row.get("id"),
        task: row.get("task"),
        scheduled_at: row.get("scheduled_at"),
        snapshot: row.get("snapshot"),
        state: row.get("state"),
        owner: row.get("owner"),
        epoch: row.get("epoch"),
        session: row.get("session"),
        queued: row.get("queued"),
        started: row.get("started"),
        ended: row.get("ended"),
        result: row.get("result"),
        error: row.get("error"),
        cost: row.get("cost"),
    }
}
