//! Plans that agents presented, and the answers that people gave to them.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::database::{Database, DatabaseError, from_json, query_error, to_json};

/// How long a plan is kept.
const KEPT_MS: i64 = 30 * 24 * 3600 * 1000;
/// The most plans of one agent that wait for an answer.
const MAX_OPEN: i64 = 200;
const MAX_LISTED: u32 = 1_000;

/// A plan. It waits while `answer` is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRow {
    pub id: String,
    pub agent: String,
    /// JSON.
    pub plan: String,
    /// The text that a person reads.
    pub shown: String,
    pub labels: Vec<String>,
    pub created_by: String,
    pub created: i64,
    pub answer: Option<String>,
    pub answered_by: Option<String>,
    /// The pipeline that an approved plan became.
    pub pipeline: Option<String>,
}

const PLAN: &str = "id, agent, plan, shown, labels, created_by, created, answer, answered_by, pipeline";

impl Database {
    /// Stores a plan. One with the same id stays as it is.
    pub async fn add_plan(&self, row: &PlanRow) -> Result<(), DatabaseError> {
        const DOING: &str = "store the plan";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        sqlx::query("DELETE FROM plans WHERE created < $1")
            .bind(row.created - KEPT_MS)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        let open: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM plans WHERE agent = $1 AND answer IS NULL")
            .bind(&row.agent)
            .fetch_one(&mut *transaction)
            .await
            .map_err(&failed)?;
        if open >= MAX_OPEN {
            return Err(DatabaseError::Refused(format!(
                "{MAX_OPEN} plans of the agent {:?} wait for an answer; `gantry pipelines plans` lists them",
                row.agent
            )));
        }
        sqlx::query(
            "INSERT INTO plans (id, agent, plan, shown, labels, created_by, created)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING",
        )
        .bind(&row.id)
        .bind(&row.agent)
        .bind(&row.plan)
        .bind(&row.shown)
        .bind(to_json(DOING, &row.labels)?)
        .bind(&row.created_by)
        .bind(row.created)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        transaction.commit().await.map_err(&failed)
    }

    pub async fn plan(&self, id: &str) -> Result<Option<PlanRow>, DatabaseError> {
        let statement = format!("SELECT {PLAN} FROM plans WHERE id = $1");
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error("read the plan"))?;
        row.as_ref().map(plan_row).transpose()
    }

    /// Returns the plans that wait for an answer, newest first.
    pub async fn open_plans(&self) -> Result<Vec<PlanRow>, DatabaseError> {
        let statement =
            format!("SELECT {PLAN} FROM plans WHERE answer IS NULL ORDER BY created DESC, id LIMIT $1");
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(MAX_LISTED)
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("list the plans"))?;
        rows.iter().map(plan_row).collect()
    }

    /// Records the answer to a plan. The first answer wins: returns false if there is one.
    pub async fn answer_plan(
        &self,
        id: &str,
        answer: &str,
        by: &str,
        at: i64,
    ) -> Result<bool, DatabaseError> {
        let statement =
            "UPDATE plans SET answer = $2, answered_by = $3, answered = $4 WHERE id = $1 AND answer IS NULL";
        let changed = sqlx::query(statement)
            .bind(id)
            .bind(answer)
            .bind(by)
            .bind(at)
            .execute(&self.writer)
            .await
            .map_err(query_error("answer the plan"))?;
        Ok(changed.rows_affected() > 0)
    }

    /// Records the pipeline that an approved plan became.
    pub async fn set_plan_pipeline(&self, id: &str, pipeline: &str) -> Result<(), DatabaseError> {
        sqlx::query("UPDATE plans SET pipeline = $2 WHERE id = $1")
            .bind(id)
            .bind(pipeline)
            .execute(&self.writer)
            .await
            .map_err(query_error("store the pipeline of a plan"))?;
        Ok(())
    }
}

fn plan_row(row: &SqliteRow) -> Result<PlanRow, DatabaseError> {
    const DOING: &str = "read the plan";
    let read = || {
        Ok(PlanRow {
            id: row.try_get(0)?,
            agent: row.try_get(1)?,
            plan: row.try_get(2)?,
            shown: row.try_get(3)?,
            labels: Vec::new(),
            created_by: row.try_get(5)?,
            created: row.try_get(6)?,
            answer: row.try_get(7)?,
            answered_by: row.try_get(8)?,
            pipeline: row.try_get(9)?,
        })
    };
    let read = read().map_err(query_error(DOING))?;
    let labels: String = row.try_get(4).map_err(query_error(DOING))?;
    Ok(PlanRow { labels: from_json(DOING, &labels)?, ..read })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    #[tokio::test]
    async fn first_answer_to_a_plan_wins() {
        let (_folder, database) = database().await;
        let row = PlanRow {
            id: "a".into(),
            agent: "main".into(),
            plan: "{}".into(),
            shown: "1. x".into(),
            labels: Vec::new(),
            created_by: "operator".into(),
            created: 1,
            answer: None,
            answered_by: None,
            pipeline: None,
        };
        database.add_plan(&row).await.unwrap();
        assert_eq!(database.open_plans().await.unwrap(), [row]);
        assert!(database.answer_plan("a", "proceed", "operator", 2).await.unwrap());
        assert!(!database.answer_plan("a", "cancel", "operator", 3).await.unwrap());
        database.set_plan_pipeline("a", "p").await.unwrap();
        let known = database.plan("a").await.unwrap().unwrap();
        assert_eq!((known.answer.as_deref(), known.pipeline.as_deref()), (Some("proceed"), Some("p")));
        assert!(database.open_plans().await.unwrap().is_empty());
    }
}
