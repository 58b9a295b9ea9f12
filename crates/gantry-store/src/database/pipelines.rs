//! Pipelines, their runs and the steps of runs. Definitions and inputs are JSON that this crate does not read.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};

use crate::database::journal::NEW_SESSION;
use crate::database::{Database, DatabaseError, from_json, query_error, to_json};

/// The most pipelines of one agent.
pub const MAX_PIPELINES: i64 = 1_000;
/// How long a run is kept after its end.
const KEPT_MS: i64 = 90 * 24 * 3600 * 1000;
/// The longest list that one query returns.
const MAX_LISTED: u32 = 1_000;

/// A stored pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineRow {
    pub id: String,
    pub agent: String,
    pub name: String,
    /// JSON.
    pub definition: String,
    pub labels: Vec<String>,
    /// `person`, `plan` or `process`.
    pub source: String,
    pub created_by: String,
    pub created: i64,
}

/// A run of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineRunRow {
    pub id: String,
    pub pipeline: String,
    pub agent: String,
    pub name: String,
    /// JSON, like the three fields below.
    pub definition: String,
    pub input: String,
    pub authority: String,
    pub account: String,
    /// JSON.
    pub budgets: String,
    pub state: String,
    pub reason: Option<String>,
    pub cancelled_by: Option<String>,
    pub started: i64,
    pub ended: Option<i64>,
}

/// A step of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PipelineStepRow {
    pub position: i64,
    pub step: String,
    pub state: String,
    pub attempt: i64,
    pub session: Option<String>,
    pub result: Option<String>,
    pub error: Option<String>,
    pub skip_reason: Option<String>,
    pub labels: Vec<String>,
    pub private_from: Option<String>,
    pub tier: Option<String>,
    pub tokens_in: i64,
    pub tokens_out: i64,
    pub cost_nanos: i64,
    pub started: Option<i64>,
    pub ended: Option<i64>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    pub state: String,
    pub reason: Option<String>,
    pub at: i64,
}

/// The session of a step that starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSession {
    pub key: String,
    pub agent: String,
    /// Its name in lists.
    pub label: String,
    pub at: i64,
}

/// What finished agent steps of one tier have cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierCost {
    pub tier: String,
    pub steps: i64,
    pub nanos: i64,
}

const PIPELINE: &str = "id, agent, name, definition, labels, source, created_by, created";
const RUN: &str = "id, pipeline, agent, name, definition, input, authority, account, budgets, state, reason, \
    cancelled_by, started, ended";

impl Database {
    /// Stores a pipeline. One with the same id stays as it is.
    pub async fn add_pipeline(&self, row: &PipelineRow) -> Result<(), DatabaseError> {
        const DOING: &str = "store the pipeline";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM pipelines WHERE agent = $1")
            .bind(&row.agent)
            .fetch_one(&mut *transaction)
            .await
            .map_err(&failed)?;
        if count >= MAX_PIPELINES {
            return Err(DatabaseError::Refused(format!(
                "the agent {:?} already has {MAX_PIPELINES} pipelines; `gantry pipelines remove ID` removes one",
                row.agent
            )));
        }
        sqlx::query(
            "INSERT INTO pipelines (id, agent, name, definition, labels, source, created_by, created)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
        )
        .bind(&row.id)
        .bind(&row.agent)
        .bind(&row.name)
        .bind(&row.definition)
        .bind(to_json(DOING, &row.labels)?)
        .bind(&row.source)
        .bind(&row.created_by)
        .bind(row.created)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        transaction.commit().await.map_err(&failed)
    }

