//! Codes with which a machine joins once: it exchanges a code for the node's token within a few minutes.

use sqlx::Row;

use crate::database::{Database, DatabaseError, query_error};
use crate::token::{self, PlainToken};

use super::nodes::{NODE_TOKEN_PREFIX, check_joining, sound_tags};

/// How long a code is valid.
const JOIN_CODE_MS: i64 = 10 * 60 * 1000;

/// Codes that ended longer ago than this are removed, so that a late attempt still gets the reason.
const FORGET_AFTER_MS: i64 = 24 * 3600 * 1000;

/// Whether a node that exists already may get a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InviteKnown {
    /// Only a node that never connected.
    IfNew,
    /// Any node. Its token is invalid from now on.
    Renew,
}

/// What became of a code that a machine sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinOutcome {
    /// The token that the machine sent is the node's token now.
    Joined,
    /// The same machine sent the same code and token before.
    Repeated,
    Unknown,
    Expired,
    Used,
    OtherNode,
}

impl Database {
    /// Adds a node, or takes a known one, and stores a code for it. Earlier codes of the node are invalid. Returns when
    /// the code expires.
    pub async fn invite_node(
        &self,
        id: &str,
        tags: &[String],
        known: InviteKnown,
        code: &[u8],
        now: i64,
    ) -> Result<i64, DatabaseError> {
        const DOING: &str = "invite the node";
        check_joining(id).map_err(DatabaseError::Refused)?;
        let tags = sound_tags(tags)?;
        // Nobody learns this token. The machine brings its own when it joins.
        let unknown = PlainToken::make(NODE_TOKEN_PREFIX).map_err(DatabaseError::Random)?;
        let unknown = blake3::hash(unknown.expose().as_bytes());
        let mut transaction = self.write(DOING).await?;
        let row = sqlx::query("SELECT first_seen FROM nodes WHERE id = $1")
            .bind(id)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(query_error(DOING))?;
        let first_seen: Option<Option<i64>> =
            row.map(|row| row.try_get(0)).transpose().map_err(query_error(DOING))?;
        check_known(id, first_seen, known)?;
        match first_seen {
            None => {
                sqlx::query("INSERT INTO nodes (id, token_hash, tags, created) VALUES ($1, $2, $3, $4)")
                    .bind(id)
                    .bind(unknown.as_bytes().as_slice())
                    .bind(crate::database::to_json(DOING, &tags)?)
                    .bind(now)
                    .execute(&mut *transaction)
                    .await
                    .map_err(query_error(DOING))?;
            }
            Some(_) => {
                sqlx::query("UPDATE nodes SET token_hash = $2, revoked = NULL WHERE id = $1")
                    .bind(id)
                    .bind(unknown.as_bytes().as_slice())
                    .execute(&mut *transaction)
                    .await
                    .map_err(query_error(DOING))?;
                if !tags.is_empty() {
                    sqlx::query("UPDATE nodes SET tags = $2 WHERE id = $1")
                        .bind(id)
                        .bind(crate::database::to_json(DOING, &tags)?)
                        .execute(&mut *transaction)
                        .await
                        .map_err(query_error(DOING))?;
                }
            }
        }
        sqlx::query("DELETE FROM join_codes WHERE node = $1 OR expires < $2")
            .bind(id)
            .bind(now - FORGET_AFTER_MS)
            .execute(&mut *transaction)
            .await
            .map_err(query_error(DOING))?;
        let expires = now + JOIN_CODE_MS;
        sqlx::query("INSERT INTO join_codes (token_hash, node, created, expires) VALUES ($1, $2, $3, $4)")
            .bind(blake3::hash(code).as_bytes().as_slice())
            .bind(id)
            .bind(now)
            .bind(expires)
            .execute(&mut *transaction)
            .await
            .map_err(query_error(DOING))?;
        transaction.commit().await.map_err(query_error(DOING))?;
        Ok(expires)
    }

    /// Returns why a node cannot be invited, before anything changes.
    pub async fn check_invite(
        &self,
        id: &str,
        tags: &[String],
        known: InviteKnown,
    ) -> Result<(), DatabaseError> {
        check_joining(id).map_err(DatabaseError::Refused)?;
        sound_tags(tags)?;
        check_known(id, self.node(id).await?.map(|node| node.first_seen), known)
    }

