//! Tools and services from elsewhere, as the operator administers them: MCP servers and profiles of APIs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `result` of `mcp.servers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpServerList {
    pub servers: Vec<McpServer>,
    /// For people.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpServer {
    pub name: String,
    /// As the server offered them last.
    pub tools: Vec<McpTool>,
    /// How its program is confined, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpTool {
    pub name: String,
    /// `ready`, `new`, `changed`, `unusable`, `gone` or `notChosen`. Agents and clients are offered ready ones only.
    pub state: String,
    /// Why it is unusable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What would be accepted, as a difference for people. Only `mcp.review` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}

/// `params` of `mcp.review`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpReview {
    pub name: String,
}

/// `result` of `mcp.review`: the tools that the server offers now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpReviewed {
    pub name: String,
    pub tools: Vec<McpTool>,
    /// Identifies what is shown. `mcp.accept` takes it.
    pub seen: String,
}

/// `params` of `mcp.accept`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpAccept {
    pub name: String,
    /// All new and changed tools when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// From `mcp.review`. If the tools have changed since, nothing is accepted.
    pub seen: String,
}

/// `result` of `mcp.accept`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct McpAccepted {
    pub name: String,
    /// The accepted tools.
    pub accepted: Vec<String>,
}

/// `result` of `apis.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiList {
    pub apis: Vec<ApiInfo>,
}

/// A profile of an API; one with problems has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiInfo {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The agent that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ApiProblem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiProblem {
    pub path: String,
    pub message: String,
}

/// `params` of `apis.get` and `apis.remove`; `result` of `apis.save` and `apis.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiId {
    pub id: String,
}

/// `result` of `apis.get`. `docs/apis.md` describes the fields of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiProfile {
    pub id: String,
    pub profile: Value,
}

/// `params` of `apis.save`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiSave {
    pub profile: Value,
    /// A profile with the same id is replaced.
    #[serde(default)]
    pub replace: bool,
}
