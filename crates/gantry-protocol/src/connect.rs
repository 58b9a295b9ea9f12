//! `connect`, the first request of every connection, and `node.tools`, which a node sends next.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Client,
    Node,
    Channel,
}

/// `params` of `connect`.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectParams {
    pub protocol: ProtocolRange,
    pub role: Role,
    /// The id of a node, or any name for a client.
    pub id: String,
    pub version: String,
    /// `linux-x64` form.
    pub platform: String,
    /// Left out by the web page, which has a `pageKey`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// The key of a page session. It counts only with the cookie of the same session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_key: Option<String>,
    /// For role `node` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeHello>,
}

/// Tokens stay out of logs.
impl std::fmt::Debug for ConnectParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectParams")
            .field("role", &self.role)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtocolRange {
    pub min: u32,
    pub max: u32,
}

impl Default for ProtocolRange {
    fn default() -> Self {
        ProtocolRange { min: crate::OLDEST_PROTOCOL_VERSION, max: crate::PROTOCOL_VERSION }
    }
}

impl ProtocolRange {
    /// The newest version that both this range and this code have.
    pub fn common(self) -> Option<u32> {
        let own = ProtocolRange::default();
        let (oldest, newest) = (self.min.max(own.min), self.max.min(own.max));
        (oldest <= newest).then_some(newest)
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeHello {
    /// Changes with every start of the node's process. A new instance has forgotten all calls.
    pub instance: String,
    /// A second socket of a connected node, for streams only.
    #[serde(default)]
    pub bulk: bool,
    /// The capabilities of each tool. The schemas follow with `node.tools`.
    #[serde(default)]
    pub tools: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub host_capabilities: Vec<String>,
    /// Calls of this instance that are running, or whose result was not acknowledged.
    #[serde(default)]
    pub calls: Vec<String>,
}

/// `result` of `connect`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectResult {
    pub protocol: u32,
    pub server: ServerInfo,
    /// Those of the node's `calls` whose caller still waits. The node ends and forgets the others.
    #[serde(default)]
    pub wanted: Vec<String>,
    /// For clients: the directory where relative paths start on the gateway's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    pub version: String,
    /// Changes with every start of the gateway.
    pub instance: String,
    /// The gateway's clock, in milliseconds since 1970.
    pub now: i64,
}

/// `params` of `node.tools`. A node can be called once this has been answered.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeTools {
    pub tools: Vec<WireTool>,
}

/// A tool as it is described over the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WireTool {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    #[serde(default)]
    pub annotations: WireAnnotations,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WireAnnotations {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
    /// The node judges each connection of agents' commands, or they have no network. Commands of a labelled session then
    /// need no approval; their connections do.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub judges_connections: bool,
}

/// The annotations of a tool that declares none.
impl Default for WireAnnotations {
    fn default() -> Self {
        WireAnnotations {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: true,
            judges_connections: false,
        }
    }
}

const MAX_NAME_BYTES: usize = 64;

/// Whether `platform` in `connect` is valid: 1 to 64 of `[A-Za-z0-9._-]`. Agents' prompts and terminals show it.
pub fn is_valid_platform(platform: &str) -> bool {
    is_name(platform, b"._-")
}

/// Whether `version` in `connect` is valid: 1 to 64 of `[A-Za-z0-9._+-]`.
pub fn is_valid_version(version: &str) -> bool {
    is_name(version, b"._+-")
}

fn is_name(text: &str, signs: &[u8]) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || signs.contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(allowed)
}

/// This build's platform in the form of the handshake.
pub fn current_platform() -> String {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{os}-{architecture}")
}