    pub async fn pipeline(&self, id: &str) -> Result<Option<PipelineRow>, DatabaseError> {
        let statement = format!("SELECT {PIPELINE} FROM pipelines WHERE id = $1");
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error("read the pipeline"))?;
        row.as_ref().map(pipeline_row).transpose()
    }

    /// Returns the pipelines, newest first.
    pub async fn list_pipelines(&self) -> Result<Vec<PipelineRow>, DatabaseError> {
        let statement = format!("SELECT {PIPELINE} FROM pipelines ORDER BY created DESC, id LIMIT $1");
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(MAX_LISTED)
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("list the pipelines"))?;
        rows.iter().map(pipeline_row).collect()
    }

    /// Removes a pipeline. Its runs stay.
    pub async fn remove_pipeline(&self, id: &str) -> Result<bool, DatabaseError> {
        let removed = sqlx::query("DELETE FROM pipelines WHERE id = $1")
            .bind(id)
            .execute(&self.writer)
            .await
            .map_err(query_error("remove the pipeline"))?;
        Ok(removed.rows_affected() > 0)
    }

    /// Stores a new run with its steps. Returns false if the run exists already; then nothing changes.
    pub async fn begin_pipeline_run(
        &self,
        run: &PipelineRunRow,
        steps: &[PipelineStepRow],
    ) -> Result<bool, DatabaseError> {
        const DOING: &str = "store the run of a pipeline";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let inserted = sqlx::query(
            "INSERT INTO pipeline_runs (id, pipeline, agent, name, definition, input, authority, account, budgets,
               state, started) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (id) DO NOTHING",
        )
        .bind(&run.id)
        .bind(&run.pipeline)
        .bind(&run.agent)
        .bind(&run.name)
        .bind(&run.definition)
        .bind(&run.input)
        .bind(&run.authority)
        .bind(&run.account)
        .bind(&run.budgets)
        .bind(&run.state)
        .bind(run.started)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        if inserted.rows_affected() == 0 {
            return Ok(false);
        }
        for step in steps {
            write_step(DOING, &mut transaction, &run.id, step).await?;
        }
        sqlx::query("DELETE FROM pipeline_runs WHERE ended IS NOT NULL AND ended < $1")
            .bind(run.started - KEPT_MS)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        transaction.commit().await.map_err(&failed)?;
        Ok(true)
    }

    /// Writes changed steps, the rows of their sessions, and the end of the run if it has ended, in one transaction.
    pub async fn record_pipeline_steps(
        &self,
        run: &str,
        steps: &[PipelineStepRow],
        sessions: &[StepSession],
        end: Option<&RunEnd>,
    ) -> Result<(), DatabaseError> {
        const DOING: &str = "store the steps of a pipeline";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        for session in sessions {
            let new = sqlx::query(NEW_SESSION).bind(&session.key).bind(&session.agent).bind(session.at);
            new.bind(&session.label).execute(&mut *transaction).await.map_err(&failed)?;
        }
        for step in steps {
            write_step(DOING, &mut transaction, run, step).await?;
        }
        if let Some(end) = end {
            sqlx::query("UPDATE pipeline_runs SET state = $2, reason = $3, ended = $4 WHERE id = $1")
                .bind(run)
                .bind(&end.state)
                .bind(&end.reason)
                .bind(end.at)
                .execute(&mut *transaction)
                .await
                .map_err(&failed)?;
        }
        transaction.commit().await.map_err(&failed)
    }

    /// Opens an ended run again with changed steps and the rights of whoever retries it. Returns false if it has not
    /// ended.
    pub async fn reopen_pipeline_run(
        &self,
        run: &PipelineRunRow,
        steps: &[PipelineStepRow],
    ) -> Result<bool, DatabaseError> {
        const DOING: &str = "retry the run of a pipeline";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let opened = sqlx::query(
            "UPDATE pipeline_runs SET state = $2, reason = NULL, cancelled_by = NULL, ended = NULL, authority = $3,
               account = $4, budgets = $5 WHERE id = $1 AND ended IS NOT NULL",
        )
        .bind(&run.id)
        .bind(&run.state)
        .bind(&run.authority)
        .bind(&run.account)
        .bind(&run.budgets)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        if opened.rows_affected() == 0 {
            return Ok(false);
        }
        for step in steps {
            write_step(DOING, &mut transaction, &run.id, step).await?;
        }
        transaction.commit().await.map_err(&failed)?;
        Ok(true)
    }

    /// Records who cancelled a run, unless it has ended or was cancelled before.
    pub async fn cancel_pipeline_run(&self, id: &str, by: &str) -> Result<bool, DatabaseError> {
        let statement = "UPDATE pipeline_runs SET cancelled_by = $2 WHERE id = $1 AND ended IS NULL AND cancelled_by IS NULL";
        let changed = sqlx::query(statement)
            .bind(id)
            .bind(by)
            .execute(&self.writer)
            .await
            .map_err(query_error("cancel the run of a pipeline"))?;
        Ok(changed.rows_affected() > 0)
    }

    pub async fn pipeline_run(&self, id: &str) -> Result<Option<PipelineRunRow>, DatabaseError> {
        let statement = format!("SELECT {RUN} FROM pipeline_runs WHERE id = $1");
        let row = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error("read the run of a pipeline"))?;
        row.as_ref().map(run_row).transpose().map_err(query_error("read the run of a pipeline"))
    }

    /// Returns the steps of a run in the order of its definition.
    pub async fn pipeline_steps(&self, run: &str) -> Result<Vec<PipelineStepRow>, DatabaseError> {
        let rows = sqlx::query(
            "SELECT position, step, state, attempt, session, result, error, skip_reason, labels, private_from, tier,
               tokens_in, tokens_out, cost_nanos, started, ended FROM pipeline_steps WHERE run = $1 ORDER BY position",
        )
        .bind(run)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error("read the steps of a pipeline"))?;
        rows.iter().map(step_row).collect()
    }

    /// Returns runs, newest first.
    pub async fn list_pipeline_runs(
        &self,
        pipeline: Option<&str>,
        limit: u32,
    ) -> Result<Vec<PipelineRunRow>, DatabaseError> {
        const DOING: &str = "list the runs of pipelines";
        let statement = format!(
            "SELECT {RUN} FROM pipeline_runs WHERE $1 = '' OR pipeline = $1 ORDER BY started DESC, id LIMIT $2"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(pipeline.unwrap_or_default())
            .bind(limit.min(MAX_LISTED))
            .fetch_all(&self.readers)
            .await
            .map_err(query_error(DOING))?;
        rows.iter().map(run_row).collect::<Result<_, _>>().map_err(query_error(DOING))
    }

    /// Returns the ids of runs that have not ended, oldest first.
    pub async fn unfinished_pipeline_runs(&self) -> Result<Vec<String>, DatabaseError> {
        sqlx::query_scalar("SELECT id FROM pipeline_runs WHERE ended IS NULL ORDER BY started, id")
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("find the runs of pipelines to resume"))
    }

    /// Returns the costs of completed agent steps since a time, by tier.
    pub async fn pipeline_tier_costs(&self, since: i64) -> Result<Vec<TierCost>, DatabaseError> {
        const DOING: &str = "read the costs of pipelines";
        let rows = sqlx::query(
            "SELECT tier, COUNT(*), CAST(SUM(cost_nanos) AS BIGINT) FROM pipeline_steps
             WHERE tier IS NOT NULL AND ended >= $1 AND state = 'completed' AND cost_nanos > 0 GROUP BY tier",
        )
        .bind(since)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error(DOING))?;
        let cost = |row: &SqliteRow| {
            Ok(TierCost { tier: row.try_get(0)?, steps: row.try_get(1)?, nanos: row.try_get(2)? })
        };
        rows.iter().map(cost).collect::<Result<_, _>>().map_err(query_error(DOING))
    }
}

