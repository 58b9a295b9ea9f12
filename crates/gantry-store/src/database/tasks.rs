//! Tasks, their runs and the pages they watch. A definition and its runtime state are different rows, and every write of a
//! run names its owner and epoch, so that a process that lost a run cannot change it.

use gantry_protocol::{TaskPriority, TaskStatus};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::database::{Database, DatabaseError, query_error};

/// The most tasks that are not final.
const MAX_TASKS: i64 = 10_000;
/// Runs that are kept of each task.
const KEPT_RUNS: i64 = 100;
/// How long a final task is kept.
const KEPT_MS: i64 = 365 * 24 * 3600 * 1000;
/// Subtasks of subtasks, and so on.
const MAX_DEPTH: i64 = 10;

const COLUMNS: &str = "t.id, t.rev, t.agent, t.parent, t.scope, t.kind, t.status, t.priority, t.due, t.assignee, t.title, \
    t.definition, t.authority, t.confirmed_by, t.created, t.updated, t.completed, s.next_at, s.errors, s.last_run_at, \
    s.last_status, s.last_result, EXISTS (SELECT 1 FROM task_runs r WHERE r.task = t.id AND r.state IN ('queued', \
    'running', 'parked')) AS running";
const FROM: &str = "FROM tasks t JOIN task_state s ON s.task = t.id";
const RUN: &str = "id, task, scheduled_at, snapshot, state, owner, epoch, session, queued, started, ended, result, error, cost";

/// A task with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    pub id: String,
    pub rev: i64,
    pub agent: String,
    pub parent: Option<String>,
    pub scope: String,
    pub kind: String,
    pub status: String,
    pub priority: i64,
    pub due: Option<String>,
    pub assignee: Option<String>,
    pub title: String,
    pub definition: String,
    pub authority: String,
    pub confirmed_by: Option<String>,
    pub created: i64,
    pub updated: i64,
    pub completed: Option<i64>,
    pub next_at: Option<i64>,
    pub errors: i64,
    pub last_run_at: Option<i64>,
    pub last_status: Option<String>,
    pub last_result: Option<String>,
    /// A run of it is queued, running or parked.
    pub running: bool,
}

/// Which tasks to list. `None` does not limit.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// One of these scopes.
    pub scopes: Option<Vec<String>>,
    pub statuses: Vec<TaskStatus>,
    /// The first and the last due date.
    pub due: Option<(String, String)>,
    pub assignee: Option<String>,
    pub limit: u32,
}

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
}

/// The baseline of a watched page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRow {
    pub etag: Option<String>,
    pub modified: Option<String>,
    pub hash: String,
    pub text: String,
    pub checked: i64,
}