    /// Exchanges a code for the token that the machine made for itself. A repetition with the same token changes
    /// nothing and succeeds, because the machine may not have received the first answer.
    pub async fn join_with_code(
        &self,
        id: &str,
        code: &[u8],
        node_token: &str,
        now: i64,
    ) -> Result<JoinOutcome, DatabaseError> {
        const DOING: &str = "join with the code";
        if !PlainToken::is_whole(NODE_TOKEN_PREFIX, node_token) {
            return Err(DatabaseError::Refused("the node's token must be 256 random bits".to_owned()));
        }
        let hash = blake3::hash(node_token.as_bytes());
        let mut transaction = self.write(DOING).await?;
        let row = sqlx::query(
            "SELECT c.node, c.expires, c.used, n.token_hash FROM join_codes c JOIN nodes n ON n.id = c.node
             WHERE c.token_hash = $1",
        )
        .bind(blake3::hash(code).as_bytes().as_slice())
        .fetch_optional(&mut *transaction)
        .await
        .map_err(query_error(DOING))?;
        let Some(row) = row else { return Ok(JoinOutcome::Unknown) };
        let node: String = row.try_get(0).map_err(query_error(DOING))?;
        let expires: i64 = row.try_get(1).map_err(query_error(DOING))?;
        let used: Option<i64> = row.try_get(2).map_err(query_error(DOING))?;
        let stored: Vec<u8> = row.try_get(3).map_err(query_error(DOING))?;
        if node != id {
            return Ok(JoinOutcome::OtherNode);
        }
        if used.is_some() {
            let is_same = token::is_same(&stored, &hash);
            return Ok(if is_same { JoinOutcome::Repeated } else { JoinOutcome::Used });
        }
        if now >= expires {
            return Ok(JoinOutcome::Expired);
        }
        for (statement, bytes) in [
            ("UPDATE nodes SET token_hash = $2, revoked = NULL WHERE id = $1", Some(hash)),
            ("UPDATE join_codes SET used = $2 WHERE node = $1", None),
        ] {
            let query = sqlx::query(statement).bind(id);
            let query = match &bytes {
                Some(hash) => query.bind(hash.as_bytes().as_slice()),
                None => query.bind(now),
            };
            query.execute(&mut *transaction).await.map_err(query_error(DOING))?;
        }
        transaction.commit().await.map_err(query_error(DOING))?;
        Ok(JoinOutcome::Joined)
    }

    /// Returns whether a code could be exchanged now, without using it.
    pub async fn is_join_code_valid(&self, code: &[u8], now: i64) -> Result<bool, DatabaseError> {
        const DOING: &str = "check the join code";
        let row =
            sqlx::query("SELECT 1 FROM join_codes WHERE token_hash = $1 AND used IS NULL AND expires > $2")
                .bind(blake3::hash(code).as_bytes().as_slice())
                .bind(now)
                .fetch_optional(&self.readers)
                .await
                .map_err(query_error(DOING))?;
        Ok(row.is_some())
    }
}

