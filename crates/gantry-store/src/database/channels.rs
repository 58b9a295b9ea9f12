//! Chats: cursors, events that were taken, people and their roles, link codes, and the owner's last active conversation.

use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::database::{Database, DatabaseError, query_error};

/// How long an event is remembered. Providers repeat events for at most 7 days.
const EVENTS_KEPT_MS: i64 = 30 * 24 * 3600 * 1000;
/// The most pending requests of one account.
const MAX_PENDING: i64 = 3;
/// The most chats of two of one person.
const MAX_CHATS: i64 = 50;
/// Wrong codes until a person is locked, and for how long.
const MAX_GUESSES: i64 = 5;
const LOCKED_MS: i64 = 3600 * 1000;

/// An event of a chat, to be stored together with what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelEvent {
    pub channel: String,
    pub account: String,
    /// Identifies the event within the account.
    pub event: String,
    /// Where the account continues to listen.
    pub cursor: Option<String>,
    /// The owner's conversation in which it happened.
    pub last_active: Option<LastActive>,
}

/// The owner's last active conversation with an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastActive {
    pub agent: String,
    /// The address as JSON.
    pub address: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersonRole {
    Owner,
    Member,
    /// A stranger with a code.
    Pending,
    Blocked,
}

impl PersonRole {
    pub const ALL: [PersonRole; 4] =
        [PersonRole::Owner, PersonRole::Member, PersonRole::Pending, PersonRole::Blocked];

    pub fn name(self) -> &'static str {
        match self {
            PersonRole::Owner => "owner",
            PersonRole::Member => "member",
            PersonRole::Pending => "pending",
            PersonRole::Blocked => "blocked",
        }
    }
}

/// Somebody who has written to the bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonRow {
    pub channel: String,
    pub account: String,
    pub id: String,
    pub name: String,
    pub role: PersonRole,
    /// The chat of two with this person, as JSON.
    pub chat: Option<String>,
    pub code: Option<String>,
    pub code_expires: Option<i64>,
    pub created: i64,
    pub updated: i64,
}

/// The outcome of a request to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairingRequest {
    /// The person is told the code.
    Told(String),
    /// The person was told already, too many others wait, or the account is locked.
    Silent,
}

/// The outcome of a link code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkOutcome {
    Linked,
    /// The code is unknown or expired.
    Wrong,
    /// Too many wrong codes were sent to this account.
    Locked,
}

/// Records an event and its cursor within another subject's transaction.
pub(crate) async fn insert_event(
    connection: &mut SqliteConnection,
    event: &ChannelEvent,
    now: i64,
) -> Result<(), DatabaseError> {
    let failed = query_error("record an event of a chat");
    sqlx::query(
        "INSERT INTO channel_events (channel, account, event, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
    )
    .bind(&event.channel)
    .bind(&event.account)
    .bind(&event.event)
    .bind(now)
    .execute(&mut *connection)
    .await
    .map_err(&failed)?;
    if let Some(cursor) = &event.cursor {
        set_cursor(connection, &event.channel, &event.account, cursor).await?;
    }
    if let Some(active) = &event.last_active {
        sqlx::query(
            "INSERT INTO channel_last_active (agent, address, at) VALUES ($1, $2, $3)
             ON CONFLICT (agent) DO UPDATE SET address = $2, at = $3",
        )
        .bind(&active.agent)
        .bind(&active.address)
        .bind(now)
        .execute(&mut *connection)
        .await
        .map_err(&failed)?;
    }
    Ok(())
}

async fn set_cursor(
    connection: &mut SqliteConnection,
    channel: &str,
    account: &str,
    cursor: &str,
) -> Result<(), DatabaseError> {
    sqlx::query(
        "INSERT INTO channel_cursors (channel, account, value) VALUES ($1, $2, $3)
         ON CONFLICT (channel, account) DO UPDATE SET value = $3",
    )
    .bind(channel)
    .bind(account)
    .bind(cursor)
    .execute(connection)
    .await
    .map_err(query_error("record where an account continues"))?;
    Ok(())
}

