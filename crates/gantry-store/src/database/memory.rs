//! Memories of agents: short texts in namespaces, stored without duplicates and found by full-text search.

use std::collections::HashSet;

use sqlx::Row;
use tokio::sync::OnceCell;

use crate::DataDir;
use crate::database::{Database, DatabaseError, from_json, query_error, to_json};

/// The longest memory.
pub const MAX_MEMORY_CHARS: usize = 16_000;
/// The most memories in one namespace.
const MAX_MEMORIES: i64 = 10_000;
/// Punctuation around a word that does not change its meaning. A full stop or sign before a word may belong to it.
const QUOTES: [char; 8] = ['"', '\'', '`', '“', '”', '„', '‘', '’'];
const AROUND: [char; 14] = ['.', ',', ';', ':', '!', '"', '\'', '`', '“', '”', '„', '‘', '’', '…'];
const MAX_QUERY_WORDS: usize = 32;

/// The memories of agents. The database is opened on first use.
#[derive(Debug)]
pub struct Memories {
    data: DataDir,
    database: OnceCell<Database>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remembered {
    New,
    /// The same memory exists, with this text.
    Known,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub content: String,
    pub stored: i64,
    /// The labels of the run that stored it.
    pub labels: Vec<String>,
}

/// The recalled part of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recalled {
    pub memories: Vec<Memory>,
    /// The total number of memories in the namespace.
    pub total: usize,
}

impl Memories {
    pub fn new(data: DataDir) -> Memories {
        Memories { data, database: OnceCell::new() }
    }

    /// Uses a database that is already open.
    pub fn over(data: DataDir, database: Database) -> Memories {
        Memories { data, database: OnceCell::new_with(Some(database)) }
    }

    async fn database(&self) -> Result<&Database, DatabaseError> {
        self.database.get_or_try_init(|| Database::open(&self.data)).await
    }

    pub async fn store(
        &self,
        owner: &str,
        namespace: &str,
        content: &str,
        labels: &[String],
        now: i64,
    ) -> Result<Remembered, DatabaseError> {
        self.database().await?.remember(owner, namespace, content, labels, now).await
    }

    /// Returns the whole namespace if it fits into `max_chars`; otherwise the newest memories, or the best matches.
    pub async fn recall(
        &self,
        owner: &str,
        namespace: &str,
        query: Option<&str>,
        max_chars: usize,
    ) -> Result<Recalled, DatabaseError> {
        self.database().await?.recall(owner, namespace, query, max_chars).await
    }
}

impl Database {
    async fn remember(
        &self,
        owner: &str,
        namespace: &str,
        content: &str,
        labels: &[String],
        now: i64,
    ) -> Result<Remembered, DatabaseError> {
        const DOING: &str = "remember";
        let content = content.trim();
        if words(content).is_empty() || content.chars().count() > MAX_MEMORY_CHARS {
            let message = format!("a memory has words, and at most {MAX_MEMORY_CHARS} characters");
            return Err(DatabaseError::Refused(message));
        }
        let failed = query_error(DOING);
        let mut transaction = self.write(DOING).await?;
        let count: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM memories WHERE owner = $1 AND namespace = $2")
                .bind(owner)
                .bind(namespace)
                .fetch_one(&mut *transaction)
                .await
                .map_err(&failed)?;
        if count >= MAX_MEMORIES {
            let message = format!("{namespace} holds {MAX_MEMORIES} memories already");
            return Err(DatabaseError::Refused(message));
        }
        let added = sqlx::query(
            "INSERT INTO memories (owner, namespace, stored, content, essence, labels)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        )
        .bind(owner)
        .bind(namespace)
        .bind(now)
        .bind(content)
        .bind(essence(content))
        .bind(to_json(DOING, &labels)?)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?
        .rows_affected();
        transaction.commit().await.map_err(&failed)?;
        Ok(if added > 0 { Remembered::New } else { Remembered::Known })
    }

    async fn recall(
        &self,
        owner: &str,
        namespace: &str,
        query: Option<&str>,
        max_chars: usize,
    ) -> Result<Recalled, DatabaseError> {
        const DOING: &str = "recall";
        let failed = query_error(DOING);
        let (total, characters): (i64, i64) = sqlx::query_as(
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(content) + 1), 0) FROM memories WHERE owner = $1 AND namespace = $2",
        )
        .bind(owner)
        .bind(namespace)
        .fetch_one(&self.readers)
        .await
        .map_err(&failed)?;
        let fits = usize::try_from(characters).is_ok_and(|characters| characters <= max_chars);
        let words = query.map(words).unwrap_or_default();
        let rows = if fits && words.is_empty() {
            sqlx::query("SELECT content, stored, labels FROM memories WHERE owner = $1 AND namespace = $2 ORDER BY id")
                .bind(owner)
                .bind(namespace)
        } else if words.is_empty() {
            sqlx::query(
                "SELECT content, stored, labels FROM memories WHERE owner = $1 AND namespace = $2 ORDER BY id DESC LIMIT 1000",
            )
            .bind(owner)
            .bind(namespace)
        } else {
            sqlx::query(
                "SELECT m.content, m.stored, m.labels FROM memories_text JOIN memories m ON m.id = memories_text.rowid
                 WHERE m.owner = $1 AND m.namespace = $2 AND memories_text MATCH $3
                 ORDER BY bm25(memories_text), m.id DESC LIMIT 1000",
            )
            .bind(owner)
            .bind(namespace)
            .bind(matching(&words))
        };
        let rows = rows.fetch_all(&self.readers).await.map_err(&failed)?;
        let (mut memories, mut used) = (Vec::new(), 0);
        for row in &rows {
            let content: String = row.try_get(0).map_err(&failed)?;
            used += content.chars().count() + 1;
            if used > max_chars && !memories.is_empty() {
                break;
            }
            let labels = from_json(DOING, row.try_get(2).map_err(&failed)?)?;
            memories.push(Memory { content, stored: row.try_get(1).map_err(&failed)?, labels });
        }
        Ok(Recalled { memories, total: usize::try_from(total).unwrap_or(0) })
    }
}

