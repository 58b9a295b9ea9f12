//! The journal holds the events of each session in order. Appends of many sessions share a transaction.
//!
//! An append is on disk when it returns. It names the number it expects to get, so that one of two concurrent writers of
//! a session is rejected. Events are never changed: what a compaction or a reset replaces stays readable.

use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};
use tokio::sync::{mpsc, oneshot};

use crate::database::channels::{self, ChannelEvent};
use crate::database::grants::Grants;
use crate::database::outbox::{self, NewOutboxMessage};
use crate::database::taint_marks::TaintMarks;
use crate::database::{Database, DatabaseError, query_error};

/// How many appends may wait for the running transaction.
const WAITING: usize = 1024;
/// The most appends in one transaction, to bound the wait of each.
const TOGETHER: usize = 256;
/// The largest event. Tool results are limited to much less.
pub const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;
const MAX_KEY_BYTES: usize = 512;
/// Creates a session with a display name if it is missing.
pub(crate) const NEW_SESSION: &str = "INSERT INTO sessions (key, agent, created, last_activity, label)
     VALUES ($1, $2, $3, $3, $4) ON CONFLICT DO NOTHING";

/// A session without its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRow {
    pub key: String,
    pub agent: String,
    pub label: Option<String>,
    pub created: i64,
    pub last_activity: i64,
    /// The number of events, which is the number of the next one.
    pub next_seq: i64,
    /// Whether a run is active or waiting.
    pub has_work: bool,
    /// The session that started it, if it is a child.
    pub parent: Option<String>,
}

/// The parent and the root of a child session.
#[derive(Debug, Clone, Copy)]
pub struct Parentage<'a> {
    pub parent: &'a str,
    /// The root of the tree of sessions.
    pub root: &'a str,
    /// The display name.
    pub label: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEvent {
    pub seq: i64,
    pub at: i64,
    pub kind: String,
    /// JSON.
    pub data: String,
}

/// Messages that a search reads, the newest of all sessions.
const SEARCHED_EVENTS: i64 = 200_000;

/// A message or a title that contains a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEvent {
    pub key: String,
    pub agent: String,
    pub label: Option<String>,
    pub at: i64,
    /// The number of the event; `None` if the title matches.
    pub seq: Option<i64>,
    pub text: String,
}

/// An event to write.
#[derive(Debug, Clone)]
pub struct NewEvent {
    pub kind: &'static str,
    pub data: String,
    /// Whether the event is a checkpoint: it replaces all earlier events, and loading starts here.
    pub checkpoint: bool,
}

/// Events to append to one session, all or none, together with what they cause elsewhere.
#[derive(Debug, Default)]
pub struct Append {
    pub key: String,
    /// The expected number of the first event.
    pub expected: i64,
    pub at: i64,
    pub events: Vec<NewEvent>,
    /// Whether work remains after these events.
    pub has_work: bool,
    /// Events of chats that these events come from.
    pub channel_events: Vec<ChannelEvent>,
    /// Messages to people that these events cause.
    pub outbox: Vec<NewOutboxMessage>,
}

/// A session with its events since the newest checkpoint.
#[derive(Debug)]
pub struct LoadedSession {
    pub row: SessionRow,
    /// The events since the newest checkpoint.
    pub events: Vec<JournalEvent>,
}

/// The journal. Cheap to clone; its writer task ends with the last clone.
#[derive(Debug, Clone)]
pub struct Journal {
    database: Database,
    appends: mpsc::Sender<(Append, oneshot::Sender<Result<(), DatabaseError>>)>,
}

impl Journal {
    /// Starts the writer task on the current runtime.
    pub fn new(database: Database) -> Journal {
        let (appends, waiting) = mpsc::channel(WAITING);
        tokio::spawn(write(database.clone(), waiting));
        Journal { database, appends }
    }

    /// Returns the taint marks of the same database.
    pub fn marks(&self) -> TaintMarks {
        TaintMarks::new(self.database.clone())
    }

