//! `Registry` is the list of tools. It finds tools by name and makes scoped views. Only the gate can run a tool.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use tokio::sync::watch;

use crate::call::Call;
use crate::tool::Tool;

mod entries;
mod listing;
pub(crate) mod model_name;
pub(crate) mod multi_node;
mod names;
mod scope;
#[cfg(test)]
mod tests;
mod view;

use entries::Entries;
pub use entries::{LOCAL_NODE, NodeState};
pub(crate) use entries::{OnNode, default_among};
use model_name::{folded, published_name};
pub use names::canonical_name;
pub(crate) use names::node_and_name;
pub use scope::ToolScope;
pub use view::View;
pub(crate) use view::never_connected;

/// Every registered tool, by name. Cheap to clone; clones share the list.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: RwLock<Entries>,
    /// Counts the changes of the list.
    changes: watch::Sender<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("a tool named {0} is already registered")]
    Duplicate(String),
    #[error("{name} looks the same to clients as {other}, which is already registered")]
    Shadows { name: String, other: String },
    #[error("{0} has :: in its name, which is reserved for Gantry's own tools")]
    Colons(String),
    #[error("\"{0}\" is already the name of a node; nodes and MCP servers share one namespace")]
    IsNode(String),
    #[error("{pattern:?} is not a valid tool selector: {reason}")]
    Selector { pattern: String, reason: String },
}

impl Registry {
    pub fn register(&self, tool: Tool) -> Result<(), RegistryError> {
        self.change(|entries| {
            if entries.tools.contains_key(tool.name()) {
                return Err(RegistryError::Duplicate(tool.name().to_owned()));
            }
            entries.tools.insert(tool.name().to_owned(), Arc::new(tool));
            Ok(())
        })
    }

    /// Registers the tool and returns the tool of the same name that it replaces.
    pub fn replace(&self, tool: Tool) -> Option<Arc<Tool>> {
        self.change(|entries| entries.tools.insert(tool.name().to_owned(), Arc::new(tool)))
    }

    /// Removes the tools of these names. Unknown names are ignored.
    pub fn remove(&self, names: &[&str]) {
        self.change(|entries| {
            for name in names {
                entries.tools.remove(*name);
            }
        });
    }

    /// Sets the state of a node and replaces all of its tools.
    pub fn set_node(&self, node: &str, state: NodeState, tools: Vec<Tool>) {
        self.change(|entries| {
            entries.drop_tools_of(node);
            entries.nodes.insert(node.to_owned(), state);
            let tools = tools.into_iter().map(|tool| entries.recognised(tool));
            let tools: Vec<_> = tools.map(|tool| (tool.name().to_owned(), Arc::new(tool))).collect();
            entries.tools.extend(tools);
        });
    }

    /// Sets this program's own definitions of node tools, under their bare names. A node tool with one of these names gets
    /// its attributes. All others count as having every effect.
    pub fn set_standard_node_tools(&self, tools: Vec<Tool>) {
        let by_name = tools.into_iter().map(|tool| (tool.name().to_owned(), tool)).collect();
        self.change(|entries| entries.standard_node_tools = Arc::new(by_name));
    }

    /// Sets the state of a node and keeps its tools, also while it is offline.
    pub fn set_node_state(&self, node: &str, state: NodeState) {
        self.change(|entries| entries.nodes.insert(node.to_owned(), state));
    }

    pub fn remove_node(&self, node: &str) {
        self.change(|entries| {
            entries.drop_tools_of(node);
            entries.nodes.remove(node);
        });
    }

