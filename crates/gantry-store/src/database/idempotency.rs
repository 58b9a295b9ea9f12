//! Idempotency keys: the answer of a request is stored, so that a retry gets the same answer and runs nothing.

use sqlx::{Row, Sqlite, Transaction};

use crate::database::{Database, DatabaseError, from_json, query_error, to_json};

const KEPT_MS: i64 = 24 * 3600 * 1000;
const MAX_KEY_CHARS: usize = 255;
/// A longer answer is not stored; a retry gets an error that says so.
pub const MAX_KEPT_ANSWER: usize = 16 * 1024 * 1024;
/// The total bytes of long answers. The oldest are removed first.
const MAX_KEPT_IN_ALL: i64 = 256 * 1024 * 1024;
/// Must match the index `idempotency_long`.
const LONG: usize = 65_536;
/// HTTP 410: the answer is no longer stored.
const GONE: u16 = 410;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub status: u16,
    pub content_type: String,
    /// Headers of the answer, such as the id of the call.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What to do with a request that has a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Run the request and call [`Database::finish_request`] with the answer.
    New,
    /// Return this answer.
    Replay(StoredAnswer),
    /// The key belongs to another request.
    OtherRequest,
    /// This gateway process began it at this time.
    InProgress { created: i64 },
    /// A previous gateway process began it at this time; whether it took effect is unknown.
    Interrupted { created: i64 },
}

