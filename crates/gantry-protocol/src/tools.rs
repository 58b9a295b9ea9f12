//! Listings of tools, and kept results: `tools.list`, `tools.get`, `results.read`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `params` of `tools.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ToolsListParams {
    /// Lists the tools of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toolset: Option<String>,
    /// For the MCP client of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<String>,
    /// From now on, the gateway sends `tools.changed`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
}

/// `result` of `tools.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolList {
    pub tools: Vec<ToolInfo>,
    /// With `mcp`: whether the token or the agent names its tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<bool>,
}

/// `params` of `tools.get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolsGetParams {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<String>,
}

/// A tool in the lists of all surfaces, and `result` of `tools.get`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolInfo {
    pub name: String,
    pub toolset: String,
    pub description: String,
    #[serde(default)]
    pub notes: String,
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The effects of the tool, such as `writes_files`. Absent if they are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Vec<String>>,
    /// `clients` and `agents` see the tool by default if they are listed. Absent from gateways that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_to: Option<Vec<String>>,
    pub input_schema: Value,
    /// Null for tools that answer in text.
    pub output_schema: Option<Value>,
    /// The nodes that have it, for a tool that is called with the argument `node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
    /// The connected ones of `nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<Vec<String>>,
}

/// `params` of `results.read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResultParams {
    pub handle: String,
    #[serde(default)]
    pub offset: usize,
    /// In characters.
    pub limit: usize,
    /// A regular expression; then `offset` counts matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grep: Option<String>,
}

/// `result` of `results.read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResultPage {
    pub text: String,
    pub total_characters: usize,
    pub next_offset: Option<usize>,
    pub matches: Option<usize>,
}