async fn write_step(
    doing: &'static str,
    transaction: &mut Transaction<'static, Sqlite>,
    run: &str,
    step: &PipelineStepRow,
) -> Result<(), DatabaseError> {
    sqlx::query(
        "INSERT INTO pipeline_steps (run, position, step, state, attempt, session, result, error, skip_reason, labels,
           private_from, tier, tokens_in, tokens_out, cost_nanos, started, ended)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
         ON CONFLICT (run, position) DO UPDATE SET state = $4, attempt = $5, session = $6, result = $7, error = $8,
           skip_reason = $9, labels = $10, private_from = $11, tier = $12, tokens_in = $13, tokens_out = $14,
           cost_nanos = $15, started = $16, ended = $17",
    )
    .bind(run)
    .bind(step.position)
    .bind(&step.step)
    .bind(&step.state)
    .bind(step.attempt)
    .bind(&step.session)
    .bind(&step.result)
    .bind(&step.error)
    .bind(&step.skip_reason)
    .bind(to_json(doing, &step.labels)?)
    .bind(&step.private_from)
    .bind(&step.tier)
    .bind(step.tokens_in)
    .bind(step.tokens_out)
    .bind(step.cost_nanos)
    .bind(step.started)
    .bind(step.ended)
    .execute(&mut **transaction)
    .await
    .map_err(query_error(doing))?;
    Ok(())
}