/// Returns the letters and digits of a text in lower case.
fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(str::to_lowercase).collect()
}

/// Builds a query that matches any word. Words are quoted, so that text is never parsed as query syntax.
fn matching(words: &[String]) -> String {
    let mut seen = HashSet::new();
    let distinct = words.iter().filter(|word| seen.insert(word.as_str()));
    let quoted: Vec<String> = distinct.take(MAX_QUERY_WORDS).map(|word| format!("\"{word}\"")).collect();
    quoted.join(" OR ")
}

/// Returns a key that is equal for texts that differ only in spacing, case and punctuation. A negation, a number, a sign
/// or another word order changes the meaning and the key.
fn essence(text: &str) -> String {
    let bare = |word: &str| word.trim_start_matches(QUOTES).trim_end_matches(AROUND).to_lowercase();
    let words: Vec<String> = text.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    async fn memories() -> (tempfile::TempDir, Memories) {
        let (folder, database) = database().await;
        let data = DataDir::new(folder.path().join("data"));
        (folder, Memories::over(data, database))
    }

    #[tokio::test]
    async fn same_text_is_stored_once_in_any_spelling() {
        let (_folder, memories) = memories().await;
        let store =
            async |owner: &str, text: &str| memories.store(owner, "knowledge", text, &[], 1).await.unwrap();
        assert_eq!(store("main", "The server is called atlas.").await, Remembered::New);
        for known in [
            "The server is called atlas.",
            "  the SERVER is called \"atlas\"!",
            "The server\n is called: ‘Atlas’",
        ] {
            assert_eq!(store("main", known).await, Remembered::Known, "{known}");
        }
        assert_eq!(store("main", "The printer is called atlas as well").await, Remembered::New);
        assert_eq!(store("other", "The server is called atlas.").await, Remembered::New, "each has its own");
        for bad in ["", " … ", &"x ".repeat(MAX_MEMORY_CHARS)] {
            assert!(memories.store("main", "knowledge", bad, &[], 1).await.is_err());
        }
        let recalled = memories.recall("main", "knowledge", None, 1_000).await.unwrap();
        assert_eq!((recalled.total, recalled.memories.len()), (2, 2));
        assert_eq!(recalled.memories[0].content, "The server is called atlas.");
        assert!(memories.recall("main", "methods", None, 1_000).await.unwrap().memories.is_empty());
    }

    #[tokio::test]
    async fn text_with_another_meaning_is_stored_separately() {
        let (_folder, memories) = memories().await;
        let said = [
            "The server prod-1 is healthy and must not be restarted",
            "The server prod-1 is not healthy and must be restarted",
            "Alice likes Bob",
            "Bob likes Alice",
            "Alice doesn't like Bob",
            "of all the door codes in the long corridor of the old house the last one on the left is 4711",
            "of all the door codes in the long corridor of the old house the last one on the left is 4712",
            "it is 5 degrees",
            "it is -5 degrees",
            "it is .5 degrees",
            "he writes C",
            "he writes C++",
            "is the door open?",
            "is the door open",
            "votes: 👍",
            "votes: 👎",
        ];
        for text in said {
            let stored = memories.store("main", "knowledge", text, &[], 1).await.unwrap();
            assert_eq!(stored, Remembered::New, "{text}");
        }
        let recalled = memories.recall("main", "knowledge", None, 10_000).await.unwrap();
        assert_eq!(recalled.total, said.len());
    }

    #[tokio::test]
    async fn recall_ranks_when_it_does_not_fit_and_ignores_query_syntax() {
        let (_folder, memories) = memories().await;
        for number in 0..50 {
            let text =
                format!("note {number}: {}", ["tea and cake", "rust compilers", "sailing boats"][number % 3]);
            let text = format!("{text} {}", blake3::hash(&[number as u8]).to_hex());
            memories.store("main", "learnings", &text, &["untrusted".into()], 1).await.unwrap();
        }
        let newest = memories.recall("main", "learnings", None, 300).await.unwrap();
        assert!(newest.memories.len() < 5 && newest.total == 50, "{newest:?}");
        assert!(newest.memories[0].content.starts_with("note 49"));
        let found = memories.recall("main", "learnings", Some("sailing"), 400).await.unwrap();
        assert!(
            !found.memories.is_empty()
                && found.memories.iter().all(|memory| memory.content.contains("sailing"))
        );
        assert_eq!(found.memories[0].labels, ["untrusted"]);
        for odd in ["\" OR 1", "sail* NEAR(", "'; DROP TABLE memories; --", "NOT", "ä"] {
            memories.recall("main", "learnings", Some(odd), 400).await.unwrap();
        }
    }
}
