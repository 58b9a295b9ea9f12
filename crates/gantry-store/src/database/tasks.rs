//! Tasks. A definition and its runtime state are different rows.

use gantry_protocol::{TaskPriority, TaskStatus};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::database::{Database, DatabaseError, placeholders, query_error};

/// The most tasks that are not final.
const MAX_TASKS: i64 = 10_000;
/// Subtasks of subtasks, and so on.
const MAX_DEPTH: i64 = 10;

const COLUMNS: &str = "t.id, t.rev, t.agent, t.parent, t.scope, t.kind, t.status, t.priority, t.due, t.assignee, t.title, \
    t.definition, t.authority, t.confirmed_by, t.created, t.updated, t.completed, s.next_at, s.errors, s.last_run_at, \
    s.last_status, s.last_result, EXISTS (SELECT 1 FROM task_runs r WHERE r.task = t.id AND r.state IN ('queued', \
    'running', 'parked')) AS running";
const FROM: &str = "FROM tasks t JOIN task_state s ON s.task = t.id";

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

    /// Returns the tasks with this title, whatever its case, the open ones first, at most six.
    pub async fn tasks_titled(&self, title: &str) -> Result<Vec<TaskRow>, DatabaseError> {
        let statement = format!(
            "SELECT {COLUMNS} {FROM} WHERE lower(t.title) = lower($1)
             ORDER BY CASE WHEN t.completed IS NULL THEN 0 ELSE 1 END, t.created DESC, t.id LIMIT 6"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(title)
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("find the task"))?;
        Ok(rows.iter().map(task).collect())
    }

    /// Returns the tasks whose ids begin with `prefix`, at most six.
    pub async fn find_tasks(&self, prefix: &str) -> Result<Vec<TaskRow>, DatabaseError> {
        let statement =
            format!("SELECT {COLUMNS} {FROM} WHERE t.id >= $1 AND t.id < $2 ORDER BY t.id LIMIT 6");
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
        let statuses: Vec<&str> = filter.statuses.iter().map(|status| status.name()).collect();
        let scopes = filter.scopes.as_deref();
        let scope_in = match scopes {
            Some(scopes) => format!("t.scope IN ({})", placeholders(5 + statuses.len(), scopes.len())),
            None => "TRUE".to_owned(),
        };
        let matches = format!(
            "WHERE {scope_in} AND t.status IN ({}) AND ($1 IS NULL OR (t.due >= $1 AND t.due <= $2))
               AND ($3 IS NULL OR t.assignee = $3)",
            placeholders(5, statuses.len())
        );
        let listed = format!(
            "SELECT {COLUMNS}, COUNT(*) OVER () AS total {FROM} {matches} ORDER BY t.priority,
               CASE WHEN t.due IS NULL THEN 1 ELSE 0 END, t.due, t.created, t.id LIMIT $4"
        );
        let (first, last) = filter.due.clone().unzip();
        let mut query = sqlx::query(sqlx::AssertSqlSafe(listed))
            .bind(first)
            .bind(last)
            .bind(&filter.assignee)
            .bind(filter.limit);
        for text in statuses.into_iter().chain(scopes.into_iter().flatten().map(String::as_str)) {
            query = query.bind(text);
        }
        let rows = query.fetch_all(&self.readers).await.map_err(query_error(DOING))?;
        let total: i64 = rows.first().map_or(0, |row| row.get("total"));
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

/// The number under which a priority is stored.
pub fn priority_rank(priority: TaskPriority) -> i64 {
    priority as i64
}

#[cfg(test)]
mod tests;
