//! Removes old rows that no other module of this folder removes, and shrinks the database file.

use sqlx::SqliteConnection;

use crate::database::{Database, DatabaseError, query_error};

const DAY_MS: i64 = 24 * 3600 * 1000;
/// How long a conversation is kept if its caller stores the history itself.
const ONE_OFF_KEPT_MS: i64 = 7 * DAY_MS;
/// How many rows one transaction removes, so that other writers get their turn.
const BATCH: i64 = 1_000;
/// How many pages one transaction frees.
const PAGES: i64 = 256;

/// The keys of conversations of single `/v1/chat/completions` requests.
const ONE_OFF: &str = "agent:*:completions:\
    [0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]\
    [0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]\
    [0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]\
    [0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]";

impl Database {
    /// Repeats a statement, which takes a time and a number of rows, until it removes no more rows. Returns how many were
    /// removed.
    pub(crate) async fn sweep_in_batches(
        &self,
        doing: &'static str,
        statement: &'static str,
        before: i64,
    ) -> Result<u64, DatabaseError> {
        let mut swept = 0;
        loop {
            let batch = sqlx::query(statement).bind(before).bind(BATCH).execute(&self.writer).await;
            let batch = batch.map_err(query_error(doing))?.rows_affected();
            swept += batch;
            if batch < BATCH.unsigned_abs() {
                return Ok(swept);
            }
        }
    }

    /// Removes conversations of single requests with their children, 7 days after the last activity. Returns how many.
    /// Their callers send the history with each request and never return to them.
    pub async fn sweep_one_off_sessions(&self, now: i64) -> Result<u64, DatabaseError> {
        const DOING: &str = "remove old conversations of single requests";
        let failed = query_error(DOING);
        let mut swept = 0;
        loop {
            let mut transaction = self.write(DOING).await?;
            let old: Vec<String> = sqlx::query_scalar(
                "SELECT key FROM sessions WHERE key GLOB $1 AND parent IS NULL AND has_work = 0
                   AND last_activity <= $2 AND NOT EXISTS (
                     SELECT 1 FROM sessions AS child WHERE child.root = sessions.key
                       AND (child.has_work = 1 OR child.last_activity > $2))
                 LIMIT $3",
            )
            .bind(ONE_OFF)
            .bind(now - ONE_OFF_KEPT_MS)
            .bind(BATCH)
            .fetch_all(&mut *transaction)
            .await
            .map_err(&failed)?;
            if old.is_empty() {
                return Ok(swept);
            }
            remove_sessions(&mut transaction, DOING, &old).await?;
            transaction.commit().await.map_err(&failed)?;
            swept += old.len() as u64;
        }
    }

    /// Merges the costs of an agent's runs into one row per day before `day`. Returns how many rows were removed.
    pub async fn merge_spending(&self, day: &str) -> Result<u64, DatabaseError> {
        const DOING: &str = "add up the spending";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        sqlx::query(
            "INSERT INTO spending (day, agent, run, nanos)
               SELECT day, agent, '', CAST(MIN(TOTAL(nanos), 1e18) AS INTEGER) FROM spending
               WHERE day < $1 GROUP BY day, agent HAVING COUNT(*) > 1 OR MAX(run) != ''
             ON CONFLICT DO UPDATE SET nanos = excluded.nanos",
        )
        .bind(day)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        let merged = sqlx::query("DELETE FROM spending WHERE day < $1 AND run != ''")
            .bind(day)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        transaction.commit().await.map_err(&failed)?;
        Ok(merged.rows_affected())
    }

    /// Returns free pages to the file system, a few at a time. A database from before this feature keeps and reuses
    /// them.
    pub async fn release_free_pages(&self) -> Result<(), DatabaseError> {
        let failed = query_error("give free pages back");
        let free = || async {
            let free: i64 =
                sqlx::query_scalar("PRAGMA freelist_count").fetch_one(&self.writer).await.map_err(&failed)?;
            Ok::<_, DatabaseError>(free)
        };
        let mut left = free().await?;
        while left > 0 {
            let statement = format!("PRAGMA incremental_vacuum({PAGES})");
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&self.writer).await.map_err(&failed)?;
            let now = free().await?;
            if now >= left {
                break;
            }
            left = now;
        }
        Ok(())
    }
}

