//! [`Database`] is the gateway's state in one SQLite file: tokens, nodes, sessions, transfers and kept answers.
//!
//! One connection writes, a few read. A write is on disk when its method returns (WAL, synchronous FULL). All times are
//! milliseconds since 1970. Several processes may use the file at once; each method is one transaction.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous,
};
use sqlx::{Connection, Sqlite, SqliteConnection, Transaction};

use crate::DataDir;

pub(crate) mod channels;
pub(crate) mod client_tokens;
pub(crate) mod cron_jobs;
pub(crate) mod cron_occurrences;
pub(crate) mod cron_runs;
pub(crate) mod grants;
pub(crate) mod idempotency;
pub(crate) mod inspection;
pub(crate) mod join_codes;
pub(crate) mod journal;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod outbox;
pub(crate) mod page_sessions;
pub(crate) mod pipelines;
pub(crate) mod plans;
pub(crate) mod process_ends;
pub(crate) mod processes;
pub(crate) mod retention;
mod run_leases;
pub(crate) mod spending;
pub(crate) mod taint_marks;
pub(crate) mod task_runs;
pub(crate) mod tasks;
pub(crate) mod transfers;
pub(crate) mod usage;
pub(crate) mod watches;

/// How long a statement waits for another process's write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_millis(5);
const READERS: u32 = 4;

/// Each entry migrates the schema by one version. Statements of existing entries never change.
const MIGRATIONS: [&str; 15] = [
    include_str!("database/1.sql"),
    include_str!("database/2.sql"),
    include_str!("database/3.sql"),
    include_str!("database/4.sql"),
    include_str!("database/5.sql"),
    include_str!("database/6.sql"),
    include_str!("database/7.sql"),
    include_str!("database/8.sql"),
    include_str!("database/9.sql"),
    include_str!("database/10.sql"),
    include_str!("database/11.sql"),
    include_str!("database/12.sql"),
    include_str!("database/13.sql"),
    include_str!("database/14.sql"),
    include_str!("database/15.sql"),
];

