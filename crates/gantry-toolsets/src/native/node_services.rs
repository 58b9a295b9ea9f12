//! The gateway functions that native tools use to reach nodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gantry_store::Objects;
use gantry_tool::{Call, Tool, ToolError};

use super::{Endpoint, logs_get, transfer};
use crate::ToolEntry;

/// The state of the tools that use nodes.
pub(super) struct GatewayTools {
    pub(super) objects: Objects,
    nodes: Option<Arc<dyn NodeServices>>,
}

impl GatewayTools {
    pub(super) fn nodes(&self) -> Result<&Arc<dyn NodeServices>, ToolError> {
        self.nodes.as_ref().ok_or_else(ToolError::needs_gateway)
    }
}

/// Returns the tools that reach nodes through the gateway. Without a gateway they copy inside the
/// workspace only, and report that everything else needs a gateway.
pub fn gateway_tools(objects: &Objects, nodes: Option<Arc<dyn NodeServices>>) -> Vec<Tool> {
    let state = Arc::new(GatewayTools { objects: objects.clone(), nodes });
    TOOLS.iter().map(|(_, tool)| tool(&state)).collect()
}

const TOOLS: &[ToolEntry<GatewayTools>] =
    &[(logs_get::NAME, logs_get::tool), (transfer::NAME, transfer::tool)];

pub(crate) fn gateway_tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _)| *name)
}

pub type ToolFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;

/// The nodes of a gateway, as the tools use them.
pub trait NodeServices: Send + Sync {
    /// Returns the newest log lines of a node, oldest first; without a name, of the only connected
    /// node. Only the operator sees the inputs and errors of others' calls.
    fn logs(&self, call: Arc<Call>, node: Option<String>, lines: usize) -> ToolFuture<'_, NodeLogs>;

    /// Copies between two nodes, or between a node and the workspace, until everything is verified.
    /// At least one endpoint is a node.
    fn transfer(
        &self,
        call: Arc<Call>,
        source: Endpoint,
        destination: Endpoint,
    ) -> ToolFuture<'_, Transferred>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLogs {
    pub node_id: String,
    pub lines: Vec<String>,
    /// The log has older lines.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transferred {
    pub bytes_transferred: u64,
    pub mime: Option<String>,
    /// The number of files, for a directory.
    pub files: Option<u64>,
    /// The skipped entries with reasons, for a directory.
    pub skipped: Vec<String>,
    /// The number of skipped entries, including those that `skipped` does not list.
    pub skipped_count: u64,
}
