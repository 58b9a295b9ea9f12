//! Client tokens: `tokens.*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `params` of `tokens.add`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenAdd {
    pub name: String,
    /// Names, globs and toolsets; left out means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Agents it may act as.
    #[serde(default)]
    pub agents: Vec<String>,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
}

/// `result` of `tokens.add`. The token is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenAdded {
    pub name: String,
    pub token: String,
    /// Names of the token's scope that match no tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Tokens stay out of logs.
impl std::fmt::Debug for TokenAdded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenAdded").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `params` and `result` of `tokens.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenName {
    pub name: String,
}

/// `result` of `tokens.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenList {
    pub tokens: Vec<TokenInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenInfo {
    pub name: String,
    /// Names, globs and toolsets; null means all.
    pub tools: Option<Vec<String>>,
    pub agents: Vec<String>,
    pub read_only: bool,
    pub created: i64,
    pub expires: Option<i64>,
    pub last_used: Option<i64>,
    pub revoked: Option<i64>,
}