impl Database {
    /// Reserves a key for a request, or returns the state of the request that has it.
    ///
    /// `request_hash` covers everything that makes two requests equal. `instance` identifies this gateway process.
    pub async fn begin_request(
        &self,
        principal: &str,
        key: &str,
        request_hash: &blake3::Hash,
        instance: &str,
        now: i64,
    ) -> Result<Begun, DatabaseError> {
        const DOING: &str = "look up the idempotency key";
        if key.is_empty() || key.chars().count() > MAX_KEY_CHARS {
            let message = format!("an idempotency key has 1 to {MAX_KEY_CHARS} characters");
            return Err(DatabaseError::Refused(message));
        }
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let row = sqlx::query(
            "SELECT request_hash, instance, status, content_type, body, headers, created FROM idempotency
             WHERE principal = $1 AND key = $2 AND created > $3",
        )
        .bind(principal)
        .bind(key)
        .bind(now - KEPT_MS)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(&failed)?;
        if let Some(row) = row {
            let kept_hash: Vec<u8> = row.try_get(0).map_err(&failed)?;
            let kept_instance: String = row.try_get(1).map_err(&failed)?;
            let status: Option<u16> = row.try_get(2).map_err(&failed)?;
            let created: i64 = row.try_get(6).map_err(&failed)?;
            return Ok(match status {
                _ if kept_hash != request_hash.as_bytes() => Begun::OtherRequest,
                Some(status) => Begun::Replay(StoredAnswer {
                    status,
                    content_type: row.try_get(3).map_err(&failed)?,
                    body: row.try_get(4).map_err(&failed)?,
                    headers: from_json(DOING, row.try_get(5).map_err(&failed)?)?,
                }),
                None if kept_instance == instance => Begun::InProgress { created },
                None => Begun::Interrupted { created },
            });
        }
        sqlx::query(
            "INSERT OR REPLACE INTO idempotency (principal, key, request_hash, instance, created)
             VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(principal)
        .bind(key)
        .bind(request_hash.as_bytes().as_slice())
        .bind(instance)
        .bind(now)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        transaction.commit().await.map_err(&failed)?;
        Ok(Begun::New)
    }

    /// Stores the answer of a request that got [`Begun::New`]. The first answer wins.
    pub async fn finish_request(
        &self,
        principal: &str,
        key: &str,
        answer: &StoredAnswer,
    ) -> Result<(), DatabaseError> {
        const DOING: &str = "keep the answer";
        let marker;
        let kept = if answer.body.len() <= MAX_KEPT_ANSWER {
            answer
        } else {
            let headers = answer.headers.clone();
            marker = StoredAnswer { headers, ..not_kept(answer.body.len()) };
            &marker
        };
        let mut transaction = self.write(DOING).await?;
        sqlx::query(
            "UPDATE idempotency SET status = $3, content_type = $4, body = $5, body_bytes = $6, headers = $7
             WHERE principal = $1 AND key = $2 AND status IS NULL",
        )
        .bind(principal)
        .bind(key)
        .bind(kept.status)
        .bind(&kept.content_type)
        .bind(&kept.body)
        .bind(i64::try_from(kept.body.len()).unwrap_or(i64::MAX))
        .bind(to_json(DOING, &kept.headers)?)
        .execute(&mut *transaction)
        .await
        .map_err(query_error(DOING))?;
        if kept.body.len() > LONG {
            make_room(DOING, &mut transaction, MAX_KEPT_IN_ALL).await?;
        }
        transaction.commit().await.map_err(query_error(DOING))
    }

    /// Releases a key whose request was rejected before it had any effect.
    pub async fn abandon_request(&self, principal: &str, key: &str) -> Result<(), DatabaseError> {
        sqlx::query("DELETE FROM idempotency WHERE principal = $1 AND key = $2 AND status IS NULL")
            .bind(principal)
            .bind(key)
            .execute(&self.writer)
            .await
            .map_err(query_error("give the idempotency key back"))?;
        Ok(())
    }

    /// Removes keys older than 24 hours; returns how many.
    pub async fn sweep_requests(&self, now: i64) -> Result<u64, DatabaseError> {
        let statement = "DELETE FROM idempotency WHERE rowid IN
               (SELECT rowid FROM idempotency WHERE created <= $1 LIMIT $2)";
        self.sweep_in_batches("sweep the idempotency keys", statement, now - KEPT_MS).await
    }
}

/// Replaces the oldest long answers with a marker until the rest fits.
async fn make_room(
    doing: &'static str,
    transaction: &mut Transaction<'static, Sqlite>,
    limit: i64,
) -> Result<(), DatabaseError> {
    let marker = not_kept(LONG);
    // The sum runs from the newest answer to the oldest; answers beyond the limit are removed.
    sqlx::query(
        "UPDATE idempotency SET status = $1, content_type = $2, body = $3, body_bytes = $4 WHERE rowid IN (
           SELECT number FROM (
             SELECT rowid AS number, SUM(body_bytes) OVER (ORDER BY created DESC, rowid DESC) AS total
             FROM idempotency WHERE body_bytes > 65536)
           WHERE total > $5)",
    )
    .bind(marker.status)
    .bind(marker.content_type)
    .bind(&marker.body)
    .bind(i64::try_from(marker.body.len()).unwrap_or(i64::MAX))
    .bind(limit)
    .execute(&mut **transaction)
    .await
    .map_err(query_error(doing))?;
    Ok(())
}

