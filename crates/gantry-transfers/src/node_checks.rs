//! Checks of the nodes of a transfer before it starts.

use std::time::Duration;

use gantry_tool::{Call, ToolError, ToolScope};
use gantry_toolsets::{Endpoint, LOCAL_NODE};

use crate::node_connections::NodeStatus;
use crate::transfers::{Transfers, now_ms};

/// How long after its start a gateway waits for nodes that were connected before, and how recently that was.
const RETURN_LIMIT: Duration = Duration::from_secs(20);
const SEEN_RECENTLY_MS: i64 = 60_000;
const RETURN_PAUSE: Duration = Duration::from_millis(50);

impl Transfers {
    /// Waits for a node that was connected just before the gateway restarted. Such nodes reconnect within seconds, but
    /// a caller that survived the restart repeats its call at once.
    pub(crate) async fn wait_for_returning(&self, call: &Call, endpoint: &Endpoint) {
        let Endpoint::Node { node, .. } = endpoint else { return };
        let is_returning = || match self.nodes.status(node) {
            Some(NodeStatus::Offline { last_seen, .. }) => {
                now_ms().saturating_sub(last_seen.unwrap_or(0)) < SEEN_RECENTLY_MS
            }
            _ => false,
        };
        while self.started.elapsed() < RETURN_LIMIT && !call.cancel.is_cancelled() && is_returning() {
            tokio::time::sleep(RETURN_PAUSE).await;
        }
    }

    /// Denies a transfer to callers who may not use the node's `Read` or `Write`.
    pub(crate) fn check_tool(&self, call: &Call, endpoint: &Endpoint, tool: &str) -> Result<(), ToolError> {
        let Endpoint::Node { node, .. } = endpoint else { return Ok(()) };
        let name = format!("{node}__{tool}");
        if self.gate.registry().view(&call.scope).registered(&name) {
            return Ok(());
        }
        if node != LOCAL_NODE && self.nodes.status(node).is_none() {
            return Err(unknown_node(node));
        }
        if self.gate.registry().view(&ToolScope::default()).find(&name).is_none() {
            self.check_connected(endpoint)?;
        }
        let text = format!("the transfer needs {tool} on the node \"{node}\", which is not available here");
        Err(ToolError::denied(text))
    }

    /// Rejects an endpoint on a node that is offline: a new transfer does not wait.
    pub(crate) fn check_connected(&self, endpoint: &Endpoint) -> Result<(), ToolError> {
        let Endpoint::Node { node, .. } = endpoint else { return Ok(()) };
        if node == LOCAL_NODE {
            return Ok(());
        }
        match self.nodes.status(node) {
            Some(NodeStatus::Connected) => Ok(()),
            Some(NodeStatus::Offline { error, .. }) => Err(error),
            None => Err(unknown_node(node)),
        }
    }
}

fn unknown_node(node: &str) -> ToolError {
    ToolError::failed(format!("unknown node \"{node}\"")).with_hint("`gantry nodes` lists the nodes")
}