/// `first_seen` is `None` for an unknown node.
fn check_known(id: &str, first_seen: Option<Option<i64>>, known: InviteKnown) -> Result<(), DatabaseError> {
    match (first_seen, known) {
        (Some(Some(_)), InviteKnown::IfNew) => Err(DatabaseError::Refused(format!(
            "the node {id:?} already exists; `gantry nodes renew {id}` lets it join again"
        ))),
        (None, InviteKnown::Renew) => {
            Err(DatabaseError::Refused(format!("unknown node {id:?}; `gantry nodes` lists the nodes")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenCheck;
    use crate::database::testing::database;

    const CODE: &[u8] = b"sixteen bytes ok";
    const OTHER: &[u8] = b"another sixteen!";

    fn token() -> String {
        PlainToken::make(NODE_TOKEN_PREFIX).unwrap().expose().to_owned()
    }

    #[tokio::test]
    async fn code_works_once_and_for_its_node_alone() {
        let (_folder, database) = database().await;
        let expires = database.invite_node("laptop", &[], InviteKnown::IfNew, CODE, 1000).await.unwrap();
        assert_eq!(expires, 1000 + JOIN_CODE_MS);
        let (mine, theirs) = (token(), token());
        let join = async |id: &str, code: &[u8], token: &str, now| {
            database.join_with_code(id, code, token, now).await.unwrap()
        };
        assert_eq!(join("laptop", OTHER, &mine, 2000).await, JoinOutcome::Unknown);
        assert_eq!(join("server", CODE, &mine, 2000).await, JoinOutcome::OtherNode);
        assert_eq!(join("laptop", CODE, &mine, expires).await, JoinOutcome::Expired);
        assert!(database.is_join_code_valid(CODE, 2000).await.unwrap());
        assert_eq!(database.check_node_token("laptop", &mine).await.unwrap(), TokenCheck::Unknown);
        assert_eq!(join("laptop", CODE, &mine, 2000).await, JoinOutcome::Joined);
        assert_eq!(database.check_node_token("laptop", &mine).await.unwrap(), TokenCheck::Ok);
        assert_eq!(join("laptop", CODE, &theirs, 2001).await, JoinOutcome::Used);
        assert_eq!(join("laptop", CODE, &mine, 2001).await, JoinOutcome::Repeated, "the answer was lost");
        assert!(!database.is_join_code_valid(CODE, 2001).await.unwrap());
        assert_eq!(database.check_node_token("laptop", &mine).await.unwrap(), TokenCheck::Ok);
        let weak = database.join_with_code("laptop", CODE, "gtn_short", 2001).await;
        assert!(matches!(weak, Err(DatabaseError::Refused(_))));
    }

    #[tokio::test]
    async fn second_code_replaces_the_first_until_the_node_has_connected() {
        let (_folder, database) = database().await;
        let invite = async |known, code| database.invite_node("laptop", &[], known, code, 1000).await;
        assert!(matches!(invite(InviteKnown::Renew, CODE).await, Err(DatabaseError::Refused(_))));
        invite(InviteKnown::IfNew, CODE).await.unwrap();
        invite(InviteKnown::IfNew, OTHER).await.unwrap();
        assert!(!database.is_join_code_valid(CODE, 1001).await.unwrap());
        let own = token();
        let joined = database.join_with_code("laptop", OTHER, &own, 1001).await.unwrap();
        assert_eq!(joined, JoinOutcome::Joined);
        let seen = crate::SeenNode {
            platform: "linux-x64".into(),
            version: "0.1.0".into(),
            instance: "i".into(),
            tools: serde_json::json!({}),
            host_capabilities: Vec::new(),
        };
        database.node_seen("laptop", &seen, 1002).await.unwrap();
        let err = invite(InviteKnown::IfNew, CODE).await.unwrap_err();
        assert!(err.to_string().contains("gantry nodes renew laptop"), "{err}");
        assert_eq!(database.check_node_token("laptop", &own).await.unwrap(), TokenCheck::Ok);
        invite(InviteKnown::Renew, CODE).await.unwrap();
        assert_eq!(database.check_node_token("laptop", &own).await.unwrap(), TokenCheck::Unknown);
    }

    #[tokio::test]
    async fn revoked_renamed_and_forgotten_nodes_have_no_valid_codes() {
        let (_folder, database) = database().await;
        for action in ["revoke", "rename", "forget", "renew"] {
            let id = format!("node-{action}");
            database.invite_node(&id, &[], InviteKnown::IfNew, action.as_bytes(), 1000).await.unwrap();
            match action {
                "revoke" => database.revoke_node(&id, 1001).await.unwrap(),
                "rename" => database.rename_node(&id, "other").await.unwrap(),
                "renew" => drop(database.renew_node_token(&id).await.unwrap()),
                _ => database.forget_node(&id).await.unwrap(),
            }
            assert!(!database.is_join_code_valid(action.as_bytes(), 1002).await.unwrap(), "{action}");
            let joined = database.join_with_code(&id, action.as_bytes(), &token(), 1002).await.unwrap();
            assert_eq!(joined, JoinOutcome::Unknown, "{action}");
        }
    }
}
