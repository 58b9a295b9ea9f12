//! Tokens and costs of models over time, for reports.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::database::{Database, DatabaseError, query_error};

/// The length of a bucket: a quarter of an hour, because no time zone begins its day at another time.
pub const USAGE_BUCKET_MS: i64 = 15 * 60 * 1000;

/// The answers of one model in one session within a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageBucket {
    /// When the bucket begins.
    pub at: i64,
    pub agent: String,
    pub session: String,
    pub model: String,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}

impl Database {
    /// Returns the answers of models from a time on, before another, in order.
    pub async fn usage(&self, from: i64, until: i64) -> Result<Vec<UsageBucket>, DatabaseError> {
        const DOING: &str = "read the usage of models";
        let rows = sqlx::query(
            "SELECT at / $3 * $3 AS bucket, sessions.agent, sessions.key, COALESCE(data ->> '$.reply.model', ''), COUNT(*),
               CAST(TOTAL(data ->> '$.reply.usage.input_tokens') AS INTEGER),
               CAST(TOTAL(data ->> '$.reply.usage.output_tokens') AS INTEGER),
               CAST(TOTAL(data ->> '$.reply.usage.cache_read_tokens') AS INTEGER),
               CAST(TOTAL(data ->> '$.reply.usage.cache_write_tokens') AS INTEGER)
             FROM session_events JOIN sessions ON sessions.id = session_events.session
             WHERE kind = 'replied' AND at >= $1 AND at < $2
             GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
        )
        .bind(from)
        .bind(until)
        .bind(USAGE_BUCKET_MS)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error(DOING))?;
        rows.iter().map(bucket).collect::<Result<_, _>>().map_err(query_error(DOING))
    }

    /// Returns the recorded costs from a day to another, in billionths of a dollar: day, agent and sum.
    pub async fn spent_by_day(
        &self,
        from: &str,
        to: &str,
    ) -> Result<Vec<(String, String, i64)>, DatabaseError> {
        sqlx::query_as(
            "SELECT day, agent, CAST(MIN(TOTAL(nanos), 1e18) AS INTEGER) FROM spending
             WHERE day >= $1 AND day <= $2 GROUP BY day, agent ORDER BY day, agent",
        )
        .bind(from)
        .bind(to)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error("read the spending"))
    }
}

fn bucket(row: &SqliteRow) -> Result<UsageBucket, sqlx::Error> {
    let number = |index: usize| row.try_get::<i64, _>(index).map(|number| u64::try_from(number).unwrap_or(0));
    Ok(UsageBucket {
        at: row.try_get(0)?,
        agent: row.try_get(1)?,
        session: row.try_get(2)?,
        model: row.try_get(3)?,
        requests: number(4)?,
        input_tokens: number(5)?,
        output_tokens: number(6)?,
        cache_read_tokens: number(7)?,
        cache_write_tokens: number(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;
    use crate::{Append, Journal, NewEvent};

    #[tokio::test]
    async fn answers_add_up_by_time_session_and_model() {
        let (_folder, database) = database().await;
        let journal = Journal::new(database.clone());
        let reply = |model: &str, input: u64| {
            NewEvent {
            kind: "replied",
            data: serde_json::json!({"kind": "replied", "reply": {"model": model, "usage":
                {"input_tokens": input, "output_tokens": 1, "cache_read_tokens": 2, "cache_write_tokens": 3}}})
            .to_string(),
            checkpoint: false,
        }
        };
        let mut expected = 0;
        for (at, events) in [
            (1_000, vec![reply("p/a", 10), reply("p/a", 20), reply("p/b", 5)]),
            (USAGE_BUCKET_MS, vec![reply("p/a", 100)]),
            (10 * USAGE_BUCKET_MS, vec![reply("p/a", 1_000)]),
        ] {
            journal.open("agent:main:main", "main", 0).await.unwrap();
            let count = i64::try_from(events.len()).unwrap();
            let append = Append {
                key: "agent:main:main".into(),
                expected,
                at,
                events,
                has_work: false,
                channel_events: Vec::new(),
                outbox: Vec::new(),
            };
            journal.append(append).await.unwrap();
            expected += count;
        }
        let found = database.usage(0, 10 * USAGE_BUCKET_MS).await.unwrap();
        let short: Vec<_> = found
            .iter()
            .map(|row| (row.at, row.model.as_str(), row.requests, row.input_tokens, row.cache_write_tokens))
            .collect();
        assert_eq!(short, [(0, "p/a", 2, 30, 6), (0, "p/b", 1, 5, 3), (USAGE_BUCKET_MS, "p/a", 1, 100, 3)]);
    }
}