    /// Returns the grants of the same database.
    pub fn grants(&self) -> Grants {
        Grants::new(self.database.clone())
    }

    /// Appends events. They are on disk when this returns.
    pub async fn append(&self, append: Append) -> Result<(), DatabaseError> {
        if append.events.iter().any(|event| event.data.len() > MAX_EVENT_BYTES) {
            return Err(DatabaseError::Refused(format!("an event has at most {MAX_EVENT_BYTES} bytes")));
        }
        let stopped = || DatabaseError::Refused("the journal's writer has stopped".into());
        let (done, written) = oneshot::channel();
        self.appends.send((append, done)).await.map_err(|_| stopped())?;
        written.await.map_err(|_| stopped())?
    }

    /// Returns the session, and creates it if it is missing.
    pub async fn open(&self, key: &str, agent: &str, now: i64) -> Result<LoadedSession, DatabaseError> {
        const DOING: &str = "open the session";
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(DatabaseError::Refused(format!("a session key has 1 to {MAX_KEY_BYTES} bytes")));
        }
        if let Some(loaded) = self.load(key).await? {
            return Ok(loaded);
        }
        sqlx::query(
            "INSERT INTO sessions (key, agent, created, last_activity) VALUES ($1, $2, $3, $3) ON CONFLICT DO NOTHING",
        )
        .bind(key)
        .bind(agent)
        .bind(now)
        .execute(&self.database.writer)
        .await
        .map_err(query_error(DOING))?;
        self.load(key).await?.ok_or_else(|| DatabaseError::Refused(format!("unknown session {key:?}")))
    }

    /// Creates a session with a display name if it is missing.
    pub async fn create(&self, key: &str, agent: &str, label: &str, now: i64) -> Result<(), DatabaseError> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(DatabaseError::Refused(format!("a session key has 1 to {MAX_KEY_BYTES} bytes")));
        }
        if self.exists(key).await? {
            return Ok(());
        }
        let new = sqlx::query(NEW_SESSION).bind(key).bind(agent).bind(now).bind(label);
        new.execute(&self.database.writer).await.map_err(query_error("make the session"))?;
        Ok(())
    }

    /// Creates a child session if it is missing.
    pub async fn adopt(
        &self,
        key: &str,
        agent: &str,
        parentage: Parentage<'_>,
        now: i64,
    ) -> Result<(), DatabaseError> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(DatabaseError::Refused(format!("a session key has 1 to {MAX_KEY_BYTES} bytes")));
        }
        sqlx::query(
            "INSERT INTO sessions (key, agent, created, last_activity, parent, root, label)
             VALUES ($1, $2, $3, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        )
        .bind(key)
        .bind(agent)
        .bind(now)
        .bind(parentage.parent)
        .bind(parentage.root)
        .bind(parentage.label)
        .execute(&self.database.writer)
        .await
        .map_err(query_error("make the session"))?;
        Ok(())
    }

    /// Returns the descendants of `root` that have work left, with their parents.
    pub async fn family_at_work(&self, root: &str) -> Result<Vec<(String, String)>, DatabaseError> {
        sqlx::query_as("SELECT key, agent FROM sessions WHERE root = $1 AND has_work = 1 ORDER BY id")
            .bind(root)
            .fetch_all(&self.database.readers)
            .await
            .map_err(query_error("find the children of the session"))
    }

    /// Counts the children of a session that have work left.
    pub async fn children_at_work(&self, parent: &str) -> Result<u64, DatabaseError> {
        let count: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM sessions WHERE parent = $1 AND has_work = 1")
                .bind(parent)
                .fetch_one(&self.database.readers)
                .await
                .map_err(query_error("count the children of the session"))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Loads a session from its newest checkpoint.
    pub async fn load(&self, key: &str) -> Result<Option<LoadedSession>, DatabaseError> {
        const DOING: &str = "load the session";
        let failed = query_error(DOING);
        let row = sqlx::query(
            "SELECT key, agent, label, created, last_activity, next_seq, has_work, parent, id, checkpoint
             FROM sessions WHERE key = $1",
        )
        .bind(key)
        .fetch_optional(&self.database.readers)
        .await
        .map_err(&failed)?;
        let Some(row) = row else { return Ok(None) };
        let (id, checkpoint): (i64, i64) =
            (row.try_get("id").map_err(&failed)?, row.try_get("checkpoint").map_err(&failed)?);
        let events = events(&self.database, id, checkpoint, i64::MAX).await?;
        // Row and events are read separately, so an append in between shows only in the events.
        let mut session = session(&row).map_err(&failed)?;
        session.next_seq = events.last().map_or(session.next_seq, |last| last.seq + 1);
        Ok(Some(LoadedSession { row: session, events }))
    }

    pub async fn exists(&self, key: &str) -> Result<bool, DatabaseError> {
        let found: Option<i64> = sqlx::query_scalar("SELECT id FROM sessions WHERE key = $1")
            .bind(key)
            .fetch_optional(&self.database.readers)
            .await
            .map_err(query_error("look for the session"))?;
        Ok(found.is_some())
    }

    /// Returns events from a number on, for display.
    pub async fn page(&self, key: &str, from: i64, limit: u32) -> Result<Vec<JournalEvent>, DatabaseError> {
        const DOING: &str = "read the session";
        let id: Option<i64> = sqlx::query_scalar("SELECT id FROM sessions WHERE key = $1")
            .bind(key)
            .fetch_optional(&self.database.readers)
            .await
            .map_err(query_error(DOING))?;
        match id {
            Some(id) => events(&self.database, id, from, i64::from(limit)).await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns the last events before a number, in their order.
    pub async fn page_before(
        &self,
        key: &str,
        before: i64,
        limit: u32,
    ) -> Result<Vec<JournalEvent>, DatabaseError> {
        const DOING: &str = "read the session";
        let rows = sqlx::query(
            "SELECT seq, at, kind, data FROM session_events
             WHERE session = (SELECT id FROM sessions WHERE key = $1) AND seq < $2 ORDER BY seq DESC LIMIT $3",
        )
        .bind(key)
        .bind(before)
        .bind(limit)
        .fetch_all(&self.database.readers)
        .await
        .map_err(query_error(DOING))?;
        let events: Result<Vec<JournalEvent>, sqlx::Error> = rows.iter().rev().map(journal_event).collect();
        events.map_err(query_error(DOING))
    }

    /// Finds titles and messages with a text, the newest first, for these agents or for all. Of the messages the newest
    /// `SEARCHED_EVENTS` are read.
    pub async fn search(
        &self,
        agents: Option<&[String]>,
        text: &str,
        limit: u32,
    ) -> Result<Vec<FoundEvent>, DatabaseError> {
        const DOING: &str = "search the sessions";
        let agents = agents.map(|agents| serde_json::json!(agents).to_string());
        let quoted = serde_json::json!(text).to_string();
        // Entries hold texts as JSON, in which quotes and line ends are written in another way.
        let in_json = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        let rows = sqlx::query(
            "SELECT key, agent, label, last_activity, NULL, '' FROM sessions
             WHERE ($1 IS NULL OR agent IN (SELECT value FROM json_each($1))) AND label LIKE $2 ESCAPE '!'
             UNION ALL
             SELECT key, agent, label, at, seq, data FROM (
               SELECT session, seq, at, data FROM session_events
               WHERE kind IN ('message_in', 'replied', 'notice') ORDER BY at DESC LIMIT $5
             ) JOIN sessions ON sessions.id = session
             WHERE ($1 IS NULL OR agent IN (SELECT value FROM json_each($1))) AND data LIKE $3 ESCAPE '!'
             ORDER BY 4 DESC LIMIT $4",
        )
        .bind(agents)
        .bind(like(text))
        .bind(like(in_json))
        // The text may occur in an entry outside of its message.
        .bind(i64::from(limit).saturating_mul(4))
        .bind(SEARCHED_EVENTS)
        .fetch_all(&self.database.readers)
        .await
        .map_err(query_error(DOING))?;
        let wanted = text.to_ascii_lowercase();
        let mut found = Vec::new();
        for row in &rows {
            let row = found_event(row).map_err(query_error(DOING))?;
            if row.text.to_ascii_lowercase().contains(&wanted) {
                found.push(row);
            }
        }
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    /// Returns sessions, most recently active first, and their total number.
    pub async fn list(&self, limit: u32, offset: u32) -> Result<(Vec<SessionRow>, u64), DatabaseError> {
        self.listed(None, limit, offset).await
    }

    /// Like [`Journal::list`], for these agents only.
    pub async fn list_of(
        &self,
        agents: &[String],
        limit: u32,
        offset: u32,
    ) -> Result<(Vec<SessionRow>, u64), DatabaseError> {
        let agents = serde_json::json!(agents).to_string();
        self.listed(Some(&agents), limit, offset).await
    }

    /// `agents` is a JSON list.
    async fn listed(
        &self,
        agents: Option<&str>,
        limit: u32,
        offset: u32,
    ) -> Result<(Vec<SessionRow>, u64), DatabaseError> {
        let failed = query_error("list the sessions");
        let rows = sqlx::query(
            "SELECT key, agent, label, created, last_activity, next_seq, has_work, parent FROM sessions
             WHERE $1 IS NULL OR agent IN (SELECT value FROM json_each($1))
             ORDER BY last_activity DESC, id DESC LIMIT $2 OFFSET $3",
        )
        .bind(agents)
        .bind(limit)
        .bind(offset)
        .fetch_all(&self.database.readers)
        .await
        .map_err(&failed)?;
        let total: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM sessions WHERE $1 IS NULL OR agent IN (SELECT value FROM json_each($1))",
        )
        .bind(agents)
        .fetch_one(&self.database.readers)
        .await
        .map_err(&failed)?;
        let sessions = rows.iter().map(session).collect::<Result<_, _>>().map_err(&failed)?;
        Ok((sessions, u64::try_from(total).unwrap_or(0)))
    }

    /// Returns the sessions that have work left, the longest waiting first.
    pub async fn at_work(&self, limit: u32) -> Result<Vec<SessionRow>, DatabaseError> {
        let failed = query_error("find the sessions at work");
        let rows = sqlx::query(
            "SELECT key, agent, label, created, last_activity, next_seq, has_work, parent FROM sessions
             WHERE has_work = 1 ORDER BY last_activity, id LIMIT $1",
        )
        .bind(limit)
        .fetch_all(&self.database.readers)
        .await
        .map_err(&failed)?;
        rows.iter().map(session).collect::<Result<_, _>>().map_err(&failed)
    }

    /// Returns the keys of sessions that have work left.
    pub async fn with_work(&self) -> Result<Vec<String>, DatabaseError> {
        sqlx::query_scalar("SELECT key FROM sessions WHERE has_work = 1 ORDER BY key")
            .fetch_all(&self.database.readers)
            .await
            .map_err(query_error("find the sessions to go on with"))
    }

    /// Sets the display name of a session.
    pub async fn label(&self, key: &str, label: Option<&str>) -> Result<(), DatabaseError> {
        sqlx::query("UPDATE sessions SET label = $2 WHERE key = $1")
            .bind(key)
            .bind(label)
            .execute(&self.database.writer)
            .await
            .map_err(query_error("label the session"))?;
        Ok(())
    }
}

fn session(row: &SqliteRow) -> Result<SessionRow, sqlx::Error> {
    Ok(SessionRow {
        key: row.try_get(0)?,
        agent: row.try_get(1)?,
        label: row.try_get(2)?,
        created: row.try_get(3)?,
        last_activity: row.try_get(4)?,
        next_seq: row.try_get(5)?,
        has_work: row.try_get(6)?,
        parent: row.try_get(7)?,
    })
}

async fn events(
    database: &Database,
    session: i64,
    from: i64,
    limit: i64,
) -> Result<Vec<JournalEvent>, DatabaseError> {
    let failed = query_error("read the session");
    let rows = sqlx::query(
        "SELECT seq, at, kind, data FROM session_events WHERE session = $1 AND seq >= $2 ORDER BY seq LIMIT $3",
    )
    .bind(session)
    .bind(from)
    .bind(limit)
    .fetch_all(&database.readers)
    .await
    .map_err(&failed)?;
    rows.iter().map(journal_event).collect::<Result<_, sqlx::Error>>().map_err(&failed)
}

fn journal_event(row: &SqliteRow) -> Result<JournalEvent, sqlx::Error> {
    Ok(JournalEvent {
        seq: row.try_get(0)?,
        at: row.try_get(1)?,
        kind: row.try_get(2)?,
        data: row.try_get(3)?,
    })
}

/// A match with the text of its message, or of the title if it has no number.
fn found_event(row: &SqliteRow) -> Result<FoundEvent, sqlx::Error> {
    let (label, data): (Option<String>, String) = (row.try_get(2)?, row.try_get(5)?);
    let seq: Option<i64> = row.try_get(4)?;
    let text = match seq {
        None => label.clone().unwrap_or_default(),
        Some(_) => message_text(&serde_json::from_str(&data).unwrap_or_default()),
    };
    Ok(FoundEvent { key: row.try_get(0)?, agent: row.try_get(1)?, label, at: row.try_get(3)?, seq, text })
}

/// The text of a message, or those of a reply.
fn message_text(entry: &serde_json::Value) -> String {
    if let Some(text) = entry.get("text").and_then(serde_json::Value::as_str) {
        return text.to_owned();
    }
    let blocks = entry.pointer("/reply/message/content").and_then(serde_json::Value::as_array);
    let texts = blocks.into_iter().flatten().filter_map(|block| block.get("text")?.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// A pattern that matches texts with this text in them.
fn like(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(c);
    }
    pattern + "%"
}

/// Appends that wait for the writer, each with the sender of its result.
type AppendQueue = mpsc::Receiver<(Append, oneshot::Sender<Result<(), DatabaseError>>)>;

/// Puts all waiting appends into one transaction, so that they share one sync.
async fn write(database: Database, mut waiting: AppendQueue) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, TOGETHER).await > 0 {
        let (appends, answers): (Vec<Append>, Vec<_>) = batch.drain(..).unzip();
        let results = commit(&database, &appends).await;
        for (answer, result) in answers.into_iter().zip(results) {
            // A caller that no longer waits finds the events in the journal.
            let _ = answer.send(result);
        }
    }
}

/// Returns the result of each append. A rejected append does not affect the others; a disk error fails all.
async fn commit(database: &Database, appends: &[Append]) -> Vec<Result<(), DatabaseError>> {
    const DOING: &str = "write the journal";
    let written = async {
        let mut transaction = database.write(DOING).await?;
        let mut results = Vec::with_capacity(appends.len());
        for append in appends {
            results.push(insert(&mut transaction, append).await?);
        }
        transaction.commit().await.map_err(query_error(DOING))?;
        Ok::<_, DatabaseError>(results)
    };
    match written.await {
        Ok(results) => results
            .into_iter()
            .map(|refused| refused.map_or(Ok(()), |why| Err(DatabaseError::Refused(why))))
            .collect(),
        Err(err) => {
            let text = err.to_string();
            appends.iter().map(|_| Err(DatabaseError::Journal(text.clone()))).collect()
        }
    }
}

/// Returns why an append is rejected, if it is.
async fn insert(
    transaction: &mut Transaction<'static, Sqlite>,
    append: &Append,
) -> Result<Option<String>, DatabaseError> {
    let failed = query_error("write the journal");
    let count = i64::try_from(append.events.len()).unwrap_or(i64::MAX);
    let checkpoint = append.events.iter().rposition(|event| event.checkpoint);
    let checkpoint =
        checkpoint.map(|index| append.expected.saturating_add(i64::try_from(index).unwrap_or(i64::MAX)));
    let id: Option<i64> = sqlx::query_scalar(
        "UPDATE sessions SET next_seq = next_seq + $3, last_activity = MAX(last_activity, $4),
           checkpoint = COALESCE($5, checkpoint), has_work = $6
         WHERE key = $1 AND next_seq = $2 RETURNING id",
    )
    .bind(&append.key)
    .bind(append.expected)
    .bind(count)
    .bind(append.at)
    .bind(checkpoint)
    .bind(append.has_work)
    .fetch_optional(&mut **transaction)
    .await
    .map_err(&failed)?;
    let Some(id) = id else {
        return Ok(Some(format!(
            "the session {:?} is not at event {}: another writer changed it",
            append.key, append.expected
        )));
    };
    for (seq, event) in (append.expected..).zip(&append.events) {
        sqlx::query("INSERT INTO session_events (session, seq, at, kind, data) VALUES ($1, $2, $3, $4, $5)")
            .bind(id)
            .bind(seq)
            .bind(append.at)
            .bind(event.kind)
            .bind(&event.data)
            .execute(&mut **transaction)
            .await
            .map_err(&failed)?;
    }
    for event in &append.channel_events {
        channels::insert_event(transaction, event, append.at).await?;
    }
    for message in &append.outbox {
        outbox::insert_outbox(transaction, message, append.at).await?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    fn event(data: &str) -> NewEvent {
        NewEvent { kind: "note", data: data.into(), checkpoint: false }
    }

    fn append(key: &str, expected: i64, events: Vec<NewEvent>) -> Append {
        Append { key: key.into(), expected, at: 7, events, has_work: true, ..Append::default() }
    }

    #[tokio::test]
    async fn session_loads_from_its_checkpoint_and_reads_from_its_beginning() {
        let (_folder, database) = database().await;
        let journal = Journal::new(database);
        let empty = journal.open("agent:main:main", "main", 5).await.unwrap();
        assert_eq!((empty.row.next_seq, empty.events.len(), empty.row.has_work), (0, 0, false));
        journal.append(append("agent:main:main", 0, vec![event("1"), event("2")])).await.unwrap();
        assert_eq!(journal.with_work().await.unwrap(), ["agent:main:main"]);
        let all = NewEvent { checkpoint: true, ..event("all") };
        journal.append(append("agent:main:main", 2, vec![event("3"), all, event("4")])).await.unwrap();
        let loaded = journal.load("agent:main:main").await.unwrap().unwrap();
        let data: Vec<_> = loaded.events.iter().map(|event| (event.seq, event.data.as_str())).collect();
        assert_eq!(data, [(3, "all"), (4, "4")]);
        assert_eq!((loaded.row.next_seq, loaded.row.last_activity), (5, 7));
        let page = journal.page("agent:main:main", 1, 2).await.unwrap();
        assert_eq!(page.iter().map(|event| event.data.as_str()).collect::<Vec<_>>(), ["2", "3"]);
        let done = Append { has_work: false, ..append("agent:main:main", 5, vec![event("5")]) };
        journal.append(done).await.unwrap();
        assert!(journal.with_work().await.unwrap().is_empty());
        assert!(journal.load("nobody").await.unwrap().is_none());
        assert!(journal.exists("agent:main:main").await.unwrap() && !journal.exists("nobody").await.unwrap());
        assert!(journal.open("", "main", 1).await.is_err());
    }

    #[tokio::test]
    async fn working_descendants_are_found_by_their_root() {
        let (_folder, database) = database().await;
        let journal = Journal::new(database);
        let parentage = Parentage { parent: "agent:main:main", root: "agent:main:main", label: "scout" };
        for key in ["agent:main:child:a", "agent:main:child:b", "agent:main:child:a"] {
            journal.adopt(key, "main", parentage, 1).await.unwrap();
        }
        assert!(journal.family_at_work("agent:main:main").await.unwrap().is_empty(), "nothing is to be done");
        journal.append(append("agent:main:child:b", 0, vec![event("1")])).await.unwrap();
        let working = journal.family_at_work("agent:main:main").await.unwrap();
        assert_eq!(working, [("agent:main:child:b".to_owned(), "main".to_owned())]);
        assert_eq!(journal.children_at_work("agent:main:main").await.unwrap(), 1);
        assert_eq!(journal.children_at_work("agent:main:child:b").await.unwrap(), 0);
        let row = journal.load("agent:main:child:a").await.unwrap().unwrap().row;
        assert_eq!((row.parent.as_deref(), row.label.as_deref()), (Some("agent:main:main"), Some("scout")));
        assert!(journal.adopt("", "main", parentage, 1).await.is_err());
    }

    #[tokio::test]
    async fn second_writer_of_a_session_is_rejected_and_others_are_unaffected() {
        let (_folder, database) = database().await;
        let journal = Journal::new(database);
        for key in ["a", "b"] {
            journal.open(key, "main", 1).await.unwrap();
        }
        let writes = [
            append("a", 0, vec![event("1")]),
            append("a", 0, vec![event("x")]),
            append("b", 0, vec![event("1")]),
        ];
        let results = futures_util::future::join_all(writes.map(|write| journal.append(write))).await;
        let refused: Vec<bool> = results.iter().map(Result::is_err).collect();
        assert_eq!(refused, [false, true, false], "{results:?}");
        assert_eq!(journal.page("a", 0, 9).await.unwrap().len(), 1);
        assert!(journal.append(append("nobody", 0, vec![event("1")])).await.is_err());
    }

    /// The next process finds exactly the acknowledged events.
    #[tokio::test(flavor = "multi_thread")]
    async fn many_sessions_share_the_disk() {
        let (_folder, database) = database().await;
        let journal = Journal::new(database.clone());
        let each = gantry_testkit::scaled(400, 20);
        let began = std::time::Instant::now();
        let writing: Vec<_> = (0..64)
            .map(|number| {
                let journal = journal.clone();
                tokio::spawn(async move {
                    let key = format!("session-{number}");
                    journal.open(&key, "main", 1).await.unwrap();
                    for seq in 0..each {
                        journal.append(append(&key, seq, vec![event(&"x".repeat(500))])).await.unwrap();
                    }
                })
            })
            .collect();
        for written in writing {
            written.await.unwrap();
        }
        println!("{:.0} events a second", f64::from(64 * each as i32) / began.elapsed().as_secs_f64());
        let (sessions, total) = Journal::new(database).list(100, 0).await.unwrap();
        assert_eq!(total, 64);
        assert!(sessions.iter().all(|session| session.next_seq == each), "{sessions:?}");
    }

    #[tokio::test]
    async fn long_session_loads_quickly() {
        let (_folder, database) = database().await;
        let journal = Journal::new(database);
        journal.open("long", "main", 1).await.unwrap();
        let count = 100_000;
        for start in (0..count).step_by(10_000) {
            let mut events: Vec<NewEvent> =
                (start..start + 10_000).map(|seq| event(&seq.to_string())).collect();
            events[9_000].checkpoint = true;
            journal.append(append("long", start, events)).await.unwrap();
        }
        let began = std::time::Instant::now();
        let loaded = journal.load("long").await.unwrap().unwrap();
        println!("loaded in {:?}", began.elapsed());
        assert_eq!((loaded.events.len(), loaded.row.next_seq), (1_000, count));
        assert!(began.elapsed().as_millis() < 200, "{:?}", began.elapsed());
    }
}
