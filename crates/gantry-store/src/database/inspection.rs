//! Checks whether the database file is valid, of a known version, and undamaged.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::{Database, DatabaseError, MIGRATIONS};
use crate::DataDir;

/// SQLite's code for an interrupted statement.
const INTERRUPTED: &str = "9";

/// How many SQLite steps run between two checks of the clock.
const STEPS: i32 = 10_000;

/// The result of an inspection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseState {
    /// No database exists yet.
    Absent,
    Sound,
    /// No problem was found in what could be read in time.
    SoundSoFar,
    /// The first problem.
    Damaged(String),
}

impl Database {
    /// Checks for a limited time whether the database can be used. Changes nothing and blocks no writer.
    pub async fn inspect(data: &DataDir, limit: Duration) -> Result<DatabaseState, DatabaseError> {
        let path = data.database();
        let failed = |cause| DatabaseError::Open { path: path.clone(), cause };
        match std::fs::metadata(&path) {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(DatabaseState::Absent),
            Err(err) => return Err(failed(err.into())),
            // Opening a pipe would block until another process writes to it.
            Ok(found) if !found.is_file() => {
                return Err(failed(std::io::Error::other("not a regular file").into()));
            }
            Ok(_) => {}
        }
        let until = Instant::now() + limit;
        let options = SqliteConnectOptions::new().filename(&path).read_only(true).busy_timeout(limit);
        let mut connection = options.connect().await.map_err(failed)?;
        let found: i64 =
            sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut connection).await.map_err(failed)?;
        let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        if found > known {
            return Err(DatabaseError::Newer { path: path.clone(), found, known });
        }
        let mut handle = connection.lock_handle().await.map_err(failed)?;
        handle.set_progress_handler(STEPS, move || Instant::now() < until);
        drop(handle);
        let looked =
            sqlx::query_scalar::<_, String>("PRAGMA quick_check(1)").fetch_one(&mut connection).await;
        let state = match looked {
            Ok(result) if result == "ok" => DatabaseState::Sound,
            Ok(result) => DatabaseState::Damaged(result),
            Err(sqlx::Error::Database(err)) if err.code().as_deref() == Some(INTERRUPTED) => {
                DatabaseState::SoundSoFar
            }
            Err(err) => return Err(failed(err)),
        };
        connection.close().await.map_err(failed)?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn inspection_is_bounded_and_blocks_no_writer() {
        let (folder, database) = testing::database().await;
        let data = DataDir::new(folder.path().join("data"));
        for number in 0..2000 {
            database.add_node(&format!("node-{number}"), &[], 1).await.unwrap();
        }
        let writing = database.write("write meanwhile").await.unwrap();
        assert_eq!(Database::inspect(&data, LONG).await.unwrap(), DatabaseState::Sound);
        writing.commit().await.unwrap();
        assert_eq!(Database::inspect(&data, Duration::ZERO).await.unwrap(), DatabaseState::SoundSoFar);
        sqlx::raw_sql("PRAGMA user_version = 99").execute(&database.writer).await.unwrap();
        let newer = Database::inspect(&data, LONG).await;
        assert!(matches!(newer, Err(DatabaseError::Newer { found: 99, .. })), "{newer:?}");
    }

    #[tokio::test]
    async fn pipe_instead_of_the_database_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().to_owned());
        assert_eq!(Database::inspect(&data, LONG).await.unwrap(), DatabaseState::Absent);
        std::fs::create_dir(data.database()).unwrap();
        let result = Database::inspect(&data, LONG).await.unwrap_err().to_string();
        assert!(result.contains("not a regular file"), "{result}");
    }
}
