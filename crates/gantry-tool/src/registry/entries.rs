//! `Entries` is the list behind the registry: tools, nodes and MCP servers, with the lookup by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::names::{canonical_name, node_and_name};
use crate::tool::{Tool, Toolset};

#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    pub(super) tools: BTreeMap<String, Arc<Tool>>,
    /// Known nodes. A node that is not listed is this machine, which is always online.
    pub(super) nodes: BTreeMap<String, NodeState>,
    /// MCP servers. They share one namespace with the nodes.
    pub(super) servers: BTreeSet<String>,
    /// This program's own definitions of the tools that nodes usually have, by bare name.
    pub(super) standard_node_tools: Arc<BTreeMap<String, Tool>>,
}

/// The state of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    pub online: bool,
    pub tags: Vec<String>,
}

/// The node of the gateway's own machine.
pub const LOCAL_NODE: &str = "local";

/// Picks the node for a bare tool name among the nodes that have the tool: the caller's default node, else `local`, else
/// the only node that is online.
pub(crate) fn default_among(nodes: &[OnNode], default_node: Option<&str>) -> Option<usize> {
    let named = |id: &str| nodes.iter().position(|found| found.node == id);
    if let Some(id) = default_node {
        return named(id);
    }
    named(LOCAL_NODE).or_else(|| {
        let mut online = (0..nodes.len()).filter(|index| nodes[*index].state.online);
        online.next().filter(|_| online.next().is_none())
    })
}

/// A tool on one node.
#[derive(Debug, Clone)]
pub(crate) struct OnNode {
    pub(crate) node: String,
    pub(crate) state: NodeState,
    pub(crate) tool: Arc<Tool>,
}

impl Entries {
    /// Gives a node tool the attributes of this program's own tool of that name.
    pub(super) fn recognised(&self, tool: Tool) -> Tool {
        let bare = node_and_name(&tool).map(|(_, bare)| bare);
        match bare.filter(|_| tool.is_remote()).and_then(|bare| self.standard_node_tools.get(bare)) {
            Some(own) => tool.recognised_as(own),
            None => tool,
        }
    }

    /// Nodes that never connected. A node that connected once has kept its tools.
    pub(super) fn never_here(&self) -> impl Iterator<Item = (&str, &NodeState)> {
        let has_tools = |node: &str| {
            let prefix = format!("{node}__");
            self.tools.range(prefix.clone()..).next().is_some_and(|(name, _)| name.starts_with(&prefix))
        };
        let never = self.nodes.iter().filter(move |(node, state)| !state.online && !has_tools(node));
        never.map(|(node, state)| (node.as_str(), state))
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(name).or_else(|| self.tools.get(&canonical_name(name)))
    }

    /// A bare name means the tool of one node, as [`default_among`] picks it.
    pub(super) fn lookup(
        &self,
        name: &str,
        default_node: Option<&str>,
        allows: impl Fn(&Tool) -> bool,
    ) -> Option<Arc<Tool>> {
        if let Some(tool) = self.by_name(name) {
            return allows(tool).then(|| tool.clone());
        }
        let mut nodes: Vec<OnNode> = self.on_nodes(name).filter(|found| allows(&found.tool)).collect();
        default_among(&nodes, default_node).map(|index| nodes.swap_remove(index).tool)
    }

    pub(super) fn on_nodes<'a>(&'a self, name: &'a str) -> impl Iterator<Item = OnNode> + 'a {
        self.tools.values().filter_map(move |tool| {
            let (node, bare) = node_and_name(tool)?;
            let state = self.state(node);
            (bare == name).then(|| OnNode { node: node.to_owned(), state, tool: tool.clone() })
        })
    }

    pub(super) fn state(&self, node: &str) -> NodeState {
        let here = || NodeState { online: true, tags: Vec::new() };
        self.nodes.get(node).cloned().unwrap_or_else(here)
    }

    pub(super) fn drop_server(&mut self, server: &str) {
        let of = |tool: &Tool| tool.name().split_once("__").map(|(of, _)| of == server);
        self.tools.retain(|_, tool| tool.toolset() != Toolset::Mcp || of(tool) != Some(true));
        self.servers.remove(server);
    }

    pub(super) fn drop_tools_of(&mut self, node: &str) {
        self.tools.retain(|_, tool| node_and_name(tool).is_none_or(|(of, _)| of != node));
    }
}
