//! A look at the database from outside: whether it is one, of a version that is known, and sound.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::{Database, DatabaseError, MIGRATIONS};
use crate::DataDir;

/// SQLite's code for a statement that was told to stop.
const INTERRUPTED: &str = "9";

/// How many steps of SQLite's between two looks at the clock.
const STEPS: i32 = 10_000;

/// What a look at the database found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseState {
    /// There is none yet.
    Absent,
    Sound,
    /// Nothing is wrong with what could be read in time.
    SoundSoFar,
    /// The first thing that is wrong.
    Damaged(String),
}

impl Database {
    /// Looks whether the database can be used, for at most so long. Changes nothing in it, and nobody waits for it who writes.
    pub async fn inspect(data: &DataDir, limit: Duration) -> Result<DatabaseState, DatabaseError> {
        let path = data.database();
        let failed = |cause| DatabaseError::Open { path: path.clone(), cause };
        match std::fs::metadata(&path) {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(DatabaseState::Absent),
            Err(err) => return Err(failed(err.into())),
            // To open a pipe would wait for somebody to write into it.
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
            Ok(told) if told == "ok" => DatabaseState::Sound,
            Ok(told) => DatabaseState::Damaged(told),
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
    async fn a_look_is_bounded_and_in_nobodys_way() {
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
    async fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().to_owned());
        assert_eq!(Database::inspect(&data, LONG).await.unwrap(), DatabaseState::Absent);
        std::fs::create_dir(data.database()).unwrap();
        let told = Database::inspect(&data, LONG).await.unwrap_err().to_string();
        assert!(told.contains("not a regular file"), "{told}");
    }
}
