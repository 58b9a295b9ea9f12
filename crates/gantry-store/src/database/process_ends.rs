//! Ends of background processes that nodes report. Each is stored once, for 7 days.

use serde::Serialize;
use serde_json::Value;
use sqlx::Row;

use crate::database::{Database, DatabaseError, from_json, query_error, to_json};

const KEPT_MS: i64 = 7 * 24 * 3600 * 1000;
/// The limits per node. The oldest ends are removed first.
const MAX_PER_NODE: i64 = 10_000;
const MAX_BYTES_PER_NODE: i64 = 16 * 1024 * 1024;
const MAX_EVENT_BYTES: usize = 256 * 1024;
const MAX_ID_BYTES: usize = 256;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessEnd {
    pub node: String,
    pub event_id: String,
    pub recorded: i64,
    pub event: Value,
}

impl Database {
    /// Stores the end of a process. Returns `false` if it was stored before. It may be acknowledged after this returns.
    pub async fn record_process_end(
        &self,
        node: &str,
        event_id: &str,
        event: &Value,
        now: i64,
    ) -> Result<bool, DatabaseError> {
        const DOING: &str = "record the end of a process";
        let text = to_json(DOING, event)?;
        if event_id.is_empty() || event_id.len() > MAX_ID_BYTES || text.len() > MAX_EVENT_BYTES {
            return Err(DatabaseError::Refused(format!(
                "the report of a process's end needs an id of at most {MAX_ID_BYTES} bytes and has at most {MAX_EVENT_BYTES} bytes"
            )));
        }
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let added = sqlx::query(
            "INSERT INTO process_ends (node, event_id, recorded, event) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        )
        .bind(node)
        .bind(event_id)
        .bind(now)
        .bind(text)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?
        .rows_affected();
        if added > 0 {
            sqlx::query(
                "DELETE FROM process_ends WHERE node = $1 AND number <= (
                   SELECT number FROM process_ends WHERE node = $1 ORDER BY number DESC LIMIT 1 OFFSET $2)",
            )
            .bind(node)
            .bind(MAX_PER_NODE)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
            sqlx::query(
                "DELETE FROM process_ends WHERE node = $1 AND number <= (
                   SELECT MAX(number) FROM (
                     SELECT number, SUM(OCTET_LENGTH(event)) OVER (ORDER BY number DESC) AS bytes
                     FROM process_ends WHERE node = $1)
                   WHERE bytes > $2)",
            )
            .bind(node)
            .bind(MAX_BYTES_PER_NODE)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        }
        transaction.commit().await.map_err(&failed)?;
        Ok(added > 0)
    }

    /// Returns the newest ends of one node or all nodes, newest first.
    pub async fn list_process_ends(
        &self,
        node: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ProcessEnd>, DatabaseError> {
        const DOING: &str = "list the ends of processes";
        let failed = query_error(DOING);
        let rows = sqlx::query(
            "SELECT node, event_id, recorded, event FROM process_ends
             WHERE $1 IS NULL OR node = $1 ORDER BY number DESC LIMIT $2",
        )
        .bind(node)
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .map_err(&failed)?;
        rows.iter()
            .map(|row| {
                Ok(ProcessEnd {
                    node: row.try_get(0).map_err(&failed)?,
                    event_id: row.try_get(1).map_err(&failed)?,
                    recorded: row.try_get(2).map_err(&failed)?,
                    event: from_json(DOING, row.try_get(3).map_err(&failed)?)?,
                })
            })
            .collect()
    }

    /// Removes ends older than 7 days; returns how many.
    pub async fn sweep_process_ends(&self, now: i64) -> Result<u64, DatabaseError> {
        let statement = "DELETE FROM process_ends WHERE number IN
               (SELECT number FROM process_ends WHERE recorded <= $1 LIMIT $2)";
        self.sweep_in_batches("sweep the ends of processes", statement, now - KEPT_MS).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::database::testing::database;

    #[tokio::test]
    async fn each_end_is_stored_once_for_a_week() {
        let (_folder, database) = database().await;
        for (node, id, now, new) in
            [("a", "1", 1, true), ("a", "1", 2, false), ("b", "1", 3, true), ("a", "2", KEPT_MS, true)]
        {
            let event = json!({"exitCode": now});
            assert_eq!(database.record_process_end(node, id, &event, now).await.unwrap(), new, "{node} {id}");
        }
        let of_a = database.list_process_ends(Some("a"), 10).await.unwrap();
        let seen: Vec<_> = of_a.iter().map(|end| (end.event_id.as_str(), &end.event["exitCode"])).collect();
        assert_eq!(seen, [("2", &json!(KEPT_MS)), ("1", &json!(1))]);
        assert_eq!(database.list_process_ends(None, 2).await.unwrap().len(), 2);
        assert_eq!(database.sweep_process_ends(KEPT_MS + 3).await.unwrap(), 2);
        assert_eq!(database.list_process_ends(None, 9).await.unwrap().len(), 1);
        let long = json!("x".repeat(MAX_EVENT_BYTES));
        assert!(matches!(
            database.record_process_end("a", "9", &long, 1).await,
            Err(DatabaseError::Refused(_))
        ));
    }

    #[tokio::test]
    async fn ends_of_a_node_are_bounded_in_bytes() {
        let (_folder, database) = database().await;
        let event = json!("x".repeat(MAX_EVENT_BYTES - 2));
        let room = usize::try_from(MAX_BYTES_PER_NODE).unwrap() / MAX_EVENT_BYTES;
        for number in 0..room + 3 {
            assert!(database.record_process_end("a", &number.to_string(), &event, 1).await.unwrap());
        }
        assert!(database.record_process_end("b", "1", &event, 1).await.unwrap());
        let kept = database.list_process_ends(Some("a"), 1_000).await.unwrap();
        assert_eq!((kept.len(), &*kept[0].event_id), (room, &*(room + 2).to_string()));
        assert_eq!(database.list_process_ends(Some("b"), 9).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn ends_of_a_node_are_bounded_in_number() {
        let (_folder, database) = database().await;
        let mut transaction = database.write("test").await.unwrap();
        for number in 0..MAX_PER_NODE {
            sqlx::query(
                "INSERT INTO process_ends (node, event_id, recorded, event) VALUES ('a', $1, 1, '{}')",
            )
            .bind(format!("old-{number}"))
            .execute(&mut *transaction)
            .await
            .unwrap();
        }
        transaction.commit().await.unwrap();
        assert!(database.record_process_end("a", "new", &json!({}), 2).await.unwrap());
        let kept = database.list_process_ends(Some("a"), u32::MAX).await.unwrap();
        assert_eq!(kept.len() as i64, MAX_PER_NODE);
        assert_eq!((kept[0].event_id.as_str(), kept.last().unwrap().event_id.as_str()), ("new", "old-1"));
    }
}
