//! Grants: approvals that also cover later calls of an agent. A grant counts until it expires or is revoked.

use gantry_protocol::{GrantInfo, GrantReach};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::database::{Database, DatabaseError, from_json, query_error, to_json};

/// The most grants of one agent that count at the same time.
pub const MAX_GRANTS: i64 = 500;
/// How long a grant is kept after it has ended.
const KEPT_MS: i64 = 90 * 24 * 3600 * 1000;

const COLUMNS: &str = "id, agent, session, everywhere, scope, label, tool, rule, asked, fingerprint, exact, \
    given_by, created, expires";

/// A grant with the hashes of the call that was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredGrant {
    pub info: GrantInfo,
    /// Identifies the call and the rule that asked.
    pub fingerprint: String,
    /// Identifies the call independently of the rule.
    pub exact: String,
}

/// The grants of a database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Grants {
    database: Database,
}

impl Grants {
    pub fn new(database: Database) -> Grants {
        Grants { database }
    }

    /// Stores a grant. It is on disk when this returns.
    pub async fn add(&self, grant: &StoredGrant) -> Result<(), DatabaseError> {
        const DOING: &str = "store a grant";
        let StoredGrant { info, fingerprint, exact } = grant;
        let failed = query_error(DOING);
        let scope = to_json(DOING, &info.scope)?;
        let mut transaction = self.database.write(DOING).await?;
        sqlx::query("DELETE FROM grants WHERE min(expires, coalesce(revoked, expires)) <= $1")
            .bind(info.created - KEPT_MS)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        let count: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM grants WHERE agent = $1 AND expires > $2 AND revoked IS NULL",
        )
        .bind(&info.agent)
        .bind(info.created)
        .fetch_one(&mut *transaction)
        .await
        .map_err(&failed)?;
        if count >= MAX_GRANTS {
            return Err(DatabaseError::Refused(format!(
                "the agent {:?} already has {MAX_GRANTS} grants; `gantry grants revoke ID` removes one",
                info.agent
            )));
        }
        sqlx::query(
            "INSERT INTO grants (id, agent, session, everywhere, scope, label, tool, rule, asked, fingerprint, exact,
               given_by, created, expires) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        )
        .bind(&info.id)
        .bind(&info.agent)
        .bind(&info.session_key)
        .bind(info.reach == GrantReach::Agent)
        .bind(scope)
        .bind(&info.label)
        .bind(&info.tool)
        .bind(&info.rule)
        .bind(&info.asked)
        .bind(fingerprint)
        .bind(exact)
        .bind(&info.by)
        .bind(info.created)
        .bind(info.expires)
        .execute(&mut *transaction)
        .await
        .map_err(&failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Returns the grants that count now in a session of an agent. The oldest comes first.
    pub async fn of_session(
        &self,
        agent: &str,
        session: &str,
        now: i64,
    ) -> Result<Vec<StoredGrant>, DatabaseError> {
        const DOING: &str = "read the grants of a session";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM grants WHERE agent = $1 AND (everywhere = 1 OR session = $2)
               AND expires > $3 AND revoked IS NULL ORDER BY created, id"
        )))
        .bind(agent)
        .bind(session)
        .bind(now)
        .fetch_all(&self.database.readers)
        .await
        .map_err(query_error(DOING))?;
        rows.iter().map(|row| stored(DOING, row)).collect()
    }

    /// Returns the grants of all agents that count now. The newest comes first.
    pub async fn list(&self, now: i64) -> Result<Vec<GrantInfo>, DatabaseError> {
        const DOING: &str = "list the grants";
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM grants WHERE expires > $1 AND revoked IS NULL ORDER BY created DESC, id"
        )))
        .bind(now)
        .fetch_all(&self.database.readers)
        .await
        .map_err(query_error(DOING))?;
        rows.iter().map(|row| stored(DOING, row).map(|grant| grant.info)).collect()
    }

    /// Ends a grant now. Returns whether it counted until now.
    pub async fn revoke(&self, id: &str, now: i64) -> Result<bool, DatabaseError> {
        let revoked =
            sqlx::query("UPDATE grants SET revoked = $2 WHERE id = $1 AND revoked IS NULL AND expires > $2")
                .bind(id)
                .bind(now)
                .execute(&self.database.writer)
                .await;
        Ok(revoked.map_err(query_error("revoke a grant"))?.rows_affected() > 0)
    }
}

