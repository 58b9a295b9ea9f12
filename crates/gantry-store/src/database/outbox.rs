//! The outbox: messages that leave the gateway. `sending` is on disk before a message is sent, so a crash during the send
//! leaves a trace.

use gantry_protocol::{OutboxBody, OutboxMessage, OutboxState};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use crate::database::{Database, DatabaseError, cron_runs, from_json, query_error, to_json};

/// How long a message is sent before it expires, unless its sender says otherwise.
const EXPIRES_MS: i64 = 24 * 3600 * 1000;
/// How long a message is kept after its end.
const KEPT_MS: i64 = 30 * 24 * 3600 * 1000;
const COLUMNS: &str = "id, dedupe, channel, target, body, state, attempts, next_at, created, updated, expires, error, provider_id";

/// A message to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOutboxMessage {
    /// A message with a known key is not stored again.
    pub dedupe: String,
    pub channel: String,
    pub target: String,
    pub body: OutboxBody,
    /// 24 hours from now when `None`.
    pub expires: Option<i64>,
}

/// A message that this process sends now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedMessage {
    pub message: OutboxMessage,
    pub epoch: i64,
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledMessage {
    pub id: String,
    pub epoch: i64,
    pub state: OutboxState,
    /// The next attempt, for `queued`.
    pub next_at: Option<i64>,
    pub error: Option<String>,
    /// The receiver's id of the message, for `sent`.
    pub provider_id: Option<String>,
}

/// The name of a chat message at its provider: stable over attempts and restarts, 40 characters of `[0-9a-f]`.
pub fn send_key(dedupe: &str) -> String {
    blake3::hash(dedupe.as_bytes()).to_hex()[..40].to_owned()
}

/// Stores a message within another subject's transaction. Returns its id, or `None` if its key is known.
pub(crate) async fn insert_outbox(
    connection: &mut SqliteConnection,
    message: &NewOutboxMessage,
    now: i64,
) -> Result<Option<String>, DatabaseError> {
    const DOING: &str = "store a message in the outbox";
    let id = Uuid::now_v7().simple().to_string();
    let expires = message.expires.unwrap_or_else(|| now.saturating_add(EXPIRES_MS));
    let chat = message.body.chat.as_deref();
    let inserted = sqlx::query(
        "INSERT INTO outbox (id, dedupe, channel, target, body, state, attempts, next_at, epoch, created, updated, expires,
           handle, ordered, send_key)
         VALUES ($1, $2, $3, $4, $5, $8, 0, $6, 0, $6, $6, $7, $9, $10, $11) ON CONFLICT (dedupe) DO NOTHING",
    )
    .bind(&id)
    .bind(&message.dedupe)
    .bind(&message.channel)
    .bind(&message.target)
    .bind(to_json(DOING, &message.body)?)
    .bind(now)
    .bind(expires)
    .bind(if chat.is_some_and(|chat| chat.held) { OutboxState::Held } else { OutboxState::Queued }.name())
    .bind(chat.and_then(|chat| chat.question.as_ref()).map(|question| &question.handle))
    .bind(chat.is_some())
    .bind(chat.map(|_| send_key(&message.dedupe)))
    .execute(connection)
    .await
    .map_err(query_error(DOING))?;
    Ok((inserted.rows_affected() > 0).then_some(id))
}

impl Database {
    /// Stores messages. Those with a known key are left out. Returns how many were stored.
    pub async fn add_outbox(&self, messages: &[NewOutboxMessage], now: i64) -> Result<usize, DatabaseError> {
        const DOING: &str = "store messages in the outbox";
        let mut transaction = self.write(DOING).await?;
        let mut added = 0;
        for message in messages {
            added += usize::from(insert_outbox(&mut transaction, message, now).await?.is_some());
        }
        transaction.commit().await.map_err(query_error(DOING))?;
        Ok(added)
    }