/// The database, open. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Database {
    writer: SqlitePool,
    readers: SqlitePool,
}

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("cannot open the database {}: {cause}", .path.display())]
    Open { path: PathBuf, cause: sqlx::Error },
    #[error("cannot make the database {}: {cause}", .path.display())]
    Make { path: PathBuf, cause: std::io::Error },
    #[error("the database {} was made by a newer Gantry (version {found}; this one knows {known})", .path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("cannot {doing}: {cause}")]
    Query { doing: &'static str, cause: sqlx::Error },
    #[error("cannot {doing}: a stored value does not parse: {cause}")]
    Damaged { doing: &'static str, cause: serde_json::Error },
    /// The transaction that this append shared with others failed.
    #[error("{0}")]
    Journal(String),
    #[error("cannot make a token: {0}")]
    Random(std::io::Error),
    /// The caller can fix this.
    #[error("{0}")]
    Refused(String),
}

/// SQLite's codes for a damaged file and for a file that is not a database.
const DAMAGED: [&str; 2] = ["11", "26"];

impl DatabaseError {
    /// Whether the file itself is unusable.
    pub fn is_damage(&self) -> bool {
        match self {
            DatabaseError::Open { cause: sqlx::Error::Database(err), .. }
            | DatabaseError::Query { cause: sqlx::Error::Database(err), .. } => {
                err.code().is_some_and(|code| DAMAGED.contains(&&*code))
            }
            _ => false,
        }
    }
}

impl Database {
    /// Opens the database of a data directory. Creates or migrates it if needed.
    pub async fn open(data: &DataDir) -> Result<Database, DatabaseError> {
        let path = data.database();
        data.create().map_err(|err| DatabaseError::Make { path: path.clone(), cause: err.into() })?;
        make_private(&path).map_err(|cause| DatabaseError::Make { path: path.clone(), cause })?;
        let options =
            SqliteConnectOptions::new().filename(&path).busy_timeout(BUSY_TIMEOUT).foreign_keys(true);
        // Takes effect when the file is created, and lets the file shrink later.
        let writing = (options.clone().auto_vacuum(SqliteAutoVacuum::Incremental))
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let failed = |cause| DatabaseError::Open { path: path.clone(), cause };
        let writer = connect(writing).await.map_err(failed)?;
        let mut connection = writer.acquire().await.map_err(failed)?;
        migrate(&mut connection, &path).await?;
        drop(connection);
        // Readers connect on first use, so that the start does not wait for them.
        let readers = pool(READERS).connect_lazy_with(options.read_only(true));
        Ok(Database { writer, readers })
    }

    /// Opens the database if it exists, for commands that only read.
    pub async fn open_existing(data: &DataDir) -> Result<Option<Database>, DatabaseError> {
        match data.database().exists() {
            true => Database::open(data).await.map(Some),
            false => Ok(None),
        }
    }

    /// Closes every connection after its current statement.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Begins a transaction that holds the write lock from the start, so that another writer cannot make it fail midway.
    async fn write(&self, doing: &'static str) -> Result<Transaction<'static, Sqlite>, DatabaseError> {
        let begun = match self.writer.begin_with("BEGIN IMMEDIATE").await {
            // SQLite rolls a transaction back by itself when the disk is full, but the connection still counts it as open.
            Err(sqlx::Error::InvalidSavePointStatement) => {
                let mut connection = self.writer.acquire().await.map_err(query_error(doing))?;
                connection.close_on_drop();
                drop(connection);
                self.writer.begin_with("BEGIN IMMEDIATE").await
            }
            begun => begun,
        };
        begun.map_err(query_error(doing))
    }
}

/// Connects the writer. SQLite does not wait when two connections switch a new database to WAL at once: it reports "busy"
/// immediately, whatever the busy timeout. So this waits.
async fn connect(options: SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    let until = tokio::time::Instant::now() + BUSY_TIMEOUT;
    loop {
        match pool(1).connect_with(options.clone()).await {
            Err(err) if is_busy(&err) && tokio::time::Instant::now() < until => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// Whether another connection holds a lock. The low byte of SQLite's extended code is the primary code.
fn is_busy(err: &sqlx::Error) -> bool {
    const BUSY: u32 = 5;
    let sqlx::Error::Database(err) = err else { return false };
    err.code().and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == BUSY)
}

fn pool(connections: u32) -> PoolOptions<Sqlite> {
    PoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
}

/// Creates the file with mode 0600. SQLite gives its companion files the same mode.
fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::File::options().append(true).create(true).mode(0o600).open(path).map(drop)
}

async fn migrate(connection: &mut SqliteConnection, path: &Path) -> Result<(), DatabaseError> {
    let failed = |cause| DatabaseError::Open { path: path.to_owned(), cause };
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let version = "PRAGMA user_version";
    let found: i64 = sqlx::query_scalar(version).fetch_one(&mut *connection).await.map_err(failed)?;
    if found == known {
        return Ok(());
    }
    // The version is read again under the write lock, because another process may be migrating too.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    let found: i64 = sqlx::query_scalar(version).fetch_one(&mut *transaction).await.map_err(failed)?;
    if found > known {
        return Err(DatabaseError::Newer { path: path.to_owned(), found, known });
    }
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

fn query_error(doing: &'static str) -> impl Fn(sqlx::Error) -> DatabaseError {
    move |cause| DatabaseError::Query { doing, cause }
}

/// The placeholders of a list of values, from the parameter `first`: `$5, $6, $7`. An empty list matches nothing.
fn placeholders(first: usize, count: usize) -> String {
    let numbers: Vec<String> = (first..first + count).map(|number| format!("${number}")).collect();
    if numbers.is_empty() { "NULL".to_owned() } else { numbers.join(", ") }
}

/// Lists are stored as JSON text.
fn to_json(doing: &'static str, value: &impl serde::Serialize) -> Result<String, DatabaseError> {
    serde_json::to_string(value).map_err(|cause| DatabaseError::Damaged { doing, cause })
}

fn from_json<T: serde::de::DeserializeOwned>(doing: &'static str, text: &str) -> Result<T, DatabaseError> {
    serde_json::from_str(text).map_err(|cause| DatabaseError::Damaged { doing, cause })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Opens a database in a temporary directory.
    pub(crate) async fn database() -> (tempfile::TempDir, Database) {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&DataDir::new(folder.path().join("data"))).await.unwrap();
        (folder, database)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn files_are_private_and_writes_are_synced() {
        let (folder, database) = testing::database().await;
        database.add_node("box", &[], 1).await.unwrap();
        for name in ["gateway.db", "gateway.db-wal", "gateway.db-shm"] {
            let mode = std::fs::metadata(folder.path().join("data").join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let mut writer = database.writer.acquire().await.unwrap();
        let full: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *writer).await.unwrap();
        let journal: String =
            sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *writer).await.unwrap();
        assert_eq!((full, journal.as_str()), (2, "wal"));
    }

    /// Simulates a commit on a full disk: the next transaction works again.
    #[tokio::test]
    async fn transaction_rolled_back_by_sqlite_does_not_block_the_next() {
        let (_folder, database) = testing::database().await;
        let mut transaction = database.write("fill the disk").await.unwrap();
        sqlx::raw_sql("ROLLBACK").execute(&mut *transaction).await.unwrap();
        assert!(transaction.commit().await.is_err());
        database.add_node("a", &[], 1).await.unwrap();
        database.rename_node("a", "b").await.unwrap();
        assert!(database.node("b").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn newer_database_is_rejected_unchanged() {
        let (folder, database) = testing::database().await;
        sqlx::raw_sql("PRAGMA user_version = 99").execute(&database.writer).await.unwrap();
        database.close().await;
        let again = Database::open(&DataDir::new(folder.path().join("data"))).await;
        assert!(matches!(again, Err(DatabaseError::Newer { found: 99, .. })), "{again:?}");
    }

    #[tokio::test]
    async fn readers_cannot_write() {
        let (_folder, database) = testing::database().await;
        assert!(sqlx::raw_sql("DELETE FROM nodes").execute(&database.readers).await.is_err());
    }

    /// Two processes that create the same database at once both get a complete one.
    #[tokio::test(flavor = "multi_thread")]
    async fn openers_at_once_agree() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        let opening: Vec<_> = (0..8)
            .map(|number| {
                let data = data.clone();
                tokio::spawn(async move {
                    let database = Database::open(&data).await.unwrap();
                    database.add_node(&format!("node-{number}"), &[], 1).await.unwrap();
                })
            })
            .collect();
        for opened in opening {
            opened.await.unwrap();
        }
        let database = Database::open(&data).await.unwrap();
        assert_eq!(database.list_nodes().await.unwrap().len(), 8);
    }
}
