//! Nodes, as the operator sees and administers them: `nodes.*`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::methods::ProcessEnd;

/// A node as `nodes.list` and `GET /v1/nodes` show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    pub id: String,
    pub online: bool,
    #[serde(default)]
    pub revoked: bool,
    #[serde(default)]
    pub tags: Vec<String>,
    pub client_platform: Option<String>,
    pub client_version: Option<String>,
    pub first_seen: Option<i64>,
    pub last_seen: Option<i64>,
    #[serde(default)]
    pub host_capabilities: Vec<String>,
    /// By tool.
    #[serde(default)]
    pub tool_capabilities: BTreeMap<String, Vec<String>>,
    /// The number of running calls.
    #[serde(default)]
    pub in_flight: usize,
    /// The time of the last ping and its answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
}

/// `result` of `nodes.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeList {
    pub nodes: Vec<NodeInfo>,
}

/// `params` of `nodes.add` and `nodes.tag`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeTags {
    pub id: String,
    /// The tags of the node. They replace the previous ones.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// `params` of `nodes.renew`, `nodes.revoke` and `nodes.forget`; `result` of the last two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeId {
    pub id: String,
}

/// `result` of `nodes.add` and `nodes.renew`. The token is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invitation {
    pub id: String,
    pub token: String,
    /// The public URL of the gateway, if it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
}

/// Tokens stay out of logs.
impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invitation").field("id", &self.id).finish_non_exhaustive()
    }
}

/// `params` of `nodes.rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRename {
    pub id: String,
    pub new_id: String,
}

/// `result` of `nodes.rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRenamed {
    pub id: String,
    /// Names of policy rules that name the old id, and do not apply to the new one.
    #[serde(default)]
    pub rules: Vec<String>,
}

/// `params` of `nodes.processes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeProcesses {
    pub id: String,
    /// 50 when left out, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `result` of `nodes.processes`, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessList {
    pub processes: Vec<ProcessRecord>,
}

/// The end of a background process, as the gateway keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessRecord {
    pub node: String,
    pub event_id: String,
    pub recorded: i64,
    pub event: ProcessEnd,
}

/// `result` of `process.ended`: whether this is the first report of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessEndTaken {
    pub new: bool,
}
