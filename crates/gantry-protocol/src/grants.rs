//! Grants: approvals that also cover later calls. Parameters and results of `grants.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The calls that a grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantScope {
    /// The same tool with the same input.
    Call,
    /// The same tool with any input, if the same rule asks.
    Tool,
    /// Command lines in which every command starts with these words. Only in the sandbox.
    Prefix(Vec<String>),
    /// Requests and connections to this host.
    Host(String),
    /// Changes to this file, or to files below this directory, on the gateway's machine.
    Path(String),
    /// Messages to this recipient.
    Recipient(String),
}

/// The sessions in which a grant counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantReach {
    /// The session in which it was given.
    #[default]
    Session,
    /// All sessions of the agent, also later ones.
    Agent,
}

impl GrantReach {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_session(&self) -> bool {
        *self == GrantReach::Session
    }
}

/// A grant that a question suggests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantOffer {
    /// Names the offer in an answer.
    pub key: String,
    /// What it allows, for people.
    pub label: String,
    pub scope: GrantScope,
    #[serde(default)]
    pub reach: GrantReach,
    /// How long it counts.
    pub hours: u32,
}

/// `params` of `grants.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GrantsListParams {
    /// Only the grants of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// `result` of `grants.list`: the grants that count now. The newest comes first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantList {
    pub grants: Vec<GrantInfo>,
}

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantInfo {
    pub id: String,
    pub agent: String,
    /// The session in which it was given.
    pub session_key: String,
    pub reach: GrantReach,
    pub scope: GrantScope,
    /// What it allows, for people.
    pub label: String,
    pub tool: String,
    /// The rule that asked.
    pub rule: String,
    /// The call that was asked about, for people.
    pub asked: String,
    /// Who gave it.
    pub by: String,
    pub created: i64,
    pub expires: i64,
}

/// `params` of `grants.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantParams {
    pub id: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scopes_of_earlier_versions_are_still_words() {
        for (scope, text) in [
            (GrantScope::Call, json!("call")),
            (GrantScope::Tool, json!("tool")),
            (GrantScope::Prefix(vec!["cargo".into(), "test".into()]), json!({"prefix": ["cargo", "test"]})),
            (GrantScope::Host("example.com".into()), json!({"host": "example.com"})),
        ] {
            assert_eq!(serde_json::to_value(&scope).unwrap(), text);
            assert_eq!(serde_json::from_value::<GrantScope>(text).unwrap(), scope);
        }
    }
}
