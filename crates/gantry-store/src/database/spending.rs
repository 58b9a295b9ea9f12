//! The costs of agents' models by day, agent and run.

use crate::database::{Database, DatabaseError, query_error};

/// Separates a run's name from the account of its child. A child's costs also count for the run.
pub const ACCOUNT_SEPARATOR: char = '\u{1f}';

/// A billion dollars. Sums are capped here, so that no reported usage can overflow them.
const MOST_NANOS: i64 = 1_000_000_000_000_000_000;

/// Costs in billionths of a dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spending {
    /// The costs of the run and its children.
    pub run: i64,
    /// The costs of the agent on that day.
    pub agent: i64,
    /// The costs of all agents on that day.
    pub day: i64,
}

impl Database {
    /// `day` is a date in the user's time zone.
    pub async fn record_spending(
        &self,
        day: &str,
        agent: &str,
        run: &str,
        nanos: i64,
    ) -> Result<(), DatabaseError> {
        sqlx::query(
            "INSERT INTO spending (day, agent, run, nanos) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO UPDATE SET nanos = MIN(nanos + excluded.nanos, $5)",
        )
        .bind(day)
        .bind(agent)
        .bind(run)
        .bind(nanos.clamp(0, MOST_NANOS))
        .bind(MOST_NANOS)
        .execute(&self.writer)
        .await
        .map_err(query_error("record the spending"))?;
        Ok(())
    }

    pub async fn spending(&self, day: &str, agent: &str, run: &str) -> Result<Spending, DatabaseError> {
        let (run, agent, day): (i64, i64, i64) = sqlx::query_as(
            // TOTAL does not overflow and is exact for realistic sums.
            "SELECT CAST(MIN((SELECT TOTAL(nanos) FROM spending
                      WHERE run = $3 OR (run >= $3 || char(31) AND run < $3 || char(32))), $4) AS INTEGER),
                    CAST(MIN((SELECT TOTAL(nanos) FROM spending WHERE day = $1 AND agent = $2), $4) AS INTEGER),
                    CAST(MIN((SELECT TOTAL(nanos) FROM spending WHERE day = $1), $4) AS INTEGER)",
        )
        .bind(day)
        .bind(agent)
        .bind(run)
        .bind(MOST_NANOS)
        .fetch_one(&self.readers)
        .await
        .map_err(query_error("read the spending"))?;
        Ok(Spending { run, agent, day })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    #[tokio::test]
    async fn costs_add_up_by_run_agent_and_day() {
        let (_folder, database) = database().await;
        for (day, agent, run, nanos) in [
            ("d1", "a", "r1", 1),
            ("d1", "a", "r1", 2),
            ("d1", "a", "r2", 10),
            ("d1", "b", "r3", 100),
            ("d2", "a", "r1", 1000),
            ("d4", "c", "r4", 1),
            ("d4", "c", "r4\u{1f}child", 20),
            ("d4", "c", "r4\u{1f}child\u{1f}grandchild", 300),
            ("d4", "c", "r4 child", 4000),
        ] {
            database.record_spending(day, agent, run, nanos).await.unwrap();
        }
        let spent = database.spending("d1", "a", "r1").await.unwrap();
        assert_eq!(spent, Spending { run: 1003, agent: 13, day: 113 });
        let family = |run: &'static str| database.spending("d4", "c", run);
        assert_eq!(family("r4").await.unwrap(), Spending { run: 321, agent: 4321, day: 4321 });
        assert_eq!(family("r4\u{1f}child").await.unwrap().run, 320);
        assert_eq!(database.spending("d3", "x", "y").await.unwrap(), Spending::default());
    }

    #[tokio::test]
    async fn absurd_costs_do_not_overflow() {
        let (_folder, database) = database().await;
        // A row from before costs were capped.
        let old =
            "INSERT INTO spending (day, agent, run, nanos) VALUES ('d1', 'a', 'r0', 9223372036854775807)";
        sqlx::raw_sql(old).execute(&database.writer).await.unwrap();
        for run in ["r1", "r1", "r1", "r2", "r0"] {
            database.record_spending("d1", "a", run, i64::MAX).await.unwrap();
        }
        let spent = database.spending("d1", "a", "r1").await.unwrap();
        assert_eq!(spent, Spending { run: MOST_NANOS, agent: MOST_NANOS, day: MOST_NANOS });
        let others = database.spending("d2", "b", "r3").await.unwrap();
        assert_eq!(others, Spending::default());
    }
}