impl Database {
    /// Stores a task.
    pub async fn add_task(&self, task: &TaskRow) -> Result<(), DatabaseError> {
        const DOING: &str = "store the task";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let open: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM tasks WHERE status IN ('open', 'in_progress')")
                .fetch_one(&mut *transaction)
                .await
                .map_err(&failed)?;
        if open >= MAX_TASKS {
            return Err(DatabaseError::Refused(format!(
                "there are already {MAX_TASKS} open tasks; complete or cancel some"
            )));
        }
        if let Some(parent) = &task.parent {
            let depth: i64 = sqlx::query_scalar(
                "WITH RECURSIVE above (id, depth) AS (SELECT $1, 1 UNION ALL
                   SELECT t.parent, above.depth + 1 FROM tasks t JOIN above ON t.id = above.id
                   WHERE t.parent IS NOT NULL AND above.depth < $2) SELECT MAX(depth) FROM above",
            )
            .bind(parent)
            .bind(MAX_DEPTH + 1)
            .fetch_one(&mut *transaction)
            .await
            .map_err(&failed)?;
            if depth > MAX_DEPTH {
                return Err(DatabaseError::Refused(format!(
                    "subtasks may be nested at most {MAX_DEPTH} levels deep"
                )));
            }
        }
        sqlx::query(
            "INSERT INTO tasks (id, rev, agent, parent, scope, kind, status, priority, due, assignee, title, definition,
               authority, confirmed_by, created, updated, completed)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
        )
        .bind(&task.id)
        .bind(task.rev)
        .bind(&task.agent)
        .bind(&task.parent)
        .bind(&task.scope)
        .bind(&task.kind)
        .bind(&task.status)
        .bind(task.priority)
        .bind(&task.due)
        .bind(&task.assignee)
        .bind(&task.title)
        .bind(&task.definition)
        .bind(&task.authority)
        .bind(&task.confirmed_by)
        .bind(task.created)
        .bind(task.updated)
        .bind(task.completed)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        sqlx::query("INSERT INTO task_state (task, next_at, errors) VALUES ($1, $2, 0)")
            .bind(&task.id)
            .bind(task.next_at)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Returns the tasks whose ids begin with `prefix`, at most three.
    pub async fn find_tasks(&self, prefix: &str) -> Result<Vec<TaskRow>, DatabaseError> {
        let statement =
            format!("SELECT {COLUMNS} {FROM} WHERE t.id >= $1 AND t.id < $2 ORDER BY t.id LIMIT 3");
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(prefix)
            .bind(format!("{prefix}\u{10ffff}"))
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("find the task"))?;
        Ok(rows.iter().map(task).collect())
    }

    pub async fn task(&self, id: &str) -> Result<Option<TaskRow>, DatabaseError> {
        let statement = format!("SELECT {COLUMNS} {FROM} WHERE t.id = $1");
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error("read the task"))?;
        Ok(row.as_ref().map(task))
    }

    /// Returns matching tasks by priority and due date, and the number of all that match.
    pub async fn list_tasks(&self, filter: &TaskFilter) -> Result<(Vec<TaskRow>, u64), DatabaseError> {
        const DOING: &str = "list the tasks";
        let scopes = filter.scopes.as_ref().map(|scopes| super::to_json(DOING, scopes)).transpose()?;
        let statuses: Vec<&str> = filter.statuses.iter().map(|status| status.name()).collect();
        let statuses = super::to_json(DOING, &statuses)?;
        let (first, last) = filter.due.clone().unzip();
        let matches = "WHERE ($1 IS NULL OR t.scope IN (SELECT value FROM json_each($1)))
            AND t.status IN (SELECT value FROM json_each($2))
            AND ($3 IS NULL OR (t.due >= $3 AND t.due <= $4)) AND ($5 IS NULL OR t.assignee = $5)";
        let listed = format!(
            "SELECT {COLUMNS} {FROM} {matches} ORDER BY t.priority, CASE WHEN t.due IS NULL THEN 1 ELSE 0 END, t.due, t.created, t.id LIMIT $6"
        );
        let counted = format!("SELECT COUNT(*) {FROM} {matches}");
        let rows = sqlx::query(sqlx::AssertSqlSafe(listed))
            .bind(&scopes)
            .bind(&statuses)
            .bind(&first)
            .bind(&last)
            .bind(&filter.assignee)
            .bind(filter.limit)
            .fetch_all(&self.readers)
            .await
            .map_err(query_error(DOING))?;
        let total: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(counted))
            .bind(&scopes)
            .bind(&statuses)
            .bind(&first)
            .bind(&last)
            .bind(&filter.assignee)
            .fetch_one(&self.readers)
            .await
            .map_err(query_error(DOING))?;
        Ok((rows.iter().map(task).collect(), u64::try_from(total).unwrap_or(0)))
    }

    /// Stores a changed definition and the next run, if nobody changed it since it was read. A final status also counts for
    /// the open subtasks. Returns the ids of all tasks whose status became final, or `None` if the task had changed.
    pub async fn update_task(&self, changed: &TaskRow) -> Result<Option<Vec<String>>, DatabaseError> {
        const DOING: &str = "change the task";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let updated = sqlx::query(
            "UPDATE tasks SET rev = rev + 1, agent = $3, status = $4, priority = $5, due = $6, assignee = $7, title = $8,
               definition = $9, authority = $10, confirmed_by = $11, updated = $12, completed = $13
             WHERE id = $1 AND rev = $2",
        )
        .bind(&changed.id)
        .bind(changed.rev)
        .bind(&changed.agent)
        .bind(&changed.status)
        .bind(changed.priority)
        .bind(&changed.due)
        .bind(&changed.assignee)
        .bind(&changed.title)
        .bind(&changed.definition)
        .bind(&changed.authority)
        .bind(&changed.confirmed_by)
        .bind(changed.updated)
        .bind(changed.completed)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        if updated.rows_affected() == 0 {
            return Ok(None);
        }
        sqlx::query("UPDATE task_state SET next_at = $2 WHERE task = $1")
            .bind(&changed.id)
            .bind(changed.next_at)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        let mut ended = Vec::new();
        if changed.completed.is_some() {
            ended = end_subtasks(&mut transaction, changed).await.map_err(&failed)?;
            ended.push(changed.id.clone());
        }
        transaction.commit().await.map_err(failed)?;
        Ok(Some(ended))
    }

    /// Returns confirmed open tasks that are due, the longest due first.
    pub async fn due_tasks(&self, now: i64, limit: u32) -> Result<Vec<TaskRow>, DatabaseError> {
        let statement = format!(
            "SELECT {COLUMNS} {FROM} WHERE s.next_at <= $1 AND t.status IN ('open', 'in_progress')
               AND t.confirmed_by IS NOT NULL ORDER BY s.next_at, t.id LIMIT $2"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(now)
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("read the due tasks"))?;
        Ok(rows.iter().map(task).collect())
    }

    /// Returns when the next confirmed task is due.
    pub async fn next_task(&self) -> Result<Option<i64>, DatabaseError> {
        sqlx::query_scalar(
            "SELECT MIN(s.next_at) FROM task_state s JOIN tasks t ON t.id = s.task
             WHERE t.status IN ('open', 'in_progress') AND t.confirmed_by IS NOT NULL",
        )
        .fetch_one(&self.readers)
        .await
        .map_err(query_error("read when the next task is due"))
    }

    /// Moves a task to its next time, and stores the run of the present one. Does nothing and returns false if another
    /// process did so first.
    pub async fn admit_task(
        &self,
        id: &str,
        expected: i64,
        next_at: Option<i64>,
        run: Option<&NewTaskRun>,
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
        let statement = format!(
            "UPDATE task_runs SET state = 'running', owner = $1, epoch = epoch + 1, started = $2 WHERE id =
               (SELECT id FROM task_runs WHERE state = 'queued' ORDER BY queued, id LIMIT 1) AND state = 'queued'
             RETURNING {RUN}"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(owner)
            .bind(now)
            .fetch_optional(&self.writer)
            .await
            .map_err(query_error("take a run of a task"))?;
        Ok(row.as_ref().map(task_run))
    }

    /// Takes over the unfinished runs of earlier processes.
    pub async fn adopt_task_runs(&self, owner: &str) -> Result<Vec<TaskRunRow>, DatabaseError> {
        let statement = format!(
            "UPDATE task_runs SET owner = $1, epoch = epoch + 1, state = 'running'
             WHERE state IN ('running', 'parked') AND owner <> $1 RETURNING {RUN}"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(owner)
            .fetch_all(&self.writer)
            .await
            .map_err(query_error("take over runs of tasks"))?;
        Ok(rows.iter().map(task_run).collect())
    }

    pub async fn park_task_run(&self, run: &TaskRunRow, parked: bool) -> Result<bool, DatabaseError> {
        let state = if parked { "parked" } else { "running" };
        let changed = sqlx::query(
            "UPDATE task_runs SET state = $4 WHERE id = $1 AND owner = $2 AND epoch = $3 AND state IN ('running', 'parked')",
        )
        .bind(&run.id)
        .bind(&run.owner)
        .bind(run.epoch)
        .bind(state)
        .execute(&self.writer)
        .await
        .map_err(query_error("change the state of a run"))?;
        Ok(changed.rows_affected() > 0)
    }

    /// Records the end of a run and its meaning for the task. Returns false if this process lost the run.
    pub async fn finish_task_run(&self, end: &FinishedTaskRun<'_>, now: i64) -> Result<bool, DatabaseError> {
        const DOING: &str = "record the end of a run";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let finished = sqlx::query(
            "UPDATE task_runs SET state = $4, ended = $5, result = $6, error = $7, cost = $8
             WHERE id = $1 AND owner = $2 AND epoch = $3 AND state IN ('running', 'parked')",
        )
        .bind(&end.run.id)
        .bind(&end.run.owner)
        .bind(end.run.epoch)
        .bind(end.state)
        .bind(now)
        .bind(&end.result)
        .bind(&end.error)
        .bind(end.cost)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        if finished.rows_affected() == 0 {
            return Ok(false);
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

    pub async fn watch(&self, task: &str) -> Result<Option<WatchRow>, DatabaseError> {
        let row = sqlx::query("SELECT etag, modified, hash, text, checked FROM watches WHERE task = $1")
            .bind(task)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error("read the baseline of a page"))?;
        Ok(row.map(|row| WatchRow {
            etag: row.get("etag"),
            modified: row.get("modified"),
            hash: row.get("hash"),
            text: row.get("text"),
            checked: row.get("checked"),
        }))
    }

    /// Stores a new baseline and the run that its change starts, together.
    pub async fn record_watch(
        &self,
        task: &str,
        found: &WatchRow,
        run: Option<&NewTaskRun>,
    ) -> Result<(), DatabaseError> {
        const DOING: &str = "store the baseline of a page";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        sqlx::query(
            "INSERT INTO watches (task, etag, modified, hash, text, checked) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (task) DO UPDATE SET etag = excluded.etag, modified = excluded.modified, hash = excluded.hash,
               text = excluded.text, checked = excluded.checked",
        )
        .bind(task)
        .bind(&found.etag)
        .bind(&found.modified)
        .bind(&found.hash)
        .bind(&found.text)
        .bind(found.checked)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        sqlx::query("UPDATE task_state SET errors = 0 WHERE task = $1 AND errors > 0")
            .bind(task)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        if let Some(run) = run {
            insert_run(&mut transaction, run, found.checked).await.map_err(&failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Counts a failed look at a page and sets the next one. Returns the number of failures in a row.
    pub async fn record_watch_failure(
        &self,
        task: &str,
        error: &str,
        next_at: i64,
        now: i64,
    ) -> Result<i64, DatabaseError> {
        sqlx::query_scalar(
            "UPDATE task_state SET errors = errors + 1, next_at = $3, last_run_at = $4, last_status = 'error',
               last_result = $2 WHERE task = $1 RETURNING errors",
        )
        .bind(task)
        .bind(error)
        .bind(next_at)
        .bind(now)
        .fetch_one(&self.writer)
        .await
        .map_err(query_error("record a failed look at a page"))
    }

    /// Removes old runs, and final tasks past their retention.
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
        Ok(removed)
    }
}

/// Ends the open tasks below one that ended.
async fn end_subtasks(
    connection: &mut SqliteConnection,
    ended: &TaskRow,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "WITH RECURSIVE below (id) AS (SELECT id FROM tasks WHERE parent = $1 UNION
           SELECT t.id FROM tasks t JOIN below ON t.parent = below.id)
         UPDATE tasks SET status = $2, completed = $3, updated = $3, rev = rev + 1
         WHERE id IN (SELECT id FROM below) AND status IN ('open', 'in_progress') RETURNING id",
    )
    .bind(&ended.id)
    .bind(&ended.status)
    .bind(ended.completed)
    .fetch_all(connection)
    .await
}

async fn insert_run(
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

fn task(row: &SqliteRow) -> TaskRow {
    TaskRow {
        id: row.get("id"),
        rev: row.get("rev"),
        agent: row.get("agent"),
        parent: row.get("parent"),
        scope: row.get("scope"),
        kind: row.get("kind"),
        status: row.get("status"),
        priority: row.get("priority"),
        due: row.get("due"),
        assignee: row.get("assignee"),
        title: row.get("title"),
        definition: row.get("definition"),
        authority: row.get("authority"),
        confirmed_by: row.get("confirmed_by"),
        created: row.get("created"),
        updated: row.get("updated"),
        completed: row.get("completed"),
        next_at: row.get("next_at"),
        errors: row.get("errors"),
        last_run_at: row.get("last_run_at"),
        last_status: row.get("last_status"),
        last_result: row.get("last_result"),
        running: row.get("running"),
    }
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

/// The number under which a priority is stored.
pub fn priority_rank(priority: TaskPriority) -> i64 {
    priority as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    fn row(id: &str, parent: Option<&str>) -> TaskRow {
        TaskRow {
            id: id.to_owned(),
            rev: 1,
            agent: "main".to_owned(),
            parent: parent.map(str::to_owned),
            scope: "global".to_owned(),
            kind: "scheduled".to_owned(),
            status: "open".to_owned(),
            priority: 2,
            due: None,
            assignee: None,
            title: id.to_owned(),
            definition: "{}".to_owned(),
            authority: "{}".to_owned(),
            confirmed_by: Some("operator".to_owned()),
            created: 1,
            updated: 1,
            completed: None,
            next_at: Some(100),
            errors: 0,
            last_run_at: None,
            last_status: None,
            last_result: None,
            running: false,
        }
    }

    fn run(id: &str, at: i64) -> NewTaskRun {
        NewTaskRun {
            id: id.to_owned(),
            task: "a".to_owned(),
            scheduled_at: at,
            snapshot: "{}".to_owned(),
            session: format!("agent:main:task:{id}"),
        }
    }

    #[tokio::test]
    async fn one_of_two_processes_admits_and_runs_a_due_task() {
        let (_folder, database) = database().await;
        database.add_task(&row("a", None)).await.unwrap();
        assert_eq!(database.next_task().await.unwrap(), Some(100));
        assert!(database.admit_task("a", 100, Some(200), Some(&run("r1", 100)), 100).await.unwrap());
        assert!(!database.admit_task("a", 100, Some(200), Some(&run("r2", 100)), 100).await.unwrap());
        let claimed = database.claim_task_run("one", 101).await.unwrap().unwrap();
        assert_eq!((claimed.id.as_str(), claimed.epoch), ("r1", 1));
        assert_eq!(database.claim_task_run("two", 101).await.unwrap(), None);
        assert_eq!(database.next_task().await.unwrap(), Some(200));
    }

    #[tokio::test]
    async fn process_that_lost_a_run_cannot_finish_it() {
        let (_folder, database) = database().await;
        database.add_task(&row("a", None)).await.unwrap();
        database.admit_task("a", 100, None, Some(&run("r1", 100)), 100).await.unwrap();
        let lost = database.claim_task_run("one", 101).await.unwrap().unwrap();
        let adopted = database.adopt_task_runs("two").await.unwrap();
        let end = |run| FinishedTaskRun {
            run,
            state: "ok",
            result: Some("done".to_owned()),
            error: None,
            cost: 5,
            status: Some(TaskStatus::Completed),
            errors: 0,
            ends: true,
        };
        assert!(!database.finish_task_run(&end(&lost), 102).await.unwrap());
        assert_eq!(database.task("a").await.unwrap().unwrap().status, "open");
        assert!(database.finish_task_run(&end(&adopted[0]), 102).await.unwrap());
        let task = database.task("a").await.unwrap().unwrap();
        assert_eq!(
            (task.status.as_str(), task.last_result.as_deref(), task.running),
            ("completed", Some("done"), false)
        );
        assert!(database.adopt_task_runs("three").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn final_status_reaches_open_subtasks_of_any_depth() {
        let (_folder, database) = database().await;
        for (id, parent) in [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", None)] {
            database.add_task(&row(id, parent)).await.unwrap();
        }
        let mut changed = database.task("a").await.unwrap().unwrap();
        (changed.status, changed.completed) = ("completed".to_owned(), Some(9));
        let mut ended = database.update_task(&changed).await.unwrap().unwrap();
        ended.sort();
        assert_eq!(ended, ["a", "b", "c"]);
        assert_eq!(database.update_task(&changed).await.unwrap(), None, "it has changed since it was read");
        let filter = TaskFilter { statuses: vec![TaskStatus::Completed], limit: 2, ..TaskFilter::default() };
        let (listed, total) = database.list_tasks(&filter).await.unwrap();
        assert_eq!((listed.len(), total), (2, 3));
    }

    #[tokio::test]
    async fn subtasks_may_be_nested_ten_levels_deep() {
        let (_folder, database) = database().await;
        database.add_task(&row("0", None)).await.unwrap();
        for level in 1..=MAX_DEPTH {
            let parent = (level - 1).to_string();
            database.add_task(&row(&level.to_string(), Some(&parent))).await.unwrap();
        }
        let refused = database.add_task(&row("x", Some("10"))).await.unwrap_err();
        assert!(refused.to_string().contains("at most 10 levels"), "{refused}");
    }
}
