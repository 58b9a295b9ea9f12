//! Processes: recorded calls of a session, which can be promoted to a pipeline.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::database::{Database, DatabaseError, from_json, query_error, to_json};

/// The most processes of one agent.
pub const MAX_PROCESSES: i64 = 500;
/// The longest list that one query returns.
const MAX_LISTED: u32 = 1_000;

/// A stored process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRow {
    pub id: String,
    pub agent: String,
    pub name: String,
    pub description: String,
    /// Steps and parameters, as JSON.
    pub record: String,
    pub labels: Vec<String>,
    /// The session whose calls were recorded.
    pub session: String,
    pub created: i64,
    /// The pipeline that it was promoted to.
    pub pipeline: Option<String>,
}

const PROCESS: &str = "id, agent, name, description, record, labels, session, created, pipeline";

impl Database {
    /// Stores a process. One with the same id stays as it is.
    pub async fn add_process(&self, row: &ProcessRow) -> Result<(), DatabaseError> {
        const DOING: &str = "store the process";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM processes WHERE agent = $1")
            .bind(&row.agent)
            .fetch_one(&mut *transaction)
            .await
            .map_err(&failed)?;
        if count >= MAX_PROCESSES {
            return Err(DatabaseError::Refused(format!(
                "the agent {:?} already has {MAX_PROCESSES} processes; `gantry processes remove ID` removes one",
                row.agent
            )));
        }
        sqlx::query(
            "INSERT INTO processes (id, agent, name, description, record, labels, session, created)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
        )
        .bind(&row.id)
        .bind(&row.agent)
        .bind(&row.name)
        .bind(&row.description)
        .bind(&row.record)
        .bind(to_json(DOING, &row.labels)?)
        .bind(&row.session)
        .bind(row.created)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        transaction.commit().await.map_err(&failed)
    }

    /// Returns the processes, newest first.
    pub async fn list_processes(&self) -> Result<Vec<ProcessRow>, DatabaseError> {
        let statement = format!("SELECT {PROCESS} FROM processes ORDER BY created DESC, id LIMIT $1");
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(MAX_LISTED)
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("list the processes"))?;
        rows.iter().map(process_row).collect()
    }

    /// Records the pipeline that a process was promoted to. Returns false if it has one already.
    pub async fn promote_process(&self, id: &str, pipeline: &str) -> Result<bool, DatabaseError> {
        let changed = sqlx::query("UPDATE processes SET pipeline = $2 WHERE id = $1 AND pipeline IS NULL")
            .bind(id)
            .bind(pipeline)
            .execute(&self.writer)
            .await
            .map_err(query_error("promote the process"))?;
        Ok(changed.rows_affected() > 0)
    }

    /// Removes a process. A pipeline that it was promoted to stays.
    pub async fn remove_process(&self, id: &str) -> Result<bool, DatabaseError> {
        let removed = sqlx::query("DELETE FROM processes WHERE id = $1")
            .bind(id)
            .execute(&self.writer)
            .await
            .map_err(query_error("remove the process"))?;
        Ok(removed.rows_affected() > 0)
    }
}

fn process_row(row: &SqliteRow) -> Result<ProcessRow, DatabaseError> {
    const DOING: &str = "read the process";
    let read = || {
        Ok(ProcessRow {
            id: row.try_get(0)?,
            agent: row.try_get(1)?,
            name: row.try_get(2)?,
            description: row.try_get(3)?,
            record: row.try_get(4)?,
            labels: Vec::new(),
            session: row.try_get(6)?,
            created: row.try_get(7)?,
            pipeline: row.try_get(8)?,
        })
    };
    let read = read().map_err(query_error(DOING))?;
    let labels: String = row.try_get(5).map_err(query_error(DOING))?;
    Ok(ProcessRow { labels: from_json(DOING, &labels)?, ..read })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    #[tokio::test]
    async fn process_is_promoted_once() {
        let (_folder, database) = database().await;
        let row = ProcessRow {
            id: "a".into(),
            agent: "main".into(),
            name: "n".into(),
            description: "d".into(),
            record: "{}".into(),
            labels: vec!["untrusted".into()],
            session: "agent:main:main".into(),
            created: 1,
            pipeline: None,
        };
        database.add_process(&row).await.unwrap();
        assert_eq!(database.list_processes().await.unwrap(), [row]);
        assert!(database.promote_process("a", "p").await.unwrap());
        assert!(!database.promote_process("a", "q").await.unwrap());
        assert_eq!(database.list_processes().await.unwrap()[0].pipeline.as_deref(), Some("p"));
        assert!(database.remove_process("a").await.unwrap());
        assert!(!database.remove_process("a").await.unwrap());
    }
}