impl Database {
    /// Records an event that starts nothing in a session.
    pub async fn add_channel_event(&self, event: &ChannelEvent, now: i64) -> Result<(), DatabaseError> {
        const DOING: &str = "record an event of a chat";
        let mut transaction = self.write(DOING).await?;
        insert_event(&mut transaction, event, now).await?;
        transaction.commit().await.map_err(query_error(DOING))
    }

    pub async fn has_channel_event(
        &self,
        channel: &str,
        account: &str,
        event: &str,
    ) -> Result<bool, DatabaseError> {
        let found: Option<i64> = sqlx::query_scalar(
            "SELECT at FROM channel_events WHERE channel = $1 AND account = $2 AND event = $3",
        )
        .bind(channel)
        .bind(account)
        .bind(event)
        .fetch_optional(&self.readers)
        .await
        .map_err(query_error("look for an event of a chat"))?;
        Ok(found.is_some())
    }

    pub async fn channel_cursor(
        &self,
        channel: &str,
        account: &str,
    ) -> Result<Option<String>, DatabaseError> {
        sqlx::query_scalar("SELECT value FROM channel_cursors WHERE channel = $1 AND account = $2")
            .bind(channel)
            .bind(account)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error("read where an account continues"))
    }

    pub async fn set_channel_cursor(
        &self,
        channel: &str,
        account: &str,
        cursor: &str,
    ) -> Result<(), DatabaseError> {
        const DOING: &str = "record where an account continues";
        let mut transaction = self.write(DOING).await?;
        set_cursor(&mut transaction, channel, account, cursor).await?;
        transaction.commit().await.map_err(query_error(DOING))
    }

    /// Returns the owner's last active conversation with an agent: its address as JSON.
    pub async fn last_active_chat(&self, agent: &str) -> Result<Option<String>, DatabaseError> {
        sqlx::query_scalar("SELECT address FROM channel_last_active WHERE agent = $1")
            .bind(agent)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error("read the last active conversation"))
    }

    pub async fn channel_person(
        &self,
        channel: &str,
        account: &str,
        id: &str,
    ) -> Result<Option<PersonRow>, DatabaseError> {
        let found = self.people("channel = $1 AND account = $2 AND id = $3", &[channel, account, id]).await?;
        Ok(found.into_iter().next())
    }

    /// Returns everybody, or the people of one channel.
    pub async fn channel_people(&self, channel: Option<&str>) -> Result<Vec<PersonRow>, DatabaseError> {
        match channel {
            Some(channel) => self.people("channel = $1", &[channel]).await,
            None => self.people("1 = 1", &[]).await,
        }
    }

    async fn people(&self, condition: &str, values: &[&str]) -> Result<Vec<PersonRow>, DatabaseError> {
        const DOING: &str = "read the people of chats";
        let mut query = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT channel, account, id, name, role, chat, code, code_expires, created, updated FROM channel_people
             WHERE {condition} ORDER BY channel, account, role, created, id LIMIT 10000"
        )));
        for value in values {
            query = query.bind((*value).to_owned());
        }
        let rows = query.fetch_all(&self.readers).await.map_err(query_error(DOING))?;
        rows.iter().map(person).collect::<Result<_, _>>().map_err(query_error(DOING))
    }

    /// Notes that a known person wrote in a chat of two. The newest 50 are kept.
    pub async fn note_channel_chat(
        &self,
        person: &PersonRow,
        address: &str,
        now: i64,
    ) -> Result<(), DatabaseError> {
        const DOING: &str = "note the chat of a person";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        sqlx::query(
            "INSERT INTO channel_chats (channel, account, person, address, at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (channel, account, person, address) DO UPDATE SET at = $5",
        )
        .bind(&person.channel)
        .bind(&person.account)
        .bind(&person.id)
        .bind(address)
        .bind(now)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        sqlx::query(
            "DELETE FROM channel_chats WHERE channel = $1 AND account = $2 AND person = $3 AND address NOT IN (
               SELECT address FROM channel_chats WHERE channel = $1 AND account = $2 AND person = $3
               ORDER BY at DESC, address LIMIT $4)",
        )
        .bind(&person.channel)
        .bind(&person.account)
        .bind(&person.id)
        .bind(MAX_CHATS)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Returns the chats of known people: channel, account, person and address.
    pub async fn channel_chats(&self) -> Result<Vec<(String, String, String, String)>, DatabaseError> {
        const DOING: &str = "read the chats of people";
        sqlx::query_as(
            "SELECT channel, account, person, address FROM channel_chats ORDER BY at DESC LIMIT 100000",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(query_error(DOING))
    }

    /// Keeps the name and the chat of a known person up to date.
    pub async fn note_channel_person(&self, person: &PersonRow, now: i64) -> Result<(), DatabaseError> {
        sqlx::query(
            "UPDATE channel_people SET name = $4, chat = COALESCE($5, chat), updated = $6
             WHERE channel = $1 AND account = $2 AND id = $3",
        )
        .bind(&person.channel)
        .bind(&person.account)
        .bind(&person.id)
        .bind(&person.name)
        .bind(&person.chat)
        .bind(now)
        .execute(&self.writer)
        .await
        .map_err(query_error("update a person of a chat"))?;
        Ok(())
    }

    /// Records the request of a stranger. `new_code` is used if the person has no valid code. A person is told once an hour.
    pub async fn request_pairing(
        &self,
        person: &PersonRow,
        new_code: &str,
        valid_ms: i64,
        now: i64,
    ) -> Result<PairingRequest, DatabaseError> {
        const DOING: &str = "record a request to be admitted";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        sqlx::query("DELETE FROM channel_people WHERE role = 'pending' AND code_expires <= $1")
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        let pending: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM channel_people WHERE channel = $1 AND account = $2 AND role = 'pending'",
        )
        .bind(&person.channel)
        .bind(&person.account)
        .fetch_one(&mut *transaction)
        .await
        .map_err(&failed)?;
        let request = if pending >= MAX_PENDING {
            PairingRequest::Silent
        } else {
            // A person who is known already keeps the role, and was told.
            let inserted = sqlx::query(
                "INSERT INTO channel_people (channel, account, id, name, role, chat, code, code_expires, created, updated)
                 VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8, $8) ON CONFLICT DO NOTHING",
            )
            .bind(&person.channel)
            .bind(&person.account)
            .bind(&person.id)
            .bind(&person.name)
            .bind(&person.chat)
            .bind(new_code)
            .bind(now.saturating_add(valid_ms))
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
            match inserted.rows_affected() {
                0 => PairingRequest::Silent,
                _ => PairingRequest::Told(new_code.to_owned()),
            }
        };
        transaction.commit().await.map_err(failed)?;
        Ok(request)
    }

    /// Returns the person of a pending request.
    pub async fn pending_person(&self, code: &str, now: i64) -> Result<Option<PersonRow>, DatabaseError> {
        let found = self.people("code = $1 AND role = 'pending'", &[code]).await?;
        Ok(found.into_iter().find(|person| person.code_expires.is_some_and(|expires| expires > now)))
    }

    /// Sets the role of a known person. Returns false if there is none.
    pub async fn set_person_role(
        &self,
        channel: &str,
        account: &str,
        id: &str,
        role: PersonRole,
        now: i64,
    ) -> Result<bool, DatabaseError> {
        let changed = sqlx::query(
            "UPDATE channel_people SET role = $4, code = NULL, code_expires = NULL, updated = $5
             WHERE channel = $1 AND account = $2 AND id = $3",
        )
        .bind(channel)
        .bind(account)
        .bind(id)
        .bind(role.name())
        .bind(now)
        .execute(&self.writer)
        .await
        .map_err(query_error("change the role of a person"))?;
        Ok(changed.rows_affected() > 0)
    }

    /// Removes a person, who is a stranger from then on. Returns false if there is none.
    pub async fn remove_person(&self, channel: &str, account: &str, id: &str) -> Result<bool, DatabaseError> {
        const DOING: &str = "remove a person";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let removed =
            sqlx::query("DELETE FROM channel_people WHERE channel = $1 AND account = $2 AND id = $3")
                .bind(channel)
                .bind(account)
                .bind(id)
                .execute(&mut *transaction)
                .await
                .map_err(&failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(removed.rows_affected() > 0)
    }

    /// Stores the hash of a link code. Earlier codes of the account end.
    pub async fn add_channel_link(
        &self,
        hash: &str,
        channel: &str,
        account: &str,
        expires: i64,
        now: i64,
    ) -> Result<(), DatabaseError> {
        const DOING: &str = "store a link code";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        sqlx::query("DELETE FROM channel_links WHERE expires <= $1 OR (channel = $2 AND account = $3)")
            .bind(now)
            .bind(channel)
            .bind(account)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        sqlx::query("DELETE FROM channel_guesses WHERE channel = $1 AND account = $2")
            .bind(channel)
            .bind(account)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        sqlx::query("INSERT INTO channel_links (hash, channel, account, expires) VALUES ($1, $2, $3, $4)")
            .bind(hash)
            .bind(channel)
            .bind(account)
            .bind(expires)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Uses a link code once: the person becomes the owner. After five wrong codes an account takes none for an hour.
    pub async fn use_channel_link(
        &self,
        hash: &str,
        person: &PersonRow,
        now: i64,
    ) -> Result<LinkOutcome, DatabaseError> {
        const DOING: &str = "use a link code";
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let guesses: Option<i64> = sqlx::query_scalar(
            "SELECT count FROM channel_guesses WHERE channel = $1 AND account = $2 AND person = $3 AND since > $4",
        )
        .bind(&person.channel)
        .bind(&person.account)
        .bind(&person.id)
        .bind(now.saturating_sub(LOCKED_MS))
        .fetch_optional(&mut *transaction)
        .await
        .map_err(&failed)?;
        if guesses.is_some_and(|guesses| guesses >= MAX_GUESSES) {
            return Ok(LinkOutcome::Locked);
        }
        let used = sqlx::query(
            "DELETE FROM channel_links WHERE hash = $1 AND channel = $2 AND account = $3 AND expires > $4",
        )
        .bind(hash)
        .bind(&person.channel)
        .bind(&person.account)
        .bind(now)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        let outcome = if used.rows_affected() == 0 {
            sqlx::query("DELETE FROM channel_guesses WHERE since <= $1")
                .bind(now.saturating_sub(LOCKED_MS))
                .execute(&mut *transaction)
                .await
                .map_err(&failed)?;
            sqlx::query(
                "INSERT INTO channel_guesses (channel, account, person, count, since) VALUES ($1, $2, $3, 1, $4)
                 ON CONFLICT (channel, account, person) DO UPDATE SET count = count + 1, since = $4",
            )
            .bind(&person.channel)
            .bind(&person.account)
            .bind(&person.id)
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
            LinkOutcome::Wrong
        } else {
            sqlx::query(
                "INSERT INTO channel_people (channel, account, id, name, role, chat, created, updated)
                 VALUES ($1, $2, $3, $4, 'owner', $5, $6, $6)
                 ON CONFLICT (channel, account, id) DO UPDATE SET
                   role = 'owner', name = $4, chat = $5, code = NULL, code_expires = NULL, updated = $6",
            )
            .bind(&person.channel)
            .bind(&person.account)
            .bind(&person.id)
            .bind(&person.name)
            .bind(&person.chat)
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
            LinkOutcome::Linked
        };
        transaction.commit().await.map_err(failed)?;
        Ok(outcome)
    }

    /// Forgets events that no provider repeats any more.
    pub async fn sweep_channel_events(&self, now: i64) -> Result<u64, DatabaseError> {
        self.sweep_in_batches(
            "remove old events of chats",
            "DELETE FROM channel_events WHERE rowid IN (SELECT rowid FROM channel_events WHERE at <= $1 LIMIT $2)",
            now.saturating_sub(EVENTS_KEPT_MS),
        )
        .await
    }
}

fn person(row: &SqliteRow) -> Result<PersonRow, sqlx::Error> {
    let role: String = row.try_get("role")?;
    let role = PersonRole::ALL.into_iter().find(|known| known.name() == role);
    Ok(PersonRow {
        channel: row.try_get("channel")?,
        account: row.try_get("account")?,
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        // A role of a newer version has no rights here.
        role: role.unwrap_or(PersonRole::Blocked),
        chat: row.try_get("chat")?,
        code: row.try_get("code")?,
        code_expires: row.try_get("code_expires")?,
        created: row.try_get("created")?,
        updated: row.try_get("updated")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    fn somebody(id: &str) -> PersonRow {
        PersonRow {
            channel: "telegram".into(),
            account: "default".into(),
            id: id.into(),
            name: "Ann".into(),
            role: PersonRole::Pending,
            chat: Some("{}".into()),
            code: None,
            code_expires: None,
            created: 0,
            updated: 0,
        }
    }

    #[tokio::test]
    async fn strangers_are_told_a_code_once_and_three_at_a_time() {
        let (_folder, database) = database().await;
        let ask = async |id: &str, code: &str, now| {
            database.request_pairing(&somebody(id), code, 1_000, now).await.unwrap()
        };
        assert_eq!(ask("1", "AAAA", 0).await, PairingRequest::Told("AAAA".into()));
        assert_eq!(ask("1", "BBBB", 1).await, PairingRequest::Silent, "once");
        assert_eq!(ask("2", "CCCC", 1).await, PairingRequest::Told("CCCC".into()));
        assert_eq!(ask("3", "DDDD", 1).await, PairingRequest::Told("DDDD".into()));
        assert_eq!(ask("4", "EEEE", 1).await, PairingRequest::Silent, "three wait already");
        assert_eq!(database.pending_person("CCCC", 2).await.unwrap().unwrap().id, "2");
        assert_eq!(database.pending_person("CCCC", 5_000).await.unwrap(), None, "expired");
        assert!(database.set_person_role("telegram", "default", "2", PersonRole::Member, 3).await.unwrap());
        assert_eq!(ask("2", "FFFF", 4).await, PairingRequest::Silent, "a member is known");
        let member = database.channel_person("telegram", "default", "2").await.unwrap().unwrap();
        assert_eq!((member.role, member.code), (PersonRole::Member, None));
        assert_eq!(ask("1", "GGGG", 9_000).await, PairingRequest::Told("GGGG".into()), "a new hour");
    }

    #[tokio::test]
    async fn link_code_works_once_and_five_wrong_ones_lock_the_account() {
        let (_folder, database) = database().await;
        let link = async |hash: &str, id: &str, now| {
            database.use_channel_link(hash, &somebody(id), now).await.unwrap()
        };
        database.add_channel_link("h1", "telegram", "default", 1_000, 0).await.unwrap();
        assert_eq!(link("h0", "1", 1).await, LinkOutcome::Wrong);
        assert_eq!(link("h1", "1", 1_000).await, LinkOutcome::Wrong, "expired");
        assert_eq!(link("h1", "1", 2).await, LinkOutcome::Linked);
        assert_eq!(link("h1", "2", 2).await, LinkOutcome::Wrong, "used");
        let owner = database.channel_person("telegram", "default", "1").await.unwrap().unwrap();
        assert_eq!(owner.role, PersonRole::Owner);
        database.add_channel_link("h2", "telegram", "default", 10_000_000, 3).await.unwrap();
        for _ in 0..5 {
            assert_eq!(link("no", "9", 4).await, LinkOutcome::Wrong);
        }
        assert_eq!(link("h2", "9", 5).await, LinkOutcome::Locked, "even the right one");
        assert_eq!(link("h2", "9", 5 + LOCKED_MS).await, LinkOutcome::Linked, "after an hour");
    }

    #[tokio::test]
    async fn event_cursor_and_last_conversation_are_one_write() {
        let (_folder, database) = database().await;
        let event = ChannelEvent {
            channel: "telegram".into(),
            account: "default".into(),
            event: "7".into(),
            cursor: Some("8".into()),
            last_active: Some(LastActive { agent: "main".into(), address: "{}".into() }),
        };
        database.add_channel_event(&event, 5).await.unwrap();
        database.add_channel_event(&event, 6).await.unwrap();
        assert!(database.has_channel_event("telegram", "default", "7").await.unwrap());
        assert!(!database.has_channel_event("telegram", "other", "7").await.unwrap());
        let cursor = database.channel_cursor("telegram", "default").await.unwrap();
        assert_eq!(cursor.as_deref(), Some("8"));
        assert_eq!(database.last_active_chat("main").await.unwrap().as_deref(), Some("{}"));
        assert_eq!(database.sweep_channel_events(EVENTS_KEPT_MS + 4).await.unwrap(), 0);
        assert_eq!(database.sweep_channel_events(EVENTS_KEPT_MS + 5).await.unwrap(), 1);
    }
}
