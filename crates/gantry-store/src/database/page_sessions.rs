//! Browsers that are logged in to the web page. A session has a cookie and a key, and both are needed.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::database::{Database, DatabaseError, query_error};
use crate::token::{self, PlainToken};

const COOKIE_PREFIX: &str = "gps_";
const KEY_PREFIX: &str = "gpk_";

/// A session ends after this time without use.
pub const PAGE_SESSION_IDLE_MS: i64 = 30 * 24 * 3600 * 1000;

/// The time of last use is written at most this often.
const LAST_USED_STEP_MS: i64 = 60_000;

/// A browser that is logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSession {
    pub id: String,
    pub browser: String,
    pub address: String,
    pub created: i64,
    pub last_used: i64,
}

/// The two halves of a new session, shown only once.
#[derive(Debug)]
pub struct PageCredentials {
    pub id: String,
    pub cookie: PlainToken,
    pub key: PlainToken,
}

impl Database {
    /// Stores a new session, and removes those that have ended.
    pub async fn add_page_session(
        &self,
        browser: &str,
        address: &str,
        now: i64,
    ) -> Result<PageCredentials, DatabaseError> {
        const DOING: &str = "add the page session";
        let make = |prefix| PlainToken::make(prefix).map_err(DatabaseError::Random);
        let made = PageCredentials {
            id: uuid::Uuid::new_v4().simple().to_string(),
            cookie: make(COOKIE_PREFIX)?,
            key: make(KEY_PREFIX)?,
        };
        let mut transaction = self.write(DOING).await?;
        sqlx::query("DELETE FROM page_sessions WHERE last_used <= $1")
            .bind(now - PAGE_SESSION_IDLE_MS)
            .execute(&mut *transaction)
            .await
            .map_err(query_error(DOING))?;
        sqlx::query("INSERT INTO page_sessions VALUES ($1, $2, $3, $4, $5, $6, $6)")
            .bind(&made.id)
            .bind(blake3::hash(made.cookie.expose().as_bytes()).as_bytes().as_slice())
            .bind(blake3::hash(made.key.expose().as_bytes()).as_bytes().as_slice())
            .bind(browser)
            .bind(address)
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(query_error(DOING))?;
        transaction.commit().await.map_err(query_error(DOING))?;
        Ok(made)
    }

    /// Returns the session of a cookie and a key. `None` if one of them is wrong, or the session has ended.
    pub async fn check_page_session(
        &self,
        cookie: &str,
        key: &str,
        now: i64,
    ) -> Result<Option<PageSession>, DatabaseError> {
        const DOING: &str = "check the page session";
        let hashes = (token::hash(COOKIE_PREFIX, cookie), token::hash(KEY_PREFIX, key));
        let (Some(cookie), Some(key)) = hashes else { return Ok(None) };
        // The lookup by hash reveals nothing about a cookie of 256 random bits through its timing.
        let row = sqlx::query("SELECT * FROM page_sessions WHERE cookie_hash = $1 AND last_used > $2")
            .bind(cookie.as_bytes().as_slice())
            .bind(now - PAGE_SESSION_IDLE_MS)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error(DOING))?;
        let Some(row) = row else { return Ok(None) };
        let kept: Vec<u8> = row.try_get("key_hash").map_err(query_error(DOING))?;
        if !token::is_same(&kept, &key) {
            return Ok(None);
        }
        let session = page_session(&row)?;
        self.use_page_session(&session.id, now).await?;
        Ok(Some(session))
    }

    /// Records that a session is in use.
    pub async fn use_page_session(&self, id: &str, now: i64) -> Result<(), DatabaseError> {
        sqlx::query("UPDATE page_sessions SET last_used = $2 WHERE id = $1 AND last_used <= $3")
            .bind(id)
            .bind(now)
            .bind(now - LAST_USED_STEP_MS)
            .execute(&self.writer)
            .await
            .map(drop)
            .map_err(query_error("record the use of the page session"))
    }

    /// Returns the sessions that have not ended, the last used first.
    pub async fn list_page_sessions(&self, now: i64) -> Result<Vec<PageSession>, DatabaseError> {
        let rows = sqlx::query(
            "SELECT * FROM page_sessions WHERE last_used > $1 ORDER BY last_used DESC, created DESC",
        )
        .bind(now - PAGE_SESSION_IDLE_MS)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error("list the page sessions"))?;
        rows.iter().map(page_session).collect()
    }

    /// Removes a session. Returns false if there is none with this id.
    pub async fn remove_page_session(&self, id: &str) -> Result<bool, DatabaseError> {
        let removed =
            sqlx::query("DELETE FROM page_sessions WHERE id = $1").bind(id).execute(&self.writer).await;
        Ok(removed.map_err(query_error("remove the page session"))?.rows_affected() > 0)
    }
}

fn page_session(row: &SqliteRow) -> Result<PageSession, DatabaseError> {
    let failed = query_error("read a page session");
    Ok(PageSession {
        id: row.try_get("id").map_err(&failed)?,
        browser: row.try_get("browser").map_err(&failed)?,
        address: row.try_get("address").map_err(&failed)?,
        created: row.try_get("created").map_err(&failed)?,
        last_used: row.try_get("last_used").map_err(&failed)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    const NOW: i64 = 1_800_000_000_000;

    #[tokio::test]
    async fn session_needs_its_cookie_and_its_key() {
        let (_folder, database) = database().await;
        let one = database.add_page_session("Firefox", "127.0.0.1", NOW).await.unwrap();
        let other = database.add_page_session("Firefox", "127.0.0.1", NOW).await.unwrap();
        let (cookie, key) = (one.cookie.expose(), one.key.expose());
        let check = async |cookie: &str, key: &str| {
            database.check_page_session(cookie, key, NOW).await.unwrap().map(|session| session.id)
        };
        assert_eq!(check(cookie, key).await, Some(one.id.clone()));
        for (cookie, key) in [
            (cookie, ""),
            ("", key),
            (key, cookie),
            (cookie, other.key.expose()),
            (other.cookie.expose(), key),
            (&cookie[..cookie.len() - 1], key),
        ] {
            assert_eq!(check(cookie, key).await, None, "{cookie} {key}");
        }
        assert!(database.remove_page_session(&one.id).await.unwrap());
        assert!(!database.remove_page_session(&one.id).await.unwrap());
        assert_eq!(check(cookie, key).await, None);
        assert_eq!(check(other.cookie.expose(), other.key.expose()).await, Some(other.id));
    }

    #[tokio::test]
    async fn session_ends_when_it_is_not_used() {
        let (_folder, database) = database().await;
        let made = database.add_page_session("Firefox", "127.0.0.1", NOW).await.unwrap();
        let check = async |now: i64| {
            let checked = database.check_page_session(made.cookie.expose(), made.key.expose(), now).await;
            checked.unwrap().is_some()
        };
        assert!(check(NOW + PAGE_SESSION_IDLE_MS - 1).await, "one use counts for another 30 days");
        assert!(check(NOW + 2 * PAGE_SESSION_IDLE_MS - 2).await);
        assert!(!check(NOW + 4 * PAGE_SESSION_IDLE_MS).await);
        assert_eq!(database.list_page_sessions(NOW + 4 * PAGE_SESSION_IDLE_MS).await.unwrap(), []);
    }
}
