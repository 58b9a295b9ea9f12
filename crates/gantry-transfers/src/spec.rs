//! [`TransferSpec`] says what is transferred, from where to where, and for whom.

use std::sync::Arc;

use gantry_protocol::Caller;
use gantry_tool::Call;
use gantry_toolsets::{Endpoint, Ends, LOCAL_NODE};

#[derive(Clone)]
pub(crate) struct TransferSpec {
    pub(crate) id: String,
    pub(crate) caller: Caller,
    /// The caller, as policy sees it.
    pub(crate) policy_call: Arc<Call>,
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
}

impl TransferSpec {
    pub(crate) fn ends(&self) -> Ends<'_> {
        Ends { source: &self.source, destination: &self.destination }
    }

    /// Returns the approved rules for an endpoint on the gateway's own machine, which has the gateway's policy. Nodes
    /// have policies of their own, and the approvals of the gateway do not count there.
    pub(crate) fn approved(&self, endpoint: &Endpoint, tool: &str) -> Vec<String> {
        let Endpoint::Node { node, .. } = endpoint else { return Vec::new() };
        if node != LOCAL_NODE {
            return Vec::new();
        }
        let name = format!("{node}__{tool}");
        let approved = self.policy_call.approved.iter().filter(|approved| approved.tool == name);
        approved.map(|approved| approved.rule.clone()).collect()
    }

    pub(crate) fn to_workspace(&self) -> bool {
        matches!(self.destination, Endpoint::Workspace { .. })
    }

    pub(crate) fn is_on_one_machine(&self) -> bool {
        match (&self.source, &self.destination) {
            (Endpoint::Node { node, .. }, Endpoint::Node { node: other, .. }) => node == other,
            _ => false,
        }
    }

    /// Returns the same transfer after a node was renamed, or `None` if the node is at neither end.
    pub(crate) fn renamed(&self, old: &str, new: &str) -> Option<TransferSpec> {
        let renamed = |endpoint: &Endpoint| match endpoint {
            Endpoint::Node { node, path } if node == old => {
                Endpoint::Node { node: new.to_owned(), path: path.clone() }
            }
            other => other.clone(),
        };
        let (source, destination) = (renamed(&self.source), renamed(&self.destination));
        let is_changed = source != self.source || destination != self.destination;
        is_changed.then(|| TransferSpec { source, destination, ..self.clone() })
    }
}