/// The answer to a retry when the first answer is not stored.
fn not_kept(bytes: usize) -> StoredAnswer {
    let message = format!(
        "the request was carried out, but its answer of {} is not kept for retries",
        if bytes > MAX_KEPT_ANSWER { format!("{bytes} bytes") } else { "many bytes".to_owned() }
    );
    let body = serde_json::json!({"error": {
        "code": "answer_not_kept", "message": message, "hint": "send the request again under another key, if it may run twice",
    }});
    StoredAnswer {
        status: GONE,
        content_type: "application/json".to_owned(),
        headers: Vec::new(),
        body: body.to_string().into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    fn answer(body: &str) -> StoredAnswer {
        StoredAnswer {
            status: 200,
            content_type: "application/json".into(),
            headers: vec![("call".into(), "ä".into()), ("warning".into(), "two".into())],
            body: body.into(),
        }
    }

    #[tokio::test]
    async fn retry_gets_the_first_answer_for_a_day() {
        let (_folder, database) = database().await;
        let (request, other) = (blake3::hash(b"one"), blake3::hash(b"two"));
        let begin = async |principal: &str, hash, instance: &str, now| {
            database.begin_request(principal, "k", hash, instance, now).await.unwrap()
        };
        assert_eq!(begin("operator", &request, "i1", 1).await, Begun::New);
        assert_eq!(begin("operator", &request, "i1", 2).await, Begun::InProgress { created: 1 });
        assert_eq!(begin("operator", &request, "i2", 2).await, Begun::Interrupted { created: 1 });
        assert_eq!(begin("operator", &other, "i1", 2).await, Begun::OtherRequest);
        assert_eq!(begin("client:ci", &other, "i1", 2).await, Begun::New, "keys are each principal's own");
        database.finish_request("operator", "k", &answer("first")).await.unwrap();
        database.finish_request("operator", "k", &answer("second")).await.unwrap();
        assert_eq!(begin("operator", &request, "i2", 3).await, Begun::Replay(answer("first")));
        assert_eq!(begin("operator", &other, "i2", 3).await, Begun::OtherRequest);
        assert_eq!(begin("operator", &request, "i2", KEPT_MS).await, Begun::Replay(answer("first")));
        assert_eq!(begin("operator", &other, "i2", KEPT_MS + 1).await, Begun::New, "a day later");
        assert_eq!(database.sweep_requests(KEPT_MS + 2).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn released_key_is_free_and_answered_key_is_not() {
        let (_folder, database) = database().await;
        let hash = blake3::hash(b"one");
        for _ in 0..2 {
            assert_eq!(database.begin_request("p", "k", &hash, "i", 1).await.unwrap(), Begun::New);
            database.abandon_request("p", "k").await.unwrap();
        }
        assert_eq!(database.begin_request("p", "k", &hash, "i", 1).await.unwrap(), Begun::New);
        database.finish_request("p", "k", &answer("done")).await.unwrap();
        database.abandon_request("p", "k").await.unwrap();
        assert_eq!(
            database.begin_request("p", "k", &hash, "i", 1).await.unwrap(),
            Begun::Replay(answer("done"))
        );
        for bad in ["", &"k".repeat(256)] {
            assert!(matches!(
                database.begin_request("p", bad, &hash, "i", 1).await,
                Err(DatabaseError::Refused(_))
            ));
        }
        assert_eq!(database.begin_request("p", &"ä".repeat(255), &hash, "i", 1).await.unwrap(), Begun::New);
    }

    /// Exactly one of many concurrent retries runs.
    #[tokio::test(flavor = "multi_thread")]
    async fn one_of_many_begins() {
        let (_folder, database) = database().await;
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let database = database.clone();
                tokio::spawn(async move {
                    database.begin_request("p", "k", &blake3::hash(b"r"), "i", 1).await.unwrap()
                })
            })
            .collect();
        let mut new = 0;
        for task in tasks {
            new += usize::from(task.await.unwrap() == Begun::New);
        }
        assert_eq!(new, 1);
    }

    #[tokio::test]
    async fn answers_that_are_too_long_are_reported_as_not_kept() {
        let (_folder, database) = database().await;
        let hash = blake3::hash(b"one");
        let begin = async |key: &str| database.begin_request("p", key, &hash, "i", 1).await.unwrap();
        begin("huge").await;
        database.finish_request("p", "huge", &answer(&"x".repeat(MAX_KEPT_ANSWER + 1))).await.unwrap();
        let Begun::Replay(replayed) = begin("huge").await else { panic!("no answer") };
        assert_eq!(
            (replayed.status, &replayed.headers),
            (GONE, &answer("").headers),
            "the id of the call is kept"
        );
        assert!(String::from_utf8(replayed.body).unwrap().contains("answer_not_kept"));

        let long = answer(&"y".repeat(LONG + 1));
        for key in ["a", "b", "c"] {
            begin(key).await;
            database.finish_request("p", key, &long).await.unwrap();
        }
        let mut transaction = database.write("test").await.unwrap();
        make_room("test", &mut transaction, 2 * (LONG as i64 + 1)).await.unwrap();
        transaction.commit().await.unwrap();
        let Begun::Replay(oldest) = begin("a").await else { panic!("no answer") };
        assert_eq!(oldest.status, GONE);
        for key in ["b", "c"] {
            assert_eq!(begin(key).await, Begun::Replay(long.clone()), "{key}");
        }
    }
}