    /// Replaces all tools of an MCP server. A tool that looks like another one is left out, and the reason is returned.
    pub fn set_server(&self, server: &str, tools: Vec<Tool>) -> Vec<RegistryError> {
        self.change(|entries| {
            entries.drop_server(server);
            if entries.nodes.contains_key(server) {
                return vec![RegistryError::IsNode(server.to_owned())];
            }
            entries.servers.insert(server.to_owned());
            let spellings = |name: &str| [folded(name), published_name(name)];
            let mut taken: BTreeMap<String, String> = BTreeMap::new();
            for name in entries.tools.keys() {
                taken.extend(spellings(name).map(|spelling| (spelling, name.clone())));
            }
            let mut refused = Vec::new();
            for tool in tools {
                let name = tool.name().to_owned();
                let spellings = spellings(&name);
                match spellings.iter().find_map(|spelling| taken.get(spelling)) {
                    _ if name.contains("::") => refused.push(RegistryError::Colons(name)),
                    Some(other) => refused.push(RegistryError::Shadows { name, other: other.clone() }),
                    None => {
                        taken.extend(spellings.map(|spelling| (spelling, name.clone())));
                        entries.tools.insert(name, Arc::new(tool));
                    }
                }
            }
            refused
        })
    }

    pub fn remove_server(&self, server: &str) {
        self.change(|entries| entries.drop_server(server));
    }

    /// Whether an MCP server has that name.
    pub fn has_server(&self, name: &str) -> bool {
        self.read().servers.contains(name)
    }

    /// Signals every change of tools and nodes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    pub fn find(&self, name: &str) -> Option<Arc<Tool>> {
        self.view(&ToolScope::default()).find(name)
    }

    pub fn registered(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// All tools, sorted by toolset, then name.
    pub fn entries(&self) -> Vec<Arc<Tool>> {
        self.view(&ToolScope::default()).entries()
    }

    /// The tools that a scope allows.
    pub fn view(&self, scope: &ToolScope) -> View {
        let entries = self.read();
        let tools = entries.tools.iter().filter(|(_, tool)| scope.allows(tool));
        let tools = tools.map(|(name, tool)| (name.clone(), tool.clone())).collect();
        let never_here = entries.never_here().map(|(node, _)| node.to_owned()).collect();
        View { entries: Entries { tools, nodes: entries.nodes.clone(), ..Entries::default() }, never_here }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Entries> {
        self.inner.entries.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) -> T {
        let result =
            change(&mut self.inner.entries.write().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.inner.changes.send_modify(|changes| *changes += 1);
        result
    }

    /// The tool of that name, if the scope allows it. The gate uses this, because it copies no list.
    pub(crate) fn resolve(&self, scope: &ToolScope, name: &str) -> Option<Arc<Tool>> {
        self.read().lookup(name, None, |tool| scope.allows(tool))
    }

    /// As [`Registry::resolve`]. A bare name means the call's default node.
    pub(crate) fn resolve_for(&self, call: &Call, name: &str) -> Option<Arc<Tool>> {
        self.read().lookup(name, call.default_node.as_deref(), |tool| call.scope.allows(tool))
    }

    /// The nodes that have a tool of this bare name in the scope. `None` when it is not the bare name of a node tool.
    pub(crate) fn nodes_with(&self, scope: &ToolScope, name: &str) -> Option<Vec<OnNode>> {
        let entries = self.read();
        if entries.by_name(name).is_some() {
            return None;
        }
        let found: Vec<OnNode> = entries.on_nodes(name).filter(|found| scope.allows(&found.tool)).collect();
        (!found.is_empty()).then_some(found)
    }

    /// Nodes that never connected, so that their tools are unknown. Nodes that the scope excludes are left out.
    pub(crate) fn never_here(&self, scope: &ToolScope, bare: &str) -> Vec<(String, NodeState)> {
        let entries = self.read();
        let standard = entries.standard_node_tools.get(bare);
        let open = entries.never_here().filter(|(node, _)| scope.may_allow(node, bare, standard));
        open.map(|(node, state)| (node.to_owned(), state.clone())).collect()
    }

    pub(crate) fn tagged(&self, tag: &str) -> Vec<String> {
        let entries = self.read();
        let tagged = entries.nodes.iter().filter(|(_, state)| state.tags.iter().any(|own| own == tag));
        tagged.map(|(node, _)| node.clone()).collect()
    }

    pub(crate) fn node_names(&self) -> Vec<String> {
        self.read().nodes.keys().cloned().collect()
    }
}