fn pipeline_row(row: &SqliteRow) -> Result<PipelineRow, DatabaseError> {
    const DOING: &str = "read the pipeline";
    let read = || {
        Ok(PipelineRow {
            id: row.try_get(0)?,
            agent: row.try_get(1)?,
            name: row.try_get(2)?,
            definition: row.try_get(3)?,
            labels: Vec::new(),
            source: row.try_get(5)?,
            created_by: row.try_get(6)?,
            created: row.try_get(7)?,
        })
    };
    let read = read().map_err(query_error(DOING))?;
    let labels: String = row.try_get(4).map_err(query_error(DOING))?;
    Ok(PipelineRow { labels: from_json(DOING, &labels)?, ..read })
}

fn run_row(row: &SqliteRow) -> Result<PipelineRunRow, sqlx::Error> {
    Ok(PipelineRunRow {
        id: row.try_get(0)?,
        pipeline: row.try_get(1)?,
        agent: row.try_get(2)?,
        name: row.try_get(3)?,
        definition: row.try_get(4)?,
        input: row.try_get(5)?,
        authority: row.try_get(6)?,
        account: row.try_get(7)?,
        budgets: row.try_get(8)?,
        state: row.try_get(9)?,
        reason: row.try_get(10)?,
        cancelled_by: row.try_get(11)?,
        started: row.try_get(12)?,
        ended: row.try_get(13)?,
    })
}

