//! What tools that begin and message agents ask of a gateway that runs them.

use std::sync::Arc;

use gantry_tool::Call;

use super::HubFuture;
use crate::assistant::SpawnSpec;
use crate::guarded::AgentSpawned;

/// The agents of a gateway, as the tools see them. Who calls, how deep and how many there are is known to the runtime; what
/// a caller says of itself is compared with that.
pub trait AgentDesk: Send + Sync {
    /// Begins children side by side and waits for all of them; their ends in the same order.
    fn spawn(&self, call: Arc<Call>, specs: Vec<SpawnSpec>) -> HubFuture<'_, Vec<SpawnEnd>>;

    /// Begins a child that is made after a configured agent, and waits for its answer.
    fn spawn_template(
        &self,
        call: Arc<Call>,
        template: String,
        parent: Option<String>,
        message: String,
    ) -> HubFuture<'_, AgentSpawned>;

    /// Puts a message into another agent's inbox.
    fn send(&self, call: Arc<Call>, from: String, to: String, message: String) -> HubFuture<'_, ()>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnEnd {
    pub name: String,
    /// What it answered, or why it did not.
    pub outcome: Result<String, String>,
}
