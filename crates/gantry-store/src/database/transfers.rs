//! File transfers, stored so that a transfer can resume after a crash.

use serde::Serialize;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::database::{Database, DatabaseError, query_error};

/// How long a transfer is kept after its end, or after its last byte if it did not end.
const KEPT_MS: i64 = 7 * 24 * 3600 * 1000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TransferRow {
    pub id: String,
    pub agent: String,
    pub principal: String,
    /// The caller's autonomy: `supervised`, `guided` or `autonomous`.
    pub autonomy: String,
    pub source: String,
    pub destination: String,
    pub state: TransferState,
    /// The total number of bytes, if known.
    pub size: Option<u64>,
    pub bytes_done: u64,
    /// Which entries of a directory have arrived, in the driver's format.
    pub ledger: Option<String>,
    /// Approvals and further rules for the transfer, in the driver's format.
    pub standing: Option<String>,
    pub error: Option<String>,
    pub created: i64,
    pub updated: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferState {
    Running,
    Done,
    Failed,
}

impl TransferState {
    fn name(self) -> &'static str {
        match self {
            TransferState::Running => "running",
            TransferState::Done => "done",
            TransferState::Failed => "failed",
        }
    }

    fn of(name: &str) -> TransferState {
        match name {
            "running" => TransferState::Running,
            "done" => TransferState::Done,
            _ => TransferState::Failed,
        }
    }
}

/// A new transfer.
#[derive(Debug, Clone)]
pub struct NewTransfer {
    pub id: String,
    pub agent: String,
    pub principal: String,
    pub autonomy: String,
    pub source: String,
    pub destination: String,
    pub standing: Option<String>,
}

impl Database {
    pub async fn insert_transfer(&self, new: &NewTransfer, now: i64) -> Result<(), DatabaseError> {
        sqlx::query(
            "INSERT INTO transfers (id, agent, principal, source, destination, state, bytes_done, created, updated, autonomy, standing)
             VALUES ($1, $2, $3, $4, $5, 'running', 0, $6, $6, $7, $8)",
        )
        .bind(&new.id)
        .bind(&new.agent)
        .bind(&new.principal)
        .bind(&new.source)
        .bind(&new.destination)
        .bind(now)
        .bind(&new.autonomy)
        .bind(&new.standing)
        .execute(&self.writer)
        .await
        .map_err(query_error("record the transfer"))?;
        Ok(())
    }

    /// Stores the progress of a running transfer. A transfer that has ended is not changed.
    pub async fn transfer_progress(
        &self,
        id: &str,
        size: Option<u64>,
        bytes_done: u64,
        ledger: Option<&str>,
        now: i64,
    ) -> Result<(), DatabaseError> {
        sqlx::query(
            "UPDATE transfers SET size = COALESCE($2, size), bytes_done = $3, ledger = COALESCE($4, ledger),
             updated = $5 WHERE id = $1 AND state = 'running'",
        )
        .bind(id)
        .bind(size.map(signed))
        .bind(signed(bytes_done))
        .bind(ledger)
        .bind(now)
        .execute(&self.writer)
        .await
        .map_err(query_error("note the transfer's progress"))?;
        Ok(())
    }

    /// Ends a transfer, either done with its number of bytes or failed with a reason.
    pub async fn finish_transfer(
        &self,
        id: &str,
        outcome: Result<u64, &str>,
        now: i64,
    ) -> Result<(), DatabaseError> {
        let (state, bytes, error) = match outcome {
            Ok(bytes) => (TransferState::Done, Some(signed(bytes)), None),
            Err(reason) => (TransferState::Failed, None, Some(reason)),
        };
        sqlx::query(
            "UPDATE transfers SET state = $2, bytes_done = COALESCE($3, bytes_done), size = COALESCE($3, size),
             error = $4, updated = $5 WHERE id = $1 AND state = 'running'",
        )
        .bind(id)
        .bind(state.name())
        .bind(bytes)
        .bind(error)
        .bind(now)
        .execute(&self.writer)
        .await
        .map_err(query_error("end the transfer"))?;
        Ok(())
    }

    pub async fn transfer(&self, id: &str) -> Result<Option<TransferRow>, DatabaseError> {
        let row = sqlx::query("SELECT * FROM transfers WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error("read the transfer"))?;
        row.as_ref().map(transfer_row).transpose()
    }

    /// Returns the newest transfers, the newest first.
    pub async fn list_transfers(&self, limit: u32) -> Result<Vec<TransferRow>, DatabaseError> {
        let rows = sqlx::query("SELECT * FROM transfers ORDER BY created DESC, id DESC LIMIT $1")
            .bind(limit)
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("list the transfers"))?;
        rows.iter().map(transfer_row).collect()
    }

