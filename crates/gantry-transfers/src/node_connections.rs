//! [`NodeConnections`] is what transfers need of the gateway's nodes.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use gantry_link::Link;
use gantry_protocol::WireError;
use gantry_tool::{Call, ToolError};
use gantry_toolsets::{NodeLogs, ToolFuture};

/// The nodes of the gateway. The gateway's own machine is not one of them.
pub trait NodeConnections: Send + Sync + 'static {
    /// Returns `None` for an id that the gateway does not know.
    fn status(&self, node: &str) -> Option<NodeStatus>;

    /// Waits until the node is connected and has opened its bulk connection. The code of an error decides whether
    /// the transfer tries again: `unavailable` for a lost connection, `failed` for a node that will not return.
    fn links<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<NodeLinks, WireError>>;

    /// Returns the main connections of all connected nodes, with their ids.
    fn connected(&self) -> Vec<(String, Link)>;

    /// Returns the newest log lines of a node, without what the caller may not see.
    fn logs(&self, call: Arc<Call>, node: Option<String>, lines: usize) -> ToolFuture<'_, NodeLogs>;
}

pub enum NodeStatus {
    Connected,
    Offline {
        /// In milliseconds since 1970.
        last_seen: Option<i64>,
        /// Reports to a caller that the node is offline, and how to fix it.
        error: ToolError,
    },
}

/// The two connections of a node.
pub struct NodeLinks {
    /// For requests.
    pub main: Link,
    /// For stream frames.
    pub bulk: Link,
}