fn stored(doing: &'static str, row: &SqliteRow) -> Result<StoredGrant, DatabaseError> {
    let failed = query_error(doing);
    let text = |name: &str| row.try_get::<String, _>(name).map_err(&failed);
    let number = |name: &str| row.try_get::<i64, _>(name).map_err(&failed);
    let reach = if number("everywhere")? == 1 { GrantReach::Agent } else { GrantReach::Session };
    Ok(StoredGrant {
        info: GrantInfo {
            id: text("id")?,
            agent: text("agent")?,
            session_key: text("session")?,
            reach,
            scope: from_json(doing, &text("scope")?)?,
            label: text("label")?,
            tool: text("tool")?,
            rule: text("rule")?,
            asked: text("asked")?,
            by: text("given_by")?,
            created: number("created")?,
            expires: number("expires")?,
        },
        fingerprint: text("fingerprint")?,
        exact: text("exact")?,
    })
}

#[cfg(test)]
mod tests {
    use gantry_protocol::GrantScope;

    use super::*;
    use crate::database::testing::database;

    fn grant(id: &str, agent: &str, session: &str, reach: GrantReach) -> StoredGrant {
        StoredGrant {
            info: GrantInfo {
                id: id.into(),
                agent: agent.into(),
                session_key: session.into(),
                reach,
                scope: GrantScope::Prefix(vec!["cargo".into(), "test".into()]),
                label: "commands that start with \"cargo test\"".into(),
                tool: "local__Bash".into(),
                rule: "supervised-agent".into(),
                asked: "Run on local?  $ cargo test".into(),
                by: "operator".into(),
                created: 1_000,
                expires: 2_000,
            },
            fingerprint: "f".into(),
            exact: "e".into(),
        }
    }

    #[tokio::test]
    async fn grants_count_in_their_sessions_until_they_expire_or_are_revoked() {
        let (_folder, database) = database().await;
        let grants = Grants::new(database.clone());
        let here = grant("1", "a", "agent:a:main", GrantReach::Session);
        let everywhere = grant("2", "a", "agent:a:main", GrantReach::Agent);
        for grant in [&here, &everywhere, &grant("3", "b", "agent:b:main", GrantReach::Agent)] {
            grants.add(grant).await.unwrap();
        }
        let ids = async |session: &str, now: i64| -> Vec<String> {
            let found = grants.of_session("a", session, now).await.unwrap();
            found.into_iter().map(|grant| grant.info.id).collect()
        };
        assert_eq!(ids("agent:a:main", 1_500).await, ["1", "2"]);
        assert_eq!(ids("agent:a:other", 1_500).await, ["2"]);
        assert_eq!(grants.of_session("a", "agent:a:main", 1_500).await.unwrap(), [here, everywhere]);
        assert!(ids("agent:a:main", 2_000).await.is_empty(), "expired");
        // Another process sees the same grants.
        let again = Grants::new(database);
        assert!(again.revoke("2", 1_500).await.unwrap());
        assert!(!again.revoke("2", 1_500).await.unwrap() && !again.revoke("9", 1_500).await.unwrap());
        assert_eq!(ids("agent:a:other", 1_500).await, [""; 0]);
        let listed = grants.list(1_500).await.unwrap();
        assert_eq!(listed.iter().map(|grant| &*grant.id).collect::<Vec<_>>(), ["1", "3"]);
    }

    #[tokio::test]
    async fn one_agent_has_a_limited_number_of_grants() {
        let (_folder, database) = database().await;
        let grants = Grants::new(database);
        for number in 0..MAX_GRANTS {
            grants.add(&grant(&number.to_string(), "a", "s", GrantReach::Agent)).await.unwrap();
        }
        let refused = grants.add(&grant("more", "a", "s", GrantReach::Agent)).await;
        assert!(matches!(refused, Err(DatabaseError::Refused(_))));
        grants.add(&grant("other", "b", "s", GrantReach::Agent)).await.unwrap();
        let mut later = grant("later", "a", "s", GrantReach::Agent);
        later.info.created = 2_000 + KEPT_MS;
        grants.add(&later).await.unwrap();
    }
}
