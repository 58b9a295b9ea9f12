//! The pages that tasks watch.

use sqlx::Row;

use crate::database::task_runs::{NewTaskRun, insert_run};
use crate::database::{Database, DatabaseError, query_error};

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

    /// Removes the baseline of a page. The next look stores a new one.
    pub async fn forget_watch(&self, task: &str) -> Result<(), DatabaseError> {
        sqlx::query("DELETE FROM watches WHERE task = $1")
            .bind(task)
            .execute(&self.writer)
            .await
            .map(drop)
            .map_err(query_error("remove the baseline of a page"))
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
}
