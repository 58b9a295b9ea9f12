//! The nodes that may join: their tokens, when they were last seen, and their tools.

use gantry_protocol::check_node_id;
use serde::Serialize;
use serde_json::Value;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::database::{Database, DatabaseError, from_json, query_error, to_json};
use crate::token::{self, PlainToken};

pub(crate) const NODE_TOKEN_PREFIX: &str = "gtn_";
const MAX_ID_CHARS: usize = 32;
const MAX_TAGS: usize = 64;
/// The gateway's own machine, which needs no token.
const LOCAL: &str = "local";

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    pub id: String,
    pub tags: Vec<String>,
    pub created: i64,
    pub first_seen: Option<i64>,
    pub last_seen: Option<i64>,
    pub last_connected: Option<i64>,
    pub last_disconnected: Option<i64>,
    pub platform: Option<String>,
    pub version: Option<String>,
    /// Identifies the node process that connected last.
    pub instance: Option<String>,
    /// The tools it offered at its last connection.
    pub tools: Option<Value>,
    pub capabilities: Vec<String>,
    /// When its token was revoked.
    pub revoked: Option<i64>,
}

/// What a node reports when it connects.
#[derive(Debug, Clone)]
pub struct SeenNode {
    pub platform: String,
    pub version: String,
    pub instance: String,
    pub tools: Value,
    pub host_capabilities: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCheck {
    Ok,
    /// Unknown node or wrong token.
    Unknown,
    Revoked,
}

/// Checks whether a text is a valid id of a joining node.
pub(super) fn check_joining(id: &str) -> Result<(), String> {
    check_node_id(id).map_err(|err| err.to_string())?;
    if id == LOCAL {
        return Err(
            "the node id \"local\" is reserved for the gateway's own machine; choose another id".to_owned()
        );
    }
    Ok(())
}

/// Checks whether a text is a valid tag.
pub fn check_tag(tag: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if tag.is_empty() || tag.len() > MAX_ID_CHARS || !tag.bytes().all(allowed) {
        return Err(format!(
            "invalid tag {tag:?}: it must have 1 to {MAX_ID_CHARS} of a-z, A-Z, 0-9, -, _ and ."
        ));
    }
    Ok(())
}

impl Database {
    /// Adds a node and returns its token in plain text, only this once.
    pub async fn add_node(&self, id: &str, tags: &[String], now: i64) -> Result<PlainToken, DatabaseError> {
        const DOING: &str = "add the node";
        check_joining(id).map_err(DatabaseError::Refused)?;
        let tags = to_json(DOING, &sound_tags(tags)?)?;
        let plain = PlainToken::make(NODE_TOKEN_PREFIX).map_err(DatabaseError::Random)?;
        let hash = blake3::hash(plain.expose().as_bytes());
        let added = sqlx::query(
            "INSERT INTO nodes (id, token_hash, tags, created) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        )
        .bind(id)
        .bind(hash.as_bytes().as_slice())
        .bind(tags)
        .bind(now)
        .execute(&self.writer)
        .await
        .map_err(query_error(DOING))?;
        if added.rows_affected() == 0 {
            return Err(DatabaseError::Refused(format!(
                "the node {id:?} already exists; `gantry nodes renew {id}` lets it join again"
            )));
        }
        Ok(plain)
    }

    /// Whether a node may join with this token.
    pub async fn check_node_token(&self, id: &str, token: &str) -> Result<TokenCheck, DatabaseError> {
        const DOING: &str = "check the node's token";
        let Some(hash) = token::hash(NODE_TOKEN_PREFIX, token) else { return Ok(TokenCheck::Unknown) };
        let row = sqlx::query("SELECT token_hash, revoked FROM nodes WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error(DOING))?;
        let Some(row) = row else { return Ok(TokenCheck::Unknown) };
        let kept: Vec<u8> = row.try_get(0).map_err(query_error(DOING))?;
        let revoked: Option<i64> = row.try_get(1).map_err(query_error(DOING))?;
        Ok(match revoked {
            _ if !token::is_same(&kept, &hash) => TokenCheck::Unknown,
            Some(_) => TokenCheck::Revoked,
            None => TokenCheck::Ok,
        })
    }

    /// Replaces the token. A revoked node may join again with the new one.
    pub async fn renew_node_token(&self, id: &str) -> Result<PlainToken, DatabaseError> {
        self.drop_join_codes(id).await?;
        let plain = PlainToken::make(NODE_TOKEN_PREFIX).map_err(DatabaseError::Random)?;
        let hash = blake3::hash(plain.expose().as_bytes());
        let renewed = sqlx::query("UPDATE nodes SET token_hash = $2, revoked = NULL WHERE id = $1")
            .bind(id)
            .bind(hash.as_bytes().as_slice())
            .execute(&self.writer)
            .await
            .map_err(query_error("renew the node's token"))?;
        found(id, renewed.rows_affected()).map(|()| plain)
    }

    /// Records that a node connected or updated its tools.
    pub async fn node_seen(&self, id: &str, seen: &SeenNode, now: i64) -> Result<(), DatabaseError> {
        const DOING: &str = "record the node";
        let updated = sqlx::query(
            "UPDATE nodes SET platform = $2, version = $3, instance = $4, tools = $5, capabilities = $6,
             first_seen = COALESCE(first_seen, $7), last_seen = $7, last_connected = $7 WHERE id = $1",
        )
        .bind(id)
        .bind(&seen.platform)
        .bind(&seen.version)
        .bind(&seen.instance)
        .bind(to_json(DOING, &seen.tools)?)
        .bind(to_json(DOING, &seen.host_capabilities)?)
        .bind(now)
        .execute(&self.writer)
        .await
        .map_err(query_error(DOING))?;
        found(id, updated.rows_affected())
    }

    /// Records that a node's connection ended. A node that was removed meanwhile is not an error.
    pub async fn node_left(&self, id: &str, now: i64) -> Result<(), DatabaseError> {
        sqlx::query("UPDATE nodes SET last_seen = $2, last_disconnected = $2 WHERE id = $1")
            .bind(id)
            .bind(now)
            .execute(&self.writer)
            .await
            .map_err(query_error("record that the node left"))?;
        Ok(())
    }

    /// Returns every node by id.
    pub async fn list_nodes(&self) -> Result<Vec<NodeRow>, DatabaseError> {
        let rows = sqlx::query("SELECT * FROM nodes ORDER BY id")
            .fetch_all(&self.readers)
            .await
            .map_err(query_error("list the nodes"))?;
        rows.iter().map(node_row).collect()
    }

    pub async fn node(&self, id: &str) -> Result<Option<NodeRow>, DatabaseError> {
        let row = sqlx::query("SELECT * FROM nodes WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(query_error("read the node"))?;
        row.as_ref().map(node_row).transpose()
    }

    /// Renames a node. Its token and its reports keep belonging to it.
    pub async fn rename_node(&self, id: &str, new_id: &str) -> Result<(), DatabaseError> {
        check_joining(new_id).map_err(DatabaseError::Refused)?;
        const DOING: &str = "rename the node";
        let mut transaction = self.write(DOING).await?;
        let taken = sqlx::query("SELECT 1 FROM nodes WHERE id = $1")
            .bind(new_id)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(query_error(DOING))?;
        if taken.is_some() {
            return Err(DatabaseError::Refused(format!(
                "the node {new_id:?} already exists; choose another id"
            )));
        }
        let renamed = sqlx::query("UPDATE nodes SET id = $2 WHERE id = $1")
            .bind(id)
            .bind(new_id)
            .execute(&mut *transaction)
            .await
            .map_err(query_error(DOING))?;
        found(id, renamed.rows_affected())?;
        // An earlier node with the new id may have left reports with the same ids, which belong to that node.
        // Running transfers continue under the new id.
        for statement in [
            "DELETE FROM join_codes WHERE node IN ($1, $2)",
            "DELETE FROM process_ends WHERE node = $2",
            "UPDATE process_ends SET node = $2 WHERE node = $1",
            "UPDATE transfers SET source = $2 || substr(source, length($1) + 1)
             WHERE state = 'running' AND substr(source, 1, length($1) + 1) = $1 || ':'",
            "UPDATE transfers SET destination = $2 || substr(destination, length($1) + 1)
             WHERE state = 'running' AND substr(destination, 1, length($1) + 1) = $1 || ':'",
        ] {
            let moved = sqlx::query(statement).bind(id).bind(new_id).execute(&mut *transaction);
            moved.await.map_err(query_error(DOING))?;
        }
        transaction.commit().await.map_err(query_error(DOING))
    }

    /// Revokes a node's token. The node stays listed.
    pub async fn revoke_node(&self, id: &str, now: i64) -> Result<(), DatabaseError> {
        // First, so that a crash in between leaves no way to join.
        self.drop_join_codes(id).await?;
        let revoked = sqlx::query("UPDATE nodes SET revoked = COALESCE(revoked, $2) WHERE id = $1")
            .bind(id)
            .bind(now)
            .execute(&self.writer)
            .await
            .map_err(query_error("revoke the node"))?;
        found(id, revoked.rows_affected())
    }

    /// Invalidates the codes with which a node could join.
    async fn drop_join_codes(&self, id: &str) -> Result<(), DatabaseError> {
        sqlx::query("DELETE FROM join_codes WHERE node = $1")
            .bind(id)
            .execute(&self.writer)
            .await
            .map_err(query_error("invalidate the join codes of the node"))?;
        Ok(())
    }

    /// Removes everything stored about a node.
    pub async fn forget_node(&self, id: &str) -> Result<(), DatabaseError> {
        const DOING: &str = "forget the node";
        let mut transaction = self.write(DOING).await?;
        let forgotten = sqlx::query("DELETE FROM nodes WHERE id = $1")
            .bind(id)
            .execute(&mut *transaction)
            .await
            .map_err(query_error(DOING))?;
        found(id, forgotten.rows_affected())?;
        for statement in
            ["DELETE FROM process_ends WHERE node = $1", "DELETE FROM join_codes WHERE node = $1"]
        {
            sqlx::query(statement).bind(id).execute(&mut *transaction).await.map_err(query_error(DOING))?;
        }
        transaction.commit().await.map_err(query_error(DOING))
    }

    /// Returns the tags as they are stored: sorted, without duplicates.
    pub async fn set_node_tags(&self, id: &str, tags: &[String]) -> Result<Vec<String>, DatabaseError> {
        const DOING: &str = "set the node's tags";
        let tags = sound_tags(tags)?;
        let set = sqlx::query("UPDATE nodes SET tags = $2 WHERE id = $1")
            .bind(id)
            .bind(to_json(DOING, &tags)?)
            .execute(&self.writer)
            .await
            .map_err(query_error(DOING))?;
        found(id, set.rows_affected()).map(|()| tags)
    }
}

pub(super) fn sound_tags(tags: &[String]) -> Result<Vec<String>, DatabaseError> {
    for tag in tags {
        check_tag(tag).map_err(DatabaseError::Refused)?;
    }
    let mut tags = tags.to_vec();
    tags.sort();
    tags.dedup();
    if tags.len() > MAX_TAGS {
        return Err(DatabaseError::Refused(format!("{} tags are too many, at most {MAX_TAGS}", tags.len())));
    }
    Ok(tags)
}

fn found(id: &str, rows: u64) -> Result<(), DatabaseError> {
    if rows == 0 {
        Err(DatabaseError::Refused(format!("unknown node {id:?}; `gantry nodes` lists the nodes")))
    } else {
        Ok(())
    }
}

fn node_row(row: &SqliteRow) -> Result<NodeRow, DatabaseError> {
    const DOING: &str = "read the node";
    let failed = query_error(DOING);
    let tools: Option<String> = row.try_get("tools").map_err(&failed)?;
    Ok(NodeRow {
        id: row.try_get("id").map_err(&failed)?,
        tags: from_json(DOING, row.try_get("tags").map_err(&failed)?)?,
        created: row.try_get("created").map_err(&failed)?,
        first_seen: row.try_get("first_seen").map_err(&failed)?,
        last_seen: row.try_get("last_seen").map_err(&failed)?,
        last_connected: row.try_get("last_connected").map_err(&failed)?,
        last_disconnected: row.try_get("last_disconnected").map_err(&failed)?,
        platform: row.try_get("platform").map_err(&failed)?,
        version: row.try_get("version").map_err(&failed)?,
        instance: row.try_get("instance").map_err(&failed)?,
        tools: tools.map(|text| from_json(DOING, &text)).transpose()?,
        capabilities: from_json(DOING, row.try_get("capabilities").map_err(&failed)?)?,
        revoked: row.try_get("revoked").map_err(&failed)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::database::testing::database;

    fn seen() -> SeenNode {
        SeenNode {
            platform: "linux-x64".into(),
            version: "0.1.0".into(),
            instance: "i1".into(),
            tools: json!([{"name": "Read"}]),
            host_capabilities: vec!["filesystem.read".into()],
        }
    }

    #[tokio::test]
    async fn token_is_bound_to_its_node_hashed_and_revocable() {
        let (folder, database) = database().await;
        let one = database.add_node("one", &[], 1).await.unwrap();
        let two = database.add_node("two", &[], 1).await.unwrap();
        let check = async |id: &str, token: &str| database.check_node_token(id, token).await.unwrap();
        assert_eq!(check("one", one.expose()).await, TokenCheck::Ok);
        for (id, token) in [
            ("one", two.expose()),
            ("two", one.expose()),
            ("three", one.expose()),
            ("one", ""),
            ("one", "gtn_"),
        ] {
            assert_eq!(check(id, token).await, TokenCheck::Unknown, "{id}");
        }
        database.revoke_node("one", 5).await.unwrap();
        assert_eq!(check("one", one.expose()).await, TokenCheck::Revoked);
        assert_eq!(check("one", two.expose()).await, TokenCheck::Unknown, "a guess does not learn of it");
        let renewed = database.renew_node_token("one").await.unwrap();
        assert_eq!(check("one", one.expose()).await, TokenCheck::Unknown);
        assert_eq!(check("one", renewed.expose()).await, TokenCheck::Ok);
        database.close().await;
        for entry in std::fs::read_dir(folder.path().join("data")).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            for token in [&one, &two, &renewed] {
                let secret = &token.expose().as_bytes()[4..];
                assert!(!bytes.windows(secret.len()).any(|window| window == secret), "in plain on disk");
            }
        }
    }

    #[tokio::test]
    async fn node_can_be_added_renamed_revoked_and_removed() {
        let (_folder, database) = database().await;
        let token = database.add_node("box", &["web".into(), "eu".into(), "web".into()], 10).await.unwrap();
        assert!(matches!(database.add_node("box", &[], 11).await, Err(DatabaseError::Refused(_))));
        database.node_seen("box", &seen(), 20).await.unwrap();
        database.node_left("box", 30).await.unwrap();
        database.node_seen("box", &seen(), 40).await.unwrap();
        let row = database.node("box").await.unwrap().unwrap();
        assert_eq!(row.tags, ["eu", "web"]);
        assert_eq!(
            (row.created, row.first_seen, row.last_seen, row.last_connected, row.last_disconnected),
            (10, Some(20), Some(40), Some(40), Some(30))
        );
        assert_eq!(
            (row.tools, row.platform.as_deref()),
            (Some(json!([{"name": "Read"}])), Some("linux-x64"))
        );
        assert_eq!((row.capabilities, row.revoked), (vec!["filesystem.read".to_owned()], None));

        database.add_node("other", &[], 50).await.unwrap();
        for (id, new_id) in
            [("box", "other"), ("nobody", "x"), ("box", "local"), ("box", "gsv"), ("box", "A")]
        {
            assert!(
                matches!(database.rename_node(id, new_id).await, Err(DatabaseError::Refused(_))),
                "{new_id}"
            );
        }
        database.record_process_end("box", "e1", &json!({}), 60).await.unwrap();
        database.record_process_end("crate", "e1", &json!({}), 60).await.unwrap();
        database.rename_node("box", "crate").await.unwrap();
        assert_eq!(database.list_process_ends(Some("crate"), 9).await.unwrap().len(), 1);
        assert_eq!(database.list_process_ends(Some("box"), 9).await.unwrap().len(), 0);
        assert_eq!(database.check_node_token("crate", token.expose()).await.unwrap(), TokenCheck::Ok);
        assert_eq!(database.check_node_token("box", token.expose()).await.unwrap(), TokenCheck::Unknown);
        let kept = database.set_node_tags("crate", &["web".into(), "db".into(), "web".into()]).await.unwrap();
        assert_eq!(kept, ["db", "web"]);
        database.set_node_tags("crate", &["db".into()]).await.unwrap();
        database.forget_node("crate").await.unwrap();
        assert_eq!(database.list_process_ends(None, 9).await.unwrap().len(), 0);
        let ids: Vec<String> = database.list_nodes().await.unwrap().into_iter().map(|node| node.id).collect();
        assert_eq!(ids, ["other"]);
        assert!(matches!(database.forget_node("crate").await, Err(DatabaseError::Refused(_))));
        assert!(matches!(database.node_seen("crate", &seen(), 60).await, Err(DatabaseError::Refused(_))));
        database.node_left("crate", 60).await.unwrap();
    }

    #[test]
    fn node_ids_are_valid_parts_of_tool_names() {
        for good in ["a", "0", "build-box-2", &"a".repeat(32)] {
            assert_eq!(check_joining(good), Ok(()), "{good}");
        }
        for bad in
            ["", "-a", "A", "a_b", "a__b", "a:b", "a.b", "ä", "gsv", "tool", "local", "a b", &"a".repeat(33)]
        {
            assert!(check_joining(bad).is_err(), "{bad}");
        }
    }
}
