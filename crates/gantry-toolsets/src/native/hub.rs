//! What native tools ask of a running gateway, which knows the nodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gantry_tool::{Call, ToolError};

use super::Endpoint;

pub type HubFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;

/// A gateway, as the tools see it.
pub trait Hub: Send + Sync {
    /// The newest log lines of a node, oldest first; of the only one that is connected when none is named.
    /// What others said in calls is shown to the operator alone.
    fn logs(&self, call: Arc<Call>, node: Option<String>, lines: usize) -> HubFuture<'_, NodeLogs>;

    /// Moves bytes between a node and a node or the workspace, until they have arrived whole. At least one end is a node.
    fn transfer(
        &self,
        call: Arc<Call>,
        source: Endpoint,
        destination: Endpoint,
    ) -> HubFuture<'_, Transferred>;
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