/// Removes sessions with their children.
pub(super) async fn remove_sessions(
    connection: &mut SqliteConnection,
    doing: &'static str,
    keys: &[String],
) -> Result<(), DatabaseError> {
    let family = "(SELECT value FROM json_each($1))";
    let keys = serde_json::json!(keys).to_string();
    for statement in [
        format!(
            "DELETE FROM session_events WHERE session IN
               (SELECT id FROM sessions WHERE key IN {family} OR root IN {family})"
        ),
        format!("DELETE FROM sessions WHERE key IN {family} OR root IN {family}"),
    ] {
        let removed = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(&keys);
        removed.execute(&mut *connection).await.map_err(query_error(doing))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;
    use crate::{Append, Journal, NewEvent, Parentage, Spending};

    async fn said(journal: &Journal, key: &str, at: i64, has_work: bool) {
        journal.open(key, "main", at).await.unwrap();
        let event = NewEvent { kind: "said", data: "x".repeat(2_000), checkpoint: false };
        let append =
            Append { key: key.into(), expected: 0, at, events: vec![event], has_work, ..Append::default() };
        journal.append(append).await.unwrap();
    }

    #[tokio::test]
    async fn single_request_conversations_are_removed_after_a_week_with_children() {
        let (_folder, database) = database().await;
        let journal = Journal::new(database.clone());
        let one_off =
            |number: u32| format!("agent:main:completions:{number:08x}{number:08x}{number:08x}{number:08x}");
        let week = ONE_OFF_KEPT_MS;
        for (key, at, has_work) in [
            (one_off(1), 0, false),
            (one_off(2), 0, true),
            (one_off(3), 10, false),
            (one_off(4), 0, false),
            ("agent:main:completions:mine".to_owned(), 0, false),
            ("agent:main:main".to_owned(), 0, false),
        ] {
            said(&journal, &key, at, has_work).await;
        }
        for (child, parent, at) in [("old", one_off(1), 0), ("young", one_off(4), 10)] {
            let parentage = Parentage { parent: &parent, root: &parent, label: "" };
            journal.adopt(child, "main", parentage, at).await.unwrap();
            said(&journal, child, at, false).await;
        }
        assert_eq!(database.sweep_one_off_sessions(week - 1).await.unwrap(), 0);
        assert_eq!(database.sweep_one_off_sessions(week).await.unwrap(), 1);
        for (key, there) in [
            (one_off(1), false),
            ("old".to_owned(), false),
            (one_off(2), true),
            (one_off(3), true),
            (one_off(4), true),
            ("young".to_owned(), true),
            ("agent:main:completions:mine".to_owned(), true),
            ("agent:main:main".to_owned(), true),
        ] {
            assert_eq!(journal.exists(&key).await.unwrap(), there, "{key}");
        }
        let events: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM session_events")
            .fetch_one(&database.readers)
            .await
            .unwrap();
        assert_eq!(events, 6);
    }

    #[tokio::test]
    async fn old_runs_are_merged_by_day_and_agent() {
        let (_folder, database) = database().await;
        for (day, run, nanos) in [("2026-01-01", "r1", 1), ("2026-01-01", "r2", 2), ("2026-01-09", "r3", 4)] {
            database.record_spending(day, "a", run, nanos).await.unwrap();
        }
        assert_eq!(database.merge_spending("2026-01-05").await.unwrap(), 2);
        assert_eq!(database.merge_spending("2026-01-05").await.unwrap(), 0);
        let spent = |day: &'static str, run: &'static str| database.spending(day, "a", run);
        assert_eq!(spent("2026-01-01", "r1").await.unwrap(), Spending { run: 0, agent: 3, day: 3 });
        assert_eq!(spent("2026-01-09", "r3").await.unwrap(), Spending { run: 4, agent: 4, day: 4 });
        // Late costs are added to the row.
        database.record_spending("2026-01-01", "a", "r1", 8).await.unwrap();
        assert_eq!(database.merge_spending("2026-01-05").await.unwrap(), 1);
        assert_eq!(spent("2026-01-01", "").await.unwrap().day, 11);
    }

    #[tokio::test]
    async fn database_file_shrinks() {
        let (folder, database) = database().await;
        let journal = Journal::new(database.clone());
        for number in 0..400_u32 {
            said(&journal, &format!("agent:main:completions:{number:032x}"), 0, false).await;
        }
        let path = folder.path().join("data/gateway.db");
        let size = async || {
            sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&database.writer).await.unwrap();
            std::fs::metadata(&path).unwrap().len()
        };
        let before = size().await;
        assert_eq!(database.sweep_one_off_sessions(ONE_OFF_KEPT_MS).await.unwrap(), 400);
        database.release_free_pages().await.unwrap();
        let after = size().await;
        assert!(before > 800_000 && after < before / 2, "{before} {after}");
    }
}