fn step_row(row: &SqliteRow) -> Result<PipelineStepRow, DatabaseError> {
    const DOING: &str = "read the steps of a pipeline";
    let read = || {
        Ok(PipelineStepRow {
            position: row.try_get(0)?,
            step: row.try_get(1)?,
            state: row.try_get(2)?,
            attempt: row.try_get(3)?,
            session: row.try_get(4)?,
            result: row.try_get(5)?,
            error: row.try_get(6)?,
            skip_reason: row.try_get(7)?,
            labels: Vec::new(),
            private_from: row.try_get(9)?,
            tier: row.try_get(10)?,
            tokens_in: row.try_get(11)?,
            tokens_out: row.try_get(12)?,
            cost_nanos: row.try_get(13)?,
            started: row.try_get(14)?,
            ended: row.try_get(15)?,
        })
    };
    let read = read().map_err(query_error(DOING))?;
    let labels: String = row.try_get(8).map_err(query_error(DOING))?;
    Ok(PipelineStepRow { labels: from_json(DOING, &labels)?, ..read })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    fn run(id: &str, started: i64) -> PipelineRunRow {
        PipelineRunRow {
            id: id.into(),
            pipeline: "p".into(),
            agent: "main".into(),
            name: "n".into(),
            definition: "{}".into(),
            input: "{}".into(),
            authority: "{}".into(),
            account: "a".into(),
            budgets: "[]".into(),
            state: "running".into(),
            reason: None,
            cancelled_by: None,
            started,
            ended: None,
        }
    }

    fn step(position: i64, state: &str) -> PipelineStepRow {
        let (step, state) = (format!("s{position}"), state.to_owned());
        PipelineStepRow { position, step, state, attempt: 1, ..PipelineStepRow::default() }
    }

    #[tokio::test]
    async fn run_is_stored_once_and_its_end_with_its_steps() {
        let (_folder, database) = database().await;
        let steps = [step(0, "pending"), step(1, "pending")];
        assert!(database.begin_pipeline_run(&run("r", 5), &steps).await.unwrap());
        assert!(!database.begin_pipeline_run(&run("r", 6), &[step(0, "failed")]).await.unwrap());
        assert_eq!(database.pipeline_steps("r").await.unwrap(), steps);
        assert_eq!(database.unfinished_pipeline_runs().await.unwrap(), ["r"]);
        let done = PipelineStepRow {
            result: Some("x".into()),
            labels: vec!["untrusted".into()],
            tier: Some("fast".into()),
            cost_nanos: 7,
            ended: Some(9),
            ..step(1, "completed")
        };
        let end = RunEnd { state: "completed".into(), reason: None, at: 9 };
        database.record_pipeline_steps("r", std::slice::from_ref(&done), &[], Some(&end)).await.unwrap();
        assert_eq!(database.pipeline_steps("r").await.unwrap()[1], done);
        assert!(database.unfinished_pipeline_runs().await.unwrap().is_empty());
        assert!(!database.cancel_pipeline_run("r", "x").await.unwrap(), "it has ended");
        let known = database.pipeline_run("r").await.unwrap().unwrap();
        assert_eq!((known.state.as_str(), known.ended, known.started), ("completed", Some(9), 5));
        assert!(database.reopen_pipeline_run(&run("r", 5), &[step(0, "pending")]).await.unwrap());
        assert!(!database.reopen_pipeline_run(&run("r", 5), &[]).await.unwrap(), "it runs again");
        assert!(database.cancel_pipeline_run("r", "x").await.unwrap());
        let costs = database.pipeline_tier_costs(9).await.unwrap();
        assert_eq!(costs, [TierCost { tier: "fast".into(), steps: 1, nanos: 7 }]);
        assert!(database.pipeline_tier_costs(10).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn runs_are_kept_for_90_days_after_their_end() {
        let (_folder, database) = database().await;
        for (id, started) in [("old", 1), ("open", 2)] {
            database.begin_pipeline_run(&run(id, started), &[step(0, "pending")]).await.unwrap();
        }
        let end = RunEnd { state: "failed".into(), reason: None, at: 3 };
        database.record_pipeline_steps("old", &[], &[], Some(&end)).await.unwrap();
        database.begin_pipeline_run(&run("new", KEPT_MS + 4), &[]).await.unwrap();
        let left = database.list_pipeline_runs(Some("p"), 10).await.unwrap();
        assert_eq!(left.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["new", "open"]);
        assert!(database.pipeline_steps("old").await.unwrap().is_empty());
        assert!(database.list_pipeline_runs(Some("q"), 10).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn pipelines_are_stored_listed_and_removed() {
        let (_folder, database) = database().await;
        let row = |id: &str, created| PipelineRow {
            id: id.into(),
            agent: "main".into(),
            name: "n".into(),
            definition: "{}".into(),
            labels: vec!["private".into()],
            source: "person".into(),
            created_by: "operator".into(),
            created,
        };
        for (id, created) in [("a", 1), ("b", 2), ("a", 3)] {
            database.add_pipeline(&row(id, created)).await.unwrap();
        }
        assert_eq!(database.list_pipelines().await.unwrap(), [row("b", 2), row("a", 1)]);
        assert_eq!(database.pipeline("a").await.unwrap(), Some(row("a", 1)));
        assert!(database.remove_pipeline("a").await.unwrap());
        assert!(!database.remove_pipeline("a").await.unwrap());
    }
}
