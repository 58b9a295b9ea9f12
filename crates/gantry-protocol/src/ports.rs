//! Ports that commands of agent sessions listen on, and forwards to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `result` of `ports.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortList {
    pub ports: Vec<SessionPort>,
}

/// A TCP port that a command listens on in the network of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionPort {
    /// The session's key, or the agent for commands outside a session.
    pub session: String,
    pub port: u16,
    /// The listening process, if it is visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// `params` of `ports.forward`. The forward ends with the client's connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortForward {
    pub port: u16,
    /// May be left out if one session listens on the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// An address of the gateway's loopback. Port 0 picks a free one. The default is the same port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
}

/// `result` of `ports.forward`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortForwarded {
    pub session: String,
    pub port: u16,
    pub listen: String,
}
