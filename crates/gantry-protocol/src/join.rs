//! How a machine joins: the operator gets a code, and the machine exchanges it for its token. Also how a gateway
//! announces its next TLS key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `params` of `join.invite`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinInvite {
    pub id: String,
    #[serde(default)]
    pub tags: Vec<String>,
    /// Lets a node that has connected before join again. Its token is invalid from then on.
    #[serde(default)]
    pub renew: bool,
    /// The addresses for the code, such as the local end of a tunnel, in place of those that the gateway knows.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// `result` of `join.invite`. The code is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinOffer {
    pub id: String,
    pub code: String,
    /// Milliseconds since 1970.
    pub expires: i64,
    /// Where the machine looks for the gateway, in this order.
    pub addresses: Vec<String>,
    /// The gateway's key, as `sha256//BASE64`, unless a trusted authority proves who the gateway is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where a machine of the platform `platform` can download this program, with the code in the header
    /// `gantry-join`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Whether `program` is recognised by `key` and not by an authority.
    #[serde(default)]
    pub pinned: bool,
    pub platform: String,
}

/// Codes stay out of logs.
impl std::fmt::Debug for JoinOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinOffer").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The body of `POST /join`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinRequest {
    pub id: String,
    /// The token of the join code, in base64url.
    pub code: String,
    /// The token that the node will use. The machine makes it, so that a repeated request is harmless.
    pub node_token: String,
}

/// Tokens stay out of logs.
impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinRequest").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The answer of `POST /join`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Joined {
    pub id: String,
    /// The version of the gateway.
    pub version: String,
}

/// `params` of `join.rotateKey`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRotate {
    /// Uses the next key at once. Nodes that do not know it yet have to join again.
    #[serde(default)]
    pub now: bool,
}

/// `result` of `join.rotateKey`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyRotation {
    /// The new key, as `sha256//BASE64`.
    pub key: String,
    /// Whether the gateway uses the new key now.
    pub in_use: bool,
    /// Nodes that accepted the new key.
    pub adopted: Vec<String>,
    /// Nodes that do not know the new key yet.
    pub waiting: Vec<String>,
}

/// `params` of `gateway.key`, by which a gateway announces its next key to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayKey {
    /// The public key in use, as DER in base64.
    pub current: String,
    /// The next key, as `sha256//BASE64`.
    pub next: String,
    /// The signature of the key in use, in base64.
    pub signature: String,
}
