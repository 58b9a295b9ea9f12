//! The status file of a node, which `gantry node status` reads. It is replaced with every change.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::home::NodeHome;
use crate::log::bounded;

const MAX_STATE_BYTES: u64 = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    pub pid: u32,
    pub version: String,
    pub gateway: String,
    pub workspace: String,
    pub phase: Phase,
    /// When the node entered this phase.
    pub since: jiff::Timestamp,
    #[serde(default)]
    pub last_error: Option<String>,
    #[serde(default)]
    pub last_error_at: Option<jiff::Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Connecting,
    Connected,
    /// Waiting to dial again.
    Waiting,
    Stopped,
}

impl NodeState {
    /// Returns the last written status, or `None` if the node never ran.
    pub fn read(home: &NodeHome) -> Option<NodeState> {
        let text = NodeHome::read(&home.state_file(), MAX_STATE_BYTES).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// Writes the status file whenever the node's state changes.
pub(crate) struct StateFile {
    home: NodeHome,
    state: Mutex<NodeState>,
}

impl StateFile {
    pub(crate) fn new(home: NodeHome, gateway: String, workspace: String) -> StateFile {
        let state = NodeState {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            gateway,
            workspace,
            phase: Phase::Connecting,
            since: jiff::Timestamp::now(),
            last_error: None,
            last_error_at: None,
        };
        StateFile { home, state: Mutex::new(state) }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.change(|state| state.phase = phase);
    }

    pub(crate) fn failed(&self, reason: &str) {
        self.change(|state| {
            state.phase = Phase::Waiting;
            state.last_error = Some(bounded(reason));
            state.last_error_at = Some(jiff::Timestamp::now());
        });
    }

    fn change(&self, change: impl FnOnce(&mut NodeState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.since = jiff::Timestamp::now();
        let text = serde_json::to_string(&*state).unwrap_or_default();
        if let Err(err) = self.home.replace(&self.home.state_file(), &text) {
            tracing::warn!(error = %err, "stateNotWritten");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_file_follows_the_node() {
        let folder = tempfile::tempdir().unwrap();
        let home = NodeHome::new(folder.path(), "n").unwrap();
        assert_eq!(NodeState::read(&home), None);
        let _lock = home.take().unwrap();
        let file = StateFile::new(home.clone(), "http://g".into(), "/w".into());
        file.failed("no route");
        file.enter(Phase::Connected);
        let state = NodeState::read(&home).unwrap();
        assert_eq!((state.phase, state.pid), (Phase::Connected, std::process::id()));
        assert_eq!(state.last_error.as_deref(), Some("no route"));
    }
}