    /// Returns when the next message is due. Messages to a chat that wait for an earlier one are left out.
    pub async fn next_outbox(&self) -> Result<Option<i64>, DatabaseError> {
        sqlx::query_scalar(
            "SELECT MIN(next_at) FROM outbox AS one WHERE state = 'queued' AND (ordered = 0 OR NOT EXISTS (
               SELECT 1 FROM outbox AS earlier WHERE earlier.channel = one.channel AND earlier.target = one.target
                 AND earlier.ordered = 1 AND earlier.state IN ('queued', 'sending') AND earlier.id < one.id))",
        )
            .fetch_one(&self.readers)
            .await
            .map_err(query_error("look into the outbox"))
    }

    /// Records the outcomes of attempts and claims up to `limit` due messages, in one transaction. Claimed messages are
    /// `sending` on disk when this returns. Messages past their time become `expired`.
    pub async fn turn_outbox(
        &self,
        owner: &str,
        settled: &[SettledMessage],
        limit: u32,
        now: i64,
    ) -> Result<Vec<ClaimedMessage>, DatabaseError> {
        const DOING: &str = "work through the outbox";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        for one in settled {
            let message: Option<(String, i64, i64)> = sqlx::query_as(
                "UPDATE outbox SET state = $4, next_at = COALESCE($5, next_at), error = $6, updated = $7, owner = NULL,
                   provider_id = COALESCE($8, provider_id)
                 WHERE id = $1 AND state = 'sending' AND owner = $2 AND epoch = $3 RETURNING dedupe, expires, attempts",
            )
            .bind(&one.id)
            .bind(owner)
            .bind(one.epoch)
            .bind(one.state.name())
            .bind(one.next_at)
            .bind(&one.error)
            .bind(now)
            .bind(&one.provider_id)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(&failed)?;
            if let Some((dedupe, ..)) = message {
                cron_runs::note_delivery(&mut transaction, &dedupe, one.state, one.error.as_deref()).await?;
            }
        }
        let expired: Vec<String> = sqlx::query_scalar(
            "UPDATE outbox SET state = 'expired', updated = $1 WHERE state = 'queued' AND next_at <= $1 AND expires <= $1
             RETURNING dedupe",
        )
        .bind(now)
        .fetch_all(&mut *transaction)
        .await
        .map_err(&failed)?;
        for dedupe in expired {
            cron_runs::note_delivery(&mut transaction, &dedupe, OutboxState::Expired, None).await?;
        }
        let rows = match limit {
            0 => Vec::new(),
            limit => sqlx::query(sqlx::AssertSqlSafe(format!(
                "UPDATE outbox SET state = 'sending', owner = $1, epoch = epoch + 1, attempts = attempts + 1, updated = $2
                 WHERE id IN (
                   SELECT id FROM outbox AS one WHERE state = 'queued' AND next_at <= $2 AND (ordered = 0 OR NOT EXISTS (
                     SELECT 1 FROM outbox AS earlier WHERE earlier.channel = one.channel AND earlier.target = one.target
                       AND earlier.ordered = 1 AND earlier.state IN ('queued', 'sending') AND earlier.id < one.id))
                   ORDER BY next_at, id LIMIT $3)
                 RETURNING {COLUMNS}, epoch"
            )))
            .bind(owner)
            .bind(now)
            .bind(limit)
            .fetch_all(&mut *transaction)
            .await
            .map_err(&failed)?,
        };
        transaction.commit().await.map_err(&failed)?;
        let claimed = |row: &SqliteRow| {
            let epoch = row.try_get("epoch").map_err(&failed)?;
            Ok(ClaimedMessage { message: message(DOING, row)?, epoch })
        };
        rows.iter().map(claimed).collect()
    }

    /// Handles messages that an earlier process left in `sending`: they may have arrived. Messages of channels that ignore a
    /// repetition are sent again, the others become `unknown`. Returns how many became `unknown`.
    pub async fn recover_outbox(
        &self,
        owner: &str,
        repeatable: &[&str],
        now: i64,
    ) -> Result<u64, DatabaseError> {
        const DOING: &str = "look for interrupted messages";
        let failed = query_error(DOING);
        let found: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM outbox WHERE state = 'sending' AND owner <> $1")
                .bind(owner)
                .fetch_one(&self.readers)
                .await
                .map_err(&failed)?;
        if found == 0 {
            return Ok(0);
        }
        let mut transaction = self.write(DOING).await?;
        for channel in repeatable {
            sqlx::query(
                "UPDATE outbox SET state = 'queued', owner = NULL, next_at = $3
                 WHERE state = 'sending' AND owner <> $1 AND channel = $2",
            )
            .bind(owner)
            .bind(channel)
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        }
        const WHY: &str = "the gateway stopped while it was sent";
        let unknown: Vec<String> = sqlx::query_scalar(
            "UPDATE outbox SET state = 'unknown', owner = NULL, updated = $2, error = $3
             WHERE state = 'sending' AND owner <> $1 RETURNING dedupe",
        )
        .bind(owner)
        .bind(now)
        .bind(WHY)
        .fetch_all(&mut *transaction)
        .await
        .map_err(&failed)?;
        for dedupe in &unknown {
            cron_runs::note_delivery(&mut transaction, dedupe, OutboxState::Unknown, Some(WHY)).await?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(unknown.len() as u64)
    }

    /// Returns messages: those that need a person first, then the newest, with the number of all that match. With agents,
    /// only their messages.
    pub async fn list_outbox(
        &self,
        state: Option<OutboxState>,
        agents: Option<&[String]>,
        limit: u32,
        offset: u32,
    ) -> Result<(Vec<OutboxMessage>, u64), DatabaseError> {
        const DOING: &str = "list the outbox";
        let failed = query_error(DOING);
        let matches = "($1 IS NULL OR state = $1) AND ($2 IS NULL OR json_extract(body, '$.agent') IN
            (SELECT value FROM json_each($2)))";
        let agents = agents.map(|agents| serde_json::json!(agents).to_string());
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM outbox WHERE {matches}
             ORDER BY CASE WHEN state IN ('unknown', 'failed') THEN 0 ELSE 1 END, created DESC, id DESC LIMIT $3 OFFSET $4"
        )))
        .bind(state.map(OutboxState::name))
        .bind(&agents)
        .bind(limit)
        .bind(offset)
        .fetch_all(&self.readers)
        .await
        .map_err(&failed)?;
        let total: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM outbox WHERE {matches}")))
                .bind(state.map(OutboxState::name))
                .bind(&agents)
                .fetch_one(&self.readers)
                .await
                .map_err(&failed)?;
        let messages: Result<Vec<_>, _> = rows.iter().map(|row| message(DOING, row)).collect();
        Ok((messages?, total.unsigned_abs()))
    }

    /// Returns the messages whose ids start with `prefix`, at most two.
    pub async fn find_outbox(&self, prefix: &str) -> Result<Vec<OutboxMessage>, DatabaseError> {
        const DOING: &str = "read a message of the outbox";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM outbox WHERE id >= $1 AND substr(id, 1, length($1)) = $1 ORDER BY id LIMIT 2"
        )))
        .bind(prefix)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error(DOING))?;
        rows.iter().map(|row| message(DOING, row)).collect()
    }

    /// Returns the message with this key.
    pub async fn outbox_message(&self, dedupe: &str) -> Result<Option<OutboxMessage>, DatabaseError> {
        const DOING: &str = "read a message of the outbox";
        let row = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM outbox WHERE dedupe = $1")))
            .bind(dedupe)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error(DOING))?;
        row.map(|row| message(DOING, &row)).transpose()
    }

    /// Returns the message whose question has this handle.
    pub async fn outbox_question(&self, handle: &str) -> Result<Option<OutboxMessage>, DatabaseError> {
        const DOING: &str = "read a question of the outbox";
        let row = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM outbox WHERE handle = $1")))
            .bind(handle)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error(DOING))?;
        row.map(|row| message(DOING, &row)).transpose()
    }

    /// Returns the questions that were sent to a chat since a time, the newest first.
    pub async fn outbox_questions_of(
        &self,
        channel: &str,
        target: &str,
        since: i64,
    ) -> Result<Vec<OutboxMessage>, DatabaseError> {
        const DOING: &str = "read the questions of a chat";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM outbox WHERE handle IS NOT NULL AND channel = $1 AND target = $2 AND created >= $3
               AND state IN ('sent', 'unknown') ORDER BY id DESC LIMIT 20"
        )))
        .bind(channel)
        .bind(target)
        .bind(since)
        .fetch_all(&self.readers)
        .await
        .map_err(query_error(DOING))?;
        rows.iter().map(|row| message(DOING, row)).collect()
    }

    /// Counts the messages of a channel that are not sent yet.
    pub async fn outbox_backlog(&self, channel: &str) -> Result<u64, DatabaseError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM outbox WHERE channel = $1 AND state IN ('queued', 'sending', 'unknown')",
        )
        .bind(channel)
        .fetch_one(&self.readers)
        .await
        .map_err(query_error("count the messages of a channel"))?;
        Ok(count.unsigned_abs())
    }

    /// Records that the receiver has a message whose outcome was unknown. Returns whether it changed.
    pub async fn settle_unknown(
        &self,
        send_key: &str,
        provider_id: &str,
        now: i64,
    ) -> Result<bool, DatabaseError> {
        const DOING: &str = "settle a message of the outbox";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let changed: Option<String> = sqlx::query_scalar(
            "UPDATE outbox SET state = 'sent', provider_id = $2, updated = $3, error = NULL
             WHERE send_key = $1 AND state = 'unknown' RETURNING dedupe",
        )
        .bind(send_key)
        .bind(provider_id)
        .bind(now)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(&failed)?;
        if let Some(dedupe) = &changed {
            cron_runs::note_delivery(&mut transaction, dedupe, OutboxState::Sent, None).await?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(changed.is_some())
    }

    /// Changes the state of a message by a person's decision, if it is in one of the states `from`. A message that is sent
    /// again expires a day from now. Returns whether it changed.
    pub async fn decide_outbox(
        &self,
        id: &str,
        from: &[OutboxState],
        to: OutboxState,
        now: i64,
    ) -> Result<bool, DatabaseError> {
        const DOING: &str = "change a message of the outbox";
        let failed = query_error(DOING);
        let from: Vec<&str> = from.iter().map(|state| state.name()).collect();
        let mut transaction = self.write(DOING).await?;
        let dedupe: Option<String> = sqlx::query_scalar(
            "UPDATE outbox SET state = $3, updated = $4, next_at = $4, owner = NULL,
               attempts = CASE WHEN $3 = 'queued' THEN 0 ELSE attempts END,
               expires = CASE WHEN $3 = 'queued' THEN $5 ELSE expires END
             WHERE id = $1 AND state IN (SELECT value FROM json_each($2)) RETURNING dedupe",
        )
        .bind(id)
        .bind(serde_json::json!(from).to_string())
        .bind(to.name())
        .bind(now)
        .bind(now.saturating_add(EXPIRES_MS))
        .fetch_optional(&mut *transaction)
        .await
        .map_err(&failed)?;
        if let Some(dedupe) = &dedupe {
            cron_runs::note_delivery(&mut transaction, dedupe, to, None).await?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(dedupe.is_some())
    }

    /// Removes messages 30 days after their end. Those that need a person stay.
    pub async fn sweep_outbox(&self, now: i64) -> Result<u64, DatabaseError> {
        self.sweep_in_batches(
            "remove old messages of the outbox",
            "DELETE FROM outbox WHERE id IN
               (SELECT id FROM outbox WHERE updated <= $1 AND state IN ('sent', 'failed', 'expired', 'dropped') LIMIT $2)",
            now.saturating_sub(KEPT_MS),
        )
        .await
    }
}

fn message(doing: &'static str, row: &SqliteRow) -> Result<OutboxMessage, DatabaseError> {
    let failed = query_error(doing);
    let text = |name: &str| row.try_get::<String, _>(name).map_err(&failed);
    let number = |name: &str| row.try_get::<i64, _>(name).map_err(&failed);
    let state: OutboxState = from_json(doing, &to_json(doing, &text("state")?)?)?;
    Ok(OutboxMessage {
        id: text("id")?,
        dedupe: text("dedupe")?,
        channel: text("channel")?,
        target: text("target")?,
        body: from_json(doing, &text("body")?)?,
        state,
        attempts: u32::try_from(number("attempts")?).unwrap_or(u32::MAX),
        next_at: Some(number("next_at")?).filter(|_| state == OutboxState::Queued),
        created: number("created")?,
        updated: number("updated")?,
        expires: number("expires")?,
        error: row.try_get("error").map_err(&failed)?,
        provider_id: row.try_get("provider_id").map_err(&failed)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    fn new(dedupe: &str, channel: &str) -> NewOutboxMessage {
        NewOutboxMessage {
            dedupe: dedupe.into(),
            channel: channel.into(),
            target: "t".into(),
            body: OutboxBody { agent: "main".into(), text: "hello".into(), ..OutboxBody::default() },
            expires: None,
        }
    }

    fn settled(claimed: &ClaimedMessage, state: OutboxState, next_at: Option<i64>) -> SettledMessage {
        SettledMessage {
            id: claimed.message.id.clone(),
            epoch: claimed.epoch,
            state,
            next_at,
            error: None,
            provider_id: None,
        }
    }

    async fn state(database: &Database, dedupe: &str) -> OutboxState {
        database.outbox_message(dedupe).await.unwrap().unwrap().state
    }

    #[tokio::test]
    async fn key_is_stored_once_and_claimed_once() {
        let (_folder, database) = database().await;
        assert_eq!(
            database.add_outbox(&[new("a", "hook"), new("a", "hook"), new("b", "hook")], 10).await.unwrap(),
            2
        );
        assert_eq!(database.add_outbox(&[new("a", "hook")], 11).await.unwrap(), 0);
        assert_eq!(database.next_outbox().await.unwrap(), Some(10));
        assert!(database.turn_outbox("me", &[], 5, 9).await.unwrap().is_empty(), "not due yet");
        let claimed = database.turn_outbox("me", &[], 5, 10).await.unwrap();
        assert_eq!(claimed.len(), 2);
        assert_eq!(state(&database, "a").await, OutboxState::Sending);
        assert!(database.turn_outbox("me", &[], 5, 10).await.unwrap().is_empty());
        let again = [
            settled(&claimed[0], OutboxState::Sent, None),
            settled(&claimed[1], OutboxState::Queued, Some(50)),
        ];
        assert!(database.turn_outbox("me", &again, 5, 20).await.unwrap().is_empty());
        assert_eq!(database.next_outbox().await.unwrap(), Some(50));
        assert_eq!(database.turn_outbox("me", &[], 5, 50).await.unwrap()[0].message.attempts, 2);
    }

    #[tokio::test]
    async fn s33_message_in_the_middle_of_a_send_becomes_unknown_and_is_not_resent() {
        let (_folder, database) = database().await;
        database.add_outbox(&[new("hook", "hook"), new("note", "session")], 10).await.unwrap();
        let claimed = database.turn_outbox("first", &[], 5, 10).await.unwrap();
        assert_eq!(claimed.len(), 2);
        assert_eq!(
            database.recover_outbox("first", &["session"], 20).await.unwrap(),
            0,
            "its own are being sent"
        );
        assert_eq!(database.recover_outbox("second", &["session"], 20).await.unwrap(), 1);
        assert_eq!(state(&database, "hook").await, OutboxState::Unknown);
        assert_eq!(state(&database, "note").await, OutboxState::Queued);
        // The first process is too late with its outcome.
        let late: Vec<_> = claimed.iter().map(|one| settled(one, OutboxState::Sent, None)).collect();
        let again = database.turn_outbox("first", &late, 0, 30).await.unwrap();
        assert!(again.is_empty());
        assert_eq!(state(&database, "hook").await, OutboxState::Unknown);
        let (listed, total) = database.list_outbox(None, None, 10, 0).await.unwrap();
        assert_eq!((listed[0].dedupe.as_str(), total), ("hook", 2), "what needs a person comes first");
        // A person decides.
        let id = &listed[0].id;
        let from = [OutboxState::Unknown, OutboxState::Failed];
        assert!(database.decide_outbox(id, &from, OutboxState::Queued, 40).await.unwrap());
        assert!(!database.decide_outbox(id, &from, OutboxState::Sent, 40).await.unwrap());
        assert_eq!(database.turn_outbox("second", &[], 9, 40).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn messages_to_one_chat_are_sent_one_after_the_other() {
        let (_folder, database) = database().await;
        let to_chat = |dedupe: &str, target: &str| {
            let mut message = new(dedupe, "telegram:default");
            message.target = target.into();
            message.body.chat = Some(Box::default());
            message
        };
        let messages = [to_chat("a1", "a"), to_chat("a2", "a"), to_chat("b1", "b")];
        database.add_outbox(&messages, 10).await.unwrap();
        let keys = |claimed: &[ClaimedMessage]| {
            let mut keys: Vec<_> = claimed.iter().map(|one| one.message.dedupe.clone()).collect();
            keys.sort();
            keys
        };
        let first = database.turn_outbox("me", &[], 5, 10).await.unwrap();
        assert_eq!(keys(&first), ["a1", "b1"]);
        assert_eq!(database.next_outbox().await.unwrap(), None, "the second part waits for the first");
        let again = first.iter().find(|one| one.message.dedupe == "a1").unwrap();
        let later = settled(again, OutboxState::Queued, Some(60));
        assert!(
            database.turn_outbox("me", &[later], 5, 20).await.unwrap().is_empty(),
            "also while it is repeated"
        );
        let again = database.turn_outbox("me", &[], 5, 60).await.unwrap();
        assert_eq!(keys(&again), ["a1"]);
        let sent =
            SettledMessage { provider_id: Some("77".into()), ..settled(&again[0], OutboxState::Sent, None) };
        assert_eq!(keys(&database.turn_outbox("me", &[sent], 5, 61).await.unwrap()), ["a2"]);
        let first = database.outbox_message("a1").await.unwrap().unwrap();
        assert_eq!(first.provider_id.as_deref(), Some("77"));
    }

    #[tokio::test]
    async fn held_message_waits_for_the_owner() {
        let (_folder, database) = database().await;
        let mut held = new("held", "telegram:default");
        held.body.chat = Some(Box::new(gantry_protocol::ChatDetails { held: true, ..Default::default() }));
        database.add_outbox(&[held], 10).await.unwrap();
        assert!(database.turn_outbox("me", &[], 5, 20).await.unwrap().is_empty());
        let id = database.outbox_message("held").await.unwrap().unwrap().id;
        assert!(database.decide_outbox(&id, &[OutboxState::Held], OutboxState::Queued, 30).await.unwrap());
        assert_eq!(database.turn_outbox("me", &[], 5, 30).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn message_expires_and_old_ones_are_removed() {
        let (_folder, database) = database().await;
        let soon = NewOutboxMessage { expires: Some(20), ..new("soon", "hook") };
        database.add_outbox(&[soon, new("later", "hook")], 10).await.unwrap();
        let claimed = database.turn_outbox("me", &[], 5, 20).await.unwrap();
        assert_eq!(claimed.len(), 1, "the other one expired");
        assert_eq!(state(&database, "soon").await, OutboxState::Expired);
        let sent = [settled(&claimed[0], OutboxState::Unknown, None)];
        database.turn_outbox("me", &sent, 0, 20).await.unwrap();
        assert_eq!(database.sweep_outbox(KEPT_MS + 19).await.unwrap(), 0);
        assert_eq!(database.sweep_outbox(KEPT_MS + 20).await.unwrap(), 1);
        assert_eq!(state(&database, "later").await, OutboxState::Unknown, "it waits for a person");
    }
}
