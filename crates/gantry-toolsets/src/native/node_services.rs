//! What native tools ask of a running gateway about its nodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gantry_store::Objects;
use gantry_tool::{Call, Tool, ToolError};

use super::{Endpoint, logs_get, transfer};
use crate::Listed;

/// The state of the tools that need nodes.
pub(super) struct GatewayTools {
    pub(super) objects: Objects,
    nodes: Option<Arc<dyn NodeServices>>,
}

impl GatewayTools {
    pub(super) fn nodes(&self) -> Result<&Arc<dyn NodeServices>, ToolError> {
        self.nodes.as_ref().ok_or_else(ToolError::needs_gateway)
    }
}

/// Tools that reach nodes through the gateway. Without one they copy inside the workspace, and say
/// that the rest needs a gateway.
pub fn gateway_tools(objects: &Objects, nodes: Option<Arc<dyn NodeServices>>) -> Vec<Tool> {
    let state = Arc::new(GatewayTools { objects: objects.clone(), nodes });
    TOOLS.iter().map(|(_, tool)| tool(&state)).collect()
}

const TOOLS: &[Listed<GatewayTools>] = &[(logs_get::NAME, logs_get::tool), (transfer::NAME, transfer::tool)];

pub(crate) fn gateway_tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _)| *name)
}

pub type ToolFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;

/// The nodes of a gateway, as the tools see them.
pub trait NodeServices: Send + Sync {
    /// The newest log lines of a node, oldest first; of the only one that is connected when none is named.
    /// What others said in calls is shown to the operator alone.
    fn logs(&self, call: Arc<Call>, node: Option<String>, lines: usize) -> ToolFuture<'_, NodeLogs>;

    /// Moves bytes between a node and a node or the workspace, until they have arrived whole. At least one end is a node.
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
    /// How many files, when a directory was sent.
    pub files: Option<u64>,
    /// What was left out and why, when a directory was sent.
    pub skipped: Vec<String>,
    /// All that were left out, also those without a line in `skipped`.
    pub skipped_count: u64,
}
