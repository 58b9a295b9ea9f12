//! Leases of runs. A run belongs to the process in `owner`, and every write of that process carries the run's epoch. A process
//! that lost a run cannot change it.
//!
//! The tables of runs of schedules and tasks share these columns: `id`, `state`, `owner`, `epoch`, `started`, `ended`, `error`,
//! `cost`.

use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::database::{Database, DatabaseError, query_error};

/// A table of runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunTable {
    pub(super) name: &'static str,
    /// The columns that reads return.
    pub(super) columns: &'static str,
}

/// The right of a process to write a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease<'a> {
    pub(super) id: &'a str,
    pub(super) owner: Option<&'a str>,
    pub(super) epoch: i64,
}

impl RunTable {
    /// Takes queued runs. `startable` selects their ids; its parameters are the time and the highest number of runs.
    pub(super) async fn claim(
        self,
        connection: &mut SqliteConnection,
        startable: &str,
        owner: &str,
        limit: u32,
        now: i64,
    ) -> Result<Vec<SqliteRow>, DatabaseError> {
        let RunTable { name, columns } = self;
        let statement = format!(
            "UPDATE {name} SET state = 'running', owner = $3, epoch = epoch + 1, started = $1
             WHERE id IN ({startable}) AND state = 'queued' RETURNING {columns}"
        );
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(now)
            .bind(limit)
            .bind(owner)
            .fetch_all(connection)
            .await
            .map_err(query_error("take queued runs"))
    }

    /// Takes over the runs that other processes left. They must have ended: one gateway at a time locks the data directory.
    pub(super) async fn adopt(
        self,
        database: &Database,
        owner: &str,
    ) -> Result<Vec<SqliteRow>, DatabaseError> {
        let failed = query_error("take over interrupted runs");
        let RunTable { name, columns } = self;
        let others = "state IN ('running', 'parked') AND owner <> $1";
        // A start without such runs writes nothing.
        let left: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {name} WHERE {others}")))
                .bind(owner)
                .fetch_one(&database.readers)
                .await
                .map_err(&failed)?;
        if left == 0 {
            return Ok(Vec::new());
        }
        let statement =
            format!("UPDATE {name} SET owner = $1, epoch = epoch + 1 WHERE {others} RETURNING {columns}");
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(owner)
            .fetch_all(&database.writer)
            .await
            .map_err(&failed)
    }

    /// Parks a run that waits for a person, or continues it. Returns false if the process lost the run.
    pub(super) async fn park(
        self,
        database: &Database,
        lease: Lease<'_>,
        parked: bool,
    ) -> Result<bool, DatabaseError> {
        let (from, to) = if parked { ("running", "parked") } else { ("parked", "running") };
        let statement = format!(
            "UPDATE {} SET state = $4 WHERE id = $1 AND owner = $2 AND epoch = $3 AND state = $5",
            self.name
        );
        let changed = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(lease.id)
            .bind(lease.owner)
            .bind(lease.epoch)
            .bind(to)
            .bind(from)
            .execute(&database.writer)
            .await
            .map_err(query_error("park a run"))?;
        Ok(changed.rows_affected() > 0)
    }

    /// Ends a run. Returns false if the process lost the run or the run has ended.
    pub(super) async fn end(
        self,
        connection: &mut SqliteConnection,
        lease: Lease<'_>,
        end: (&str, Option<&str>, i64),
        now: i64,
    ) -> Result<bool, DatabaseError> {
        let (state, error, cost) = end;
        let statement = format!(
            "UPDATE {} SET state = $4, ended = $5, error = $6, cost = $7
             WHERE id = $1 AND owner = $2 AND epoch = $3 AND state IN ('running', 'parked')",
            self.name
        );
        let ended = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(lease.id)
            .bind(lease.owner)
            .bind(lease.epoch)
            .bind(state)
            .bind(now)
            .bind(error)
            .bind(cost)
            .execute(connection)
            .await
            .map_err(query_error("end a run"))?;
        Ok(ended.rows_affected() > 0)
    }
}