    /// Returns unfinished transfers, oldest first.
    pub async fn unfinished_transfers(&self) -> Result<Vec<TransferRow>, DatabaseError> {
        let rows = sqlx::query("SELECT * FROM transfers WHERE state = 'running' ORDER BY created, id")
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("list the unfinished transfers"))?;
        rows.iter().map(transfer_row).collect()
    }

    /// Removes transfers without activity for 7 days. Returns how many.
    pub async fn sweep_transfers(&self, now: i64) -> Result<u64, DatabaseError> {
        let swept = sqlx::query("DELETE FROM transfers WHERE updated <= $1")
            .bind(now - KEPT_MS)
            .execute(&self.writer)
            .await
            .map_err(query_error("sweep the transfers"))?;
        Ok(swept.rows_affected())
    }
}

/// Converts to SQLite's signed integers, which hold every file size.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn transfer_row(row: &SqliteRow) -> Result<TransferRow, DatabaseError> {
    let failed = query_error("read the transfer");
    let bytes = |value: i64| u64::try_from(value).unwrap_or(0);
    let size: Option<i64> = row.try_get("size").map_err(&failed)?;
    Ok(TransferRow {
        id: row.try_get("id").map_err(&failed)?,
        agent: row.try_get("agent").map_err(&failed)?,
        principal: row.try_get("principal").map_err(&failed)?,
        autonomy: row.try_get("autonomy").map_err(&failed)?,
        source: row.try_get("source").map_err(&failed)?,
        destination: row.try_get("destination").map_err(&failed)?,
        state: TransferState::of(row.try_get("state").map_err(&failed)?),
        size: size.map(bytes),
        bytes_done: bytes(row.try_get("bytes_done").map_err(&failed)?),
        ledger: row.try_get("ledger").map_err(&failed)?,
        standing: row.try_get("standing").map_err(&failed)?,
        error: row.try_get("error").map_err(&failed)?,
        created: row.try_get("created").map_err(&failed)?,
        updated: row.try_get("updated").map_err(&failed)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataDir;
    use crate::database::testing::database;

    fn new(id: &str, agent: &str) -> NewTransfer {
        NewTransfer {
            id: id.into(),
            agent: agent.into(),
            principal: "operator".into(),
            autonomy: "guided".into(),
            source: "a:/x".into(),
            destination: "gsv:y".into(),
            standing: None,
        }
    }

    #[tokio::test]
    async fn interrupted_transfer_is_found_after_a_restart() {
        let (folder, first) = database().await;
        first.insert_transfer(&new("t1", "main"), 1).await.unwrap();
        first.insert_transfer(&new("t2", "other"), 2).await.unwrap();
        first.transfer_progress("t1", Some(100), 40, Some("{}"), 3).await.unwrap();
        first.transfer_progress("t1", None, 60, None, 4).await.unwrap();
        drop(first);
        let database = Database::open(&DataDir::new(folder.path().join("data"))).await.unwrap();
        let unfinished = database.unfinished_transfers().await.unwrap();
        let [found, _] = unfinished.as_slice() else { panic!("{unfinished:?}") };
        assert_eq!(
            (found.id.as_str(), found.size, found.bytes_done, found.updated, found.autonomy.as_str()),
            ("t1", Some(100), 60, 4, "guided")
        );
        assert_eq!(found.ledger.as_deref(), Some("{}"));

        database.finish_transfer("t1", Ok(100), 5).await.unwrap();
        database.finish_transfer("t1", Err("late"), 6).await.unwrap();
        database.transfer_progress("t1", None, 7, None, 7).await.unwrap();
        let done = database.transfer("t1").await.unwrap().unwrap();
        assert_eq!(
            (done.state, done.bytes_done, done.error, done.updated),
            (TransferState::Done, 100, None, 5)
        );
        database.finish_transfer("t2", Err("disk full"), 8).await.unwrap();
        let failed = database.transfer("t2").await.unwrap().unwrap();
        assert_eq!((failed.state, failed.error.as_deref()), (TransferState::Failed, Some("disk full")));
        assert_eq!(database.unfinished_transfers().await.unwrap(), []);
        assert_eq!(database.sweep_transfers(KEPT_MS + 6).await.unwrap(), 1);
        assert!(database.transfer("t2").await.unwrap().is_some());
    }
}
