//! Implements [`NodeConnections`] for [`Nodes`]: transfers ask for the state and the links of a node.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use gantry_link::{Link, LinkError};
use gantry_protocol::{ErrorCode, WireError, method, raw};
use gantry_tool::Call;
use gantry_toolsets::{NodeLogs, ToolFuture};
use gantry_transfers::{NodeConnections, NodeLinks, NodeStatus, Transfers};

use super::{Node, Nodes};
use crate::node_logs::shown_to;

/// How long a node may take to open its bulk connection, and after which time it is asked again.
const BULK_LIMIT: Duration = Duration::from_secs(20);
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl NodeConnections for Nodes {
    fn status(&self, node: &str) -> Option<NodeStatus> {
        let node = self.find(node)?;
        if node.live().is_some() {
            return Some(NodeStatus::Connected);
        }
        // `absent` locks the facts again, so the guard must not live on.
        let last_seen = node.facts().last_seen;
        Some(NodeStatus::Offline { last_seen, error: node.absent() })
    }

    fn links<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<NodeLinks, WireError>> {
        Box::pin(async move {
            let node = self.find(node).ok_or_else(|| failed(format!("unknown node \"{node}\"")))?;
            // A revoked node does not return, so nothing waits for it.
            if node.is_revoked() {
                return Err(failed(format!("the token of the node \"{}\" is revoked", node.id)));
            }
            let mut lives = node.watch();
            let live = tokio::select! {
                live = lives.wait_for(Option::is_some) => live.ok().and_then(|live| live.clone()),
                // The node may be revoked, renamed or forgotten during the wait.
                reason = node.dismissed() => {
                    return Err(failed(format!("the node \"{}\" does not return: {reason}", node.id)));
                }
            };
            let main = live.ok_or_else(|| lost(&node, &"it was removed"))?.link;
            let bulk = tokio::select! {
                bulk = tokio::time::timeout(BULK_LIMIT, open_bulk(&node, &main)) => bulk,
                reason = main.closed() => return Err(lost(&node, &reason)),
            };
            let bulk = bulk.unwrap_or_else(|_| Err(lost(&node, &"it did not open its bulk connection")))?;
            Ok(NodeLinks { main, bulk })
        })
    }

    fn connected(&self) -> Vec<(String, Link)> {
        self.known().values().filter_map(|node| Some((node.id.clone(), node.live()?.link))).collect()
    }

    fn logs(&self, call: Arc<Call>, node: Option<String>, lines: usize) -> ToolFuture<'_, NodeLogs> {
        Box::pin(async move {
            let (node_id, logs) = self.logs(node.as_deref(), lines).await?;
            let lines = shown_to(&call.principal, logs.lines);
            Ok(NodeLogs { node_id, lines, truncated: logs.truncated })
        })
    }
}

/// Returns the bulk connection, or requests it. The request is repeated, because the new connection may be lost before it
/// is attached.
async fn open_bulk(node: &Node, main: &Link) -> Result<Link, WireError> {
    let is_open = |bulk: &Link| !bulk.is_closed();
    let mut bulks = node.bulk.subscribe();
    loop {
        if let Some(bulk) = bulks.borrow_and_update().clone().filter(is_open) {
            return Ok(bulk);
        }
        let answer = main.request(method::BULK_OPEN, raw(&serde_json::Map::new()), None).await;
        answer.map_err(|err| match err {
            LinkError::Remote(error) => error,
            LinkError::Closed(reason) => lost(node, &reason),
        })?;
        let opened = bulks.wait_for(|bulk| bulk.as_ref().is_some_and(is_open));
        let _ = tokio::time::timeout(ASK_AGAIN, opened).await;
    }
}

fn lost(node: &Node, reason: &dyn std::fmt::Display) -> WireError {
    WireError::new(ErrorCode::Unavailable, format!("the node \"{}\": {reason}", node.id))
}

fn failed(message: String) -> WireError {
    WireError::new(ErrorCode::Failed, message)
}

impl Nodes {
    /// Connects the transfers domain. It gets stream frames, connections and renames from then on.
    pub fn set_transfers(&self, transfers: &Arc<Transfers>) {
        // A gateway has one transfers domain.
        let _ = self.transfers.set(Arc::downgrade(transfers));
    }

    pub(crate) fn transfers(&self) -> Option<Arc<Transfers>> {
        self.transfers.get().and_then(Weak::upgrade)
    }
}
