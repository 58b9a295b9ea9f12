//! Tokens of client programs, each with a scope: which tools, which agents, and whether it may change anything.

use gantry_protocol::{TokenAdd, TokenInfo};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::database::{Database, DatabaseError, from_json, query_error, to_json};
use crate::token::{self, PlainToken};

const PREFIX: &str = "gtc_";
const MAX_NAME_CHARS: usize = 64;
/// The time of last use is written at most this often, so that a call does not cost a write.
const LAST_USED_STEP_MS: i64 = 60_000;

/// `ClientToken` is a stored token: what clients may see of it, and its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientToken {
    /// Identifies this token. The name of a revoked token may be reused, its id never.
    pub id: String,
    /// Counts the tokens that have had this name.
    pub generation: i64,
    /// The name, the scope and the times, as `tokens.list` reports them.
    pub info: TokenInfo,
}

impl std::ops::Deref for ClientToken {
    type Target = TokenInfo;

    fn deref(&self) -> &TokenInfo {
        &self.info
    }
}

impl ClientToken {
    /// The owner of what the token creates: its name and its number among tokens of that name. No name contains `#`.
    pub fn owner(&self) -> String {
        match self.generation {
            ..=1 => self.name.clone(),
            generation => format!("{}#{generation}", self.name),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCheck {
    Ok(Box<ClientToken>),
    Unknown,
    Expired,
    Revoked,
}

impl Database {
    /// Creates a token and returns it in plain text, only this once. The name of a revoked token may be reused.
    pub async fn add_client_token(&self, new: &TokenAdd, now: i64) -> Result<PlainToken, DatabaseError> {
        const DOING: &str = "add the client token";
        check_name(&new.name).map_err(DatabaseError::Refused)?;
        if new.expires.is_some_and(|expires| expires <= now) {
            return Err(DatabaseError::Refused("the token would have expired already".to_owned()));
        }
        let plain = PlainToken::make(PREFIX).map_err(DatabaseError::Random)?;
        let hash = blake3::hash(plain.expose().as_bytes());
        let tools = new.tools.as_ref().map(|tools| to_json(DOING, tools)).transpose()?;
        let added = sqlx::query(
            "INSERT INTO client_tokens (name, token_hash, tools, agents, read_only, created, expires)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (name) DO UPDATE SET token_hash = excluded.token_hash, tools = excluded.tools,
             agents = excluded.agents, read_only = excluded.read_only, created = excluded.created,
             expires = excluded.expires, last_used = NULL, revoked = NULL,
             generation = generation + 1 WHERE revoked IS NOT NULL",
        )
        .bind(&new.name)
        .bind(hash.as_bytes().as_slice())
        .bind(tools)
        .bind(to_json(DOING, &new.agents)?)
        .bind(new.read_only)
        .bind(now)
        .bind(new.expires)
        .execute(&self.writer)
        .await
        .map_err(query_error(DOING))?;
        if added.rows_affected() == 0 {
            return Err(DatabaseError::Refused(format!(
                "there is a token {:?} already; revoke it first, or choose another name",
                new.name
            )));
        }
        Ok(plain)
    }

    /// Returns whose token this is and what it may do now.
    pub async fn check_client_token(&self, token: &str, now: i64) -> Result<ClientCheck, DatabaseError> {
        const DOING: &str = "check the client token";
        // The lookup by hash reveals nothing about a token of 256 random bits through its timing.
        let Some(hash) = token::hash(PREFIX, token) else { return Ok(ClientCheck::Unknown) };
        let row = sqlx::query("SELECT * FROM client_tokens WHERE token_hash = $1")
            .bind(hash.as_bytes().as_slice())
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error(DOING))?;
        let Some(row) = row else { return Ok(ClientCheck::Unknown) };
        let found = client_token(&row)?;
        if found.revoked.is_some() {
            return Ok(ClientCheck::Revoked);
        }
        if found.expires.is_some_and(|expires| expires <= now) {
            return Ok(ClientCheck::Expired);
        }
        if found.last_used.is_none_or(|used| now - used >= LAST_USED_STEP_MS) {
            sqlx::query("UPDATE client_tokens SET last_used = $2 WHERE token_hash = $1")
                .bind(hash.as_bytes().as_slice())
                .bind(now)
                .execute(&self.writer)
                .await
                .map_err(query_error(DOING))?;
        }
        Ok(ClientCheck::Ok(Box::new(found)))
    }

    /// Returns every token by name, including revoked ones.
    pub async fn list_client_tokens(&self) -> Result<Vec<ClientToken>, DatabaseError> {
        let rows = sqlx::query("SELECT * FROM client_tokens ORDER BY name")
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("list the client tokens"))?;
        rows.iter().map(client_token).collect()
    }

    pub async fn revoke_client_token(&self, name: &str, now: i64) -> Result<(), DatabaseError> {
        let revoked = sqlx::query("UPDATE client_tokens SET revoked = COALESCE(revoked, $2) WHERE name = $1")
            .bind(name)
            .bind(now)
            .execute(&self.writer)
            .await
            .map_err(query_error("revoke the client token"))?;
        if revoked.rows_affected() == 0 {
            return Err(DatabaseError::Refused(format!(
                "unknown client token {name:?}; `gantry tokens` lists the tokens"
            )));
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.bytes().all(allowed) {
        return Err(format!(
            "invalid token name {name:?}: it must have 1 to {MAX_NAME_CHARS} of a-z, A-Z, 0-9, -, _ and ."
        ));
    }
    Ok(())
}

fn client_token(row: &SqliteRow) -> Result<ClientToken, DatabaseError> {
    const DOING: &str = "read the client token";
    let failed = query_error(DOING);
    let tools: Option<String> = row.try_get("tools").map_err(&failed)?;
    let hash: &[u8] = row.try_get("token_hash").map_err(&failed)?;
    Ok(ClientToken {
        id: blake3::hash(hash).to_hex().to_string(),
        generation: row.try_get("generation").map_err(&failed)?,
        info: TokenInfo {
            name: row.try_get("name").map_err(&failed)?,
            tools: tools.map(|text| from_json(DOING, &text)).transpose()?,
            agents: from_json(DOING, row.try_get("agents").map_err(&failed)?)?,
            read_only: row.try_get("read_only").map_err(&failed)?,
            created: row.try_get("created").map_err(&failed)?,
            expires: row.try_get("expires").map_err(&failed)?,
            last_used: row.try_get("last_used").map_err(&failed)?,
            revoked: row.try_get("revoked").map_err(&failed)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    fn new(name: &str) -> TokenAdd {
        TokenAdd { name: name.into(), tools: None, agents: Vec::new(), read_only: false, expires: None }
    }

    #[tokio::test]
    async fn token_has_its_scope_until_it_expires_or_is_revoked() {
        let (_folder, database) = database().await;
        let scoped = TokenAdd {
            tools: Some(vec!["node".into()]),
            agents: vec!["helper".into()],
            read_only: true,
            expires: Some(1_000),
            ..new("ci")
        };
        let ci = database.add_client_token(&scoped, 10).await.unwrap();
        let open = database.add_client_token(&new("open"), 10).await.unwrap();
        let ClientCheck::Ok(found) = database.check_client_token(ci.expose(), 999).await.unwrap() else {
            panic!("refused")
        };
        assert_eq!(
            (found.name.as_str(), found.read_only, found.agents.as_slice()),
            ("ci", true, &["helper".to_owned()][..])
        );
        assert_eq!(found.tools.as_deref(), Some(&["node".to_owned()][..]));
        assert_eq!(database.check_client_token(ci.expose(), 1_000).await.unwrap(), ClientCheck::Expired);
        assert_eq!(database.check_client_token("gtc_guess", 20).await.unwrap(), ClientCheck::Unknown);

        assert!(matches!(database.add_client_token(&new("open"), 20).await, Err(DatabaseError::Refused(_))));
        let before = database.check_client_token(open.expose(), 20).await.unwrap();
        database.revoke_client_token("open", 30).await.unwrap();
        assert_eq!(database.check_client_token(open.expose(), 31).await.unwrap(), ClientCheck::Revoked);
        let again = database.add_client_token(&new("open"), 40).await.unwrap();
        assert_eq!(database.check_client_token(open.expose(), 41).await.unwrap(), ClientCheck::Unknown);
        let after = database.check_client_token(again.expose(), 41).await.unwrap();
        let (ClientCheck::Ok(before), ClientCheck::Ok(after)) = (before, after) else { panic!("refused") };
        assert!(before.name == after.name && before.id != after.id);
        assert_eq!((before.owner().as_str(), after.owner().as_str()), ("open", "open#2"));
        let listed = database.list_client_tokens().await.unwrap();
        assert_eq!(listed.iter().map(|token| token.last_used).collect::<Vec<_>>(), [Some(999), Some(41)]);
    }

    #[tokio::test]
    async fn invalid_tokens_are_rejected() {
        let (_folder, database) = database().await;
        for name in ["", "a b", "ä", "a#2", &"a".repeat(65)] {
            assert!(
                matches!(database.add_client_token(&new(name), 1).await, Err(DatabaseError::Refused(_))),
                "{name}"
            );
        }
        let past = TokenAdd { expires: Some(5), ..new("past") };
        assert!(matches!(database.add_client_token(&past, 5).await, Err(DatabaseError::Refused(_))));
        assert!(matches!(database.revoke_client_token("none", 1).await, Err(DatabaseError::Refused(_))));
    }
}
