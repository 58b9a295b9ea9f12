//! The list of tools, and scoped views of it. A registry can name and find tools; running one is the gate's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use tokio::sync::watch;

use crate::call::Call;
use crate::error::{Refusal, RefusalCode};
use crate::model_name::{folded, may_be_hashed, published_name};
use crate::multi_node::{SharedTool, told_for_all};
use crate::nearest::nearest;
use crate::tool::{Tool, Toolset};

mod scope;

pub use scope::ToolScope;

/// Every registered tool, by name. Cheap to clone; clones share the list.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: RwLock<Entries>,
    /// How often the list was changed.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Clone, Default)]
struct Entries {
    tools: BTreeMap<String, Arc<Tool>>,
    /// Machines that come and go. One that is not listed is this very machine, which is always there.
    nodes: BTreeMap<String, NodeState>,
    /// MCP servers, which share one namespace with the machines.
    servers: BTreeSet<String>,
    /// This program's own definitions of the tools that nodes usually have, by bare name.
    standard_node_tools: Arc<BTreeMap<String, Tool>>,
}

/// What is known of a node beside its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    pub online: bool,
    pub tags: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("a tool named {0} is already registered")]
    Duplicate(String),
    #[error("{name} cannot be told from {other}, which is there already")]
    Shadows { name: String, other: String },
    #[error("{0} has :: in its name, which is how Gantry's own tools are spelled")]
    Colons(String),
    #[error("\"{0}\" is the name of a node already; nodes and MCP servers share their names")]
    IsNode(String),
    #[error("{pattern:?} is neither a name, a glob nor a toolset: {reason}")]
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

    /// Registers the tool, in place of one with the same name if there is one, which is returned.
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

    /// Registers all tools of a node in place of those it had, and says how it is.
    pub fn set_node(&self, node: &str, state: NodeState, tools: Vec<Tool>) {
        self.change(|entries| {
            entries.drop_tools_of(node);
            entries.nodes.insert(node.to_owned(), state);
            let tools = tools.into_iter().map(|tool| entries.recognised(tool));
            let tools: Vec<_> = tools.map(|tool| (tool.name().to_owned(), Arc::new(tool))).collect();
            entries.tools.extend(tools);
        });
    }

    /// Sets this program's own definitions of node tools, under their bare names. Tools of nodes that come later and have
    /// one of these names get its attributes. All others count as having every effect.
    pub fn set_standard_node_tools(&self, tools: Vec<Tool>) {
        let by_name = tools.into_iter().map(|tool| (tool.name().to_owned(), tool)).collect();
        self.change(|entries| entries.standard_node_tools = Arc::new(by_name));
    }

    /// Its tools stay: a machine that is away is still known.
    pub fn set_node_state(&self, node: &str, state: NodeState) {
        self.change(|entries| entries.nodes.insert(node.to_owned(), state));
    }

    pub fn remove_node(&self, node: &str) {
        self.change(|entries| {
            entries.drop_tools_of(node);
            entries.nodes.remove(node);
        });
    }

    /// Registers all tools of an MCP server in place of those it had. One that could be taken for another tool is left
    /// out, and why is returned.
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

    /// Told whenever tools or nodes come, go or change.
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

    /// The tools a scope lets through.
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

    fn change<T>(&self, make: impl FnOnce(&mut Entries) -> T) -> T {
        let made = make(&mut self.inner.entries.write().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.inner.changes.send_modify(|changes| *changes += 1);
        made
    }

    /// The tool of that name if the scope lets it through. The gate's way: it copies nothing.
    pub(crate) fn resolve(&self, scope: &ToolScope, name: &str) -> Option<Arc<Tool>> {
        self.read().lookup(name, None, |tool| scope.allows(tool))
    }

    /// As [`Registry::resolve`], on the call's default node where the name is a bare one.
    pub(crate) fn resolve_for(&self, call: &Call, name: &str) -> Option<Arc<Tool>> {
        self.read().lookup(name, call.default_node.as_deref(), |tool| call.scope.allows(tool))
    }

    /// The machines that have a tool of this bare name, for a scope. `None` when the name is no such name.
    pub(crate) fn nodes_with(&self, scope: &ToolScope, name: &str) -> Option<Vec<OnNode>> {
        let entries = self.read();
        if entries.by_name(name).is_some() {
            return None;
        }
        let found: Vec<OnNode> = entries.on_nodes(name).filter(|found| scope.allows(&found.tool)).collect();
        (!found.is_empty()).then_some(found)
    }

    /// Machines that were let in and have never come, whose tools nobody knows. Those that a scope closes in any case are
    /// left out.
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

/// The node of the gateway's own machine.
pub const LOCAL_NODE: &str = "local";

/// Picks the node that a bare tool name means, among those that have the tool: the caller's default node, else `local`,
/// else the only node that is online. `None` when there is no such node.
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

/// A tool on one machine.
#[derive(Debug, Clone)]
pub(crate) struct OnNode {
    pub(crate) node: String,
    pub(crate) state: NodeState,
    pub(crate) tool: Arc<Tool>,
}

/// What one principal sees of the registry.
#[derive(Debug, Clone)]
pub struct View {
    entries: Entries,
    /// Nodes that have never connected.
    never_here: BTreeSet<String>,
}

impl View {
    /// Finds a tool by its name, its `__` spelling, or without `{node}__`: then `local` comes first, else the only node
    /// that has it.
    pub fn find(&self, name: &str) -> Option<Arc<Tool>> {
        self.entries.lookup(name, None, |_| true)
    }

    pub fn registered(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub fn entries(&self) -> Vec<Arc<Tool>> {
        let mut tools: Vec<_> = self.entries.tools.values().cloned().collect();
        tools.sort_by(|a, b| (a.toolset(), a.name()).cmp(&(b.toolset(), b.name())));
        tools
    }

    /// The tools of nodes by their bare names, each once.
    pub fn shared(&self) -> Vec<SharedTool> {
        let mut by_name: BTreeMap<&str, Vec<(&str, &Arc<Tool>)>> = BTreeMap::new();
        for tool in self.entries.tools.values() {
            if let Some((node, bare)) = node_and_name(tool)
                && self.entries.by_name(bare).is_none()
            {
                by_name.entry(bare).or_default().push((node, tool));
            }
        }
        let shared = |(name, found): (&str, Vec<(&str, &Arc<Tool>)>)| {
            let tools: Vec<&Arc<Tool>> = found.iter().map(|(_, tool)| *tool).collect();
            let is_online = |node: &&str| self.entries.state(node).online;
            Some(SharedTool {
                name: name.to_owned(),
                nodes: found.iter().map(|(node, _)| (*node).to_owned()).collect(),
                online: found.iter().map(|(node, _)| *node).filter(is_online).map(str::to_owned).collect(),
                tool: told_for_all(&tools)?.clone(),
            })
        };
        by_name.into_iter().filter_map(shared).collect()
    }

    /// Whether a tool can be called now: its machine is here, or it needs none.
    pub fn is_online(&self, tool: &Tool) -> bool {
        node_and_name(tool).is_none_or(|(node, _)| self.entries.state(node).online)
    }

    /// What to say of a name that is not here, with the nearest ones that are. What was meant for one machine is not said
    /// to be another's.
    pub fn unknown(&self, name: &str) -> Refusal {
        let node = name.split_once("__").map(|(node, _)| node);
        let node = node.filter(|node| self.entries.nodes.contains_key(*node));
        if let Some(node) = node.filter(|node| self.never_here.contains(*node)) {
            return never_connected(node);
        }
        let is_near =
            |tool: &&Arc<Tool>| node.is_none_or(|node| node_and_name(tool).is_some_and(|(of, _)| of == node));
        let names = self.entries.tools.values().filter(is_near).map(|tool| tool.name());
        let shared = if node.is_none() { self.shared() } else { Vec::new() };
        let bare = shared.iter().map(|tool| tool.name.as_str());
        let mut hint = match nearest(name, bare.chain(names)).as_slice() {
            [] => "`gantry tools` lists what there is".to_owned(),
            names => format!("did you mean {}?", names.join(", ")),
        };
        if !name.contains("__") && !self.never_here.is_empty() {
            let away = self.never_here.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
            hint.push_str(&format!("; never connected, so that their tools are not known: {away}"));
        }
        let shown = &name[..name.floor_char_boundary(200)];
        Refusal::new(RefusalCode::UnknownTool, format!("unknown tool \"{shown}\"")).with_hint(hint)
    }
}

/// Of a machine that was let in and has never come.
pub(crate) fn never_connected(node: &str) -> Refusal {
    let message =
        format!("the node \"{node}\" is offline; it was never connected, and its tools are not known");
    Refusal::new(RefusalCode::Unavailable, message)
        .with_hint("start it there with `gantry node`, or see `gantry nodes`")
}

impl Entries {
    /// A tool of a node, with the attributes of this program's own tool of that name.
    fn recognised(&self, tool: Tool) -> Tool {
        let bare = node_and_name(&tool).map(|(_, bare)| bare);
        match bare.filter(|_| tool.is_remote()).and_then(|bare| self.standard_node_tools.get(bare)) {
            Some(own) => tool.recognised_as(own),
            None => tool,
        }
    }

    /// The tools of a node that was here once are kept.
    fn never_here(&self) -> impl Iterator<Item = (&str, &NodeState)> {
        let has_tools = |node: &str| {
            let prefix = format!("{node}__");
            self.tools.range(prefix.clone()..).next().is_some_and(|(name, _)| name.starts_with(&prefix))
        };
        let never = self.nodes.iter().filter(move |(node, state)| !state.online && !has_tools(node));
        never.map(|(node, state)| (node.as_str(), state))
    }

    fn by_name(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(name).or_else(|| self.tools.get(&canonical_name(name)))
    }

    /// A bare name means the tool of one node, as [`default_among`] picks it.
    fn lookup(
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

    fn on_nodes<'a>(&'a self, name: &'a str) -> impl Iterator<Item = OnNode> + 'a {
        self.tools.values().filter_map(move |tool| {
            let (node, bare) = node_and_name(tool)?;
            let state = self.state(node);
            (bare == name).then(|| OnNode { node: node.to_owned(), state, tool: tool.clone() })
        })
    }

    fn state(&self, node: &str) -> NodeState {
        let here = || NodeState { online: true, tags: Vec::new() };
        self.nodes.get(node).cloned().unwrap_or_else(here)
    }

    fn drop_server(&mut self, server: &str) {
        let of = |tool: &Tool| tool.name().split_once("__").map(|(of, _)| of == server);
        self.tools.retain(|_, tool| tool.toolset() != Toolset::Mcp || of(tool) != Some(true));
        self.servers.remove(server);
    }

    fn drop_tools_of(&mut self, node: &str) {
        self.tools.retain(|_, tool| node_and_name(tool).is_none_or(|(of, _)| of != node));
    }
}

/// `tool__file_read` is how surfaces without colons spell `tool::file_read`.
pub fn canonical_name(name: &str) -> String {
    match name.strip_prefix("tool__") {
        Some(rest) => format!("tool::{rest}"),
        None => name.to_owned(),
    }
}

/// Of a node's tool.
pub(crate) fn node_and_name(tool: &Tool) -> Option<(&str, &str)> {
    (tool.toolset() == Toolset::Node).then(|| tool.name().split_once("__")).flatten()
}

/// Whether a server's tool is shown to clients and models under this name, which is not its own.
pub(crate) fn is_published_as(tool: &Tool, name: &str) -> bool {
    tool.toolset() == Toolset::Mcp && may_be_hashed(name) && published_name(tool.name()) == name
}

fn bare_name(tool: &Tool) -> Option<&str> {
    node_and_name(tool).map(|(_, bare)| bare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::echo_tool;
    use crate::{Capability, Effect, Property, RemoteTool, Reply};

    fn registry() -> Registry {
        let registry = Registry::default();
        for (name, toolset) in [
            ("local__Bash", Toolset::Node),
            ("local__Read", Toolset::Node),
            ("tool::file_read", Toolset::Guarded),
            ("read", Toolset::Basic),
        ] {
            registry.register(echo_tool(name, toolset)).unwrap();
        }
        registry
    }

    fn names(scope: &ToolScope) -> Vec<String> {
        registry().view(scope).entries().iter().map(|tool| tool.name().to_owned()).collect()
    }

    fn scope(allow: Option<&[&str]>, deny: &[&str]) -> ToolScope {
        let owned = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        ToolScope::new(allow.map(owned).as_deref(), &owned(deny)).unwrap()
    }

    #[test]
    fn registers_once_and_replaces() {
        let registry = registry();
        assert!(registry.register(echo_tool("read", Toolset::Basic)).is_err());
        assert!(registry.replace(echo_tool("read", Toolset::Basic)).is_some());
        assert!(registry.replace(echo_tool("write", Toolset::Basic)).is_none());
        assert!(registry.registered("write") && !registry.registered("exec"));
    }

    #[test]
    fn those_who_watch_hear_of_changes() {
        let registry = registry();
        let mut changes = registry.changes();
        assert!(!changes.has_changed().unwrap());
        registry.set_node("laptop", NodeState::default(), vec![echo_tool("laptop__Bash", Toolset::Node)]);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        registry.remove_node("laptop");
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn a_server_brings_its_tools_and_takes_nobodys_name() {
        let registry = registry();
        let tool = |name: &str| echo_tool(name, Toolset::Mcp);
        assert!(registry.set_server("fs", vec![tool("fs__a"), tool("fs__b")]).is_empty());
        assert!(registry.has_server("fs") && registry.registered("fs__a"));
        assert!(!registry.registered("a"), "only nodes' tools have bare names");
        let refused = registry.set_server("fs", vec![tool("fs__a::x"), tool("fs__a__x"), tool("fs__c")]);
        assert!(matches!(&refused[..], [RegistryError::Colons(_)]), "{refused:?}");
        assert!(registry.registered("fs__c") && !registry.registered("fs__b"), "in place of those it had");
        let refused = registry.set_server("tool", vec![tool("tool__file_read")]);
        assert!(matches!(&refused[..], [RegistryError::Shadows { .. }]), "{refused:?}");
        registry.set_node("box", NodeState::default(), vec![echo_tool("box__Read", Toolset::Node)]);
        let refused = registry.set_server("box", vec![tool("box__x")]);
        assert!(matches!(&refused[..], [RegistryError::IsNode(_)]), "{refused:?}");
        registry.remove_server("fs");
        assert!(
            !registry.has_server("fs") && !registry.registered("fs__c") && registry.registered("box__Read")
        );
    }

    #[test]
    fn a_server_takes_no_published_name_twice() {
        let registry = registry();
        let tool = |name: &str| echo_tool(name, Toolset::Mcp);
        let published = published_name("fs__a.b");
        for pair in [["fs__a.b", &published], [&published, "fs__a.b"]] {
            let refused = registry.set_server("fs", pair.map(tool).into());
            assert!(matches!(&refused[..], [RegistryError::Shadows { .. }]), "{refused:?}");
            assert!(registry.registered(pair[0]) && !registry.registered(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn finds_by_both_spellings_and_bare_node_names() {
        let registry = registry();
        for name in ["tool::file_read", "tool__file_read", "Bash", "local__Bash", "read"] {
            assert!(registry.registered(name), "{name}");
        }
        registry.register(echo_tool("laptop__Bash", Toolset::Node)).unwrap();
        assert_eq!(registry.find("Bash").unwrap().name(), "local__Bash", "local comes first");
        for node in ["a", "b"] {
            registry.register(echo_tool("Other", Toolset::Node).on_node(node)).unwrap();
        }
        assert!(!registry.registered("Other"), "two nodes could answer");
    }

    #[test]
    fn a_machine_that_never_came_is_told_as_such_and_no_other_is_taken_for_it() {
        let registry = registry();
        registry.set_node("laptop", NodeState::default(), Vec::new());
        registry.set_node("rd", NodeState::default(), vec![echo_tool("rd__Read", Toolset::Node)]);
        let view = registry.view(&ToolScope::default());
        let never = view.unknown("laptop__Bash");
        assert_eq!(never.code, RefusalCode::Unavailable);
        assert!(never.message.contains("\"laptop\" is offline; it was never connected"), "{never:?}");
        let lacking = view.unknown("rd__Bash");
        assert_eq!(lacking.code, RefusalCode::UnknownTool);
        assert!(!lacking.hint.as_deref().unwrap().contains("local"), "{lacking:?}");
        assert_eq!(view.unknown("rd__Raed").hint.as_deref(), Some("did you mean rd__Read?"));
        assert!(view.unknown("Raed").hint.unwrap().starts_with("did you mean Read,"), "as it is called most");
        assert!(view.unknown("Bahs").hint.unwrap().contains("laptop"), "it may be there");
        let hidden = registry.view(&scope(Some(&["read"]), &[]));
        assert_eq!(hidden.unknown("rd__Read").code, RefusalCode::UnknownTool, "it was here, and is hidden");
        let sees = |allow: Option<&[&str]>, deny: &[&str]| {
            registry.never_here(&scope(allow, deny), "Bash").iter().any(|(node, _)| node == "laptop")
        };
        assert!(sees(None, &[]) && sees(Some(&["Bash"]), &[]) && sees(Some(&["laptop__*"]), &[]));
        assert!(!sees(Some(&["local__*"]), &[]) && !sees(None, &["Bash"]) && !sees(Some(&["basic"]), &[]));
        registry.set_node("laptop", NodeState { online: true, tags: Vec::new() }, Vec::new());
        assert!(!sees(None, &[]));
    }

    #[test]
    fn scopes_take_names_globs_and_toolsets() {
        assert_eq!(names(&scope(Some(&["read", "Bash"]), &[])), ["local__Bash", "read"]);
        assert_eq!(names(&scope(Some(&["local__*"]), &["Bash"])), ["local__Read"]);
        assert_eq!(names(&scope(Some(&["guarded", "basic"]), &[])), ["tool::file_read", "read"]);
        assert_eq!(names(&scope(None, &["node", "tool__*"])), ["read"]);
        assert_eq!(names(&scope(Some(&[]), &[])), Vec::<String>::new());
        let published = published_name("fs__a.b");
        assert!(!scope(None, &[&published]).allows(&echo_tool("fs__a.b", Toolset::Mcp)), "as clients see it");
        assert!(scope(None, &[&published]).allows(&echo_tool("fs__a.c", Toolset::Mcp)));
    }

    #[test]
    fn scopes_within_scopes_let_through_what_all_do() {
        let narrow = scope(Some(&["local__*"]), &[]).within(scope(None, &["Bash"]));
        assert_eq!(names(&narrow), ["local__Read"]);
        assert_eq!(names(&narrow.clone().within(scope(Some(&["read"]), &[]))), Vec::<String>::new());
        assert_eq!(names(&narrow.read_only()), Vec::<String>::new(), "nothing here is read-only");
    }

    #[test]
    fn a_scope_leaves_out_what_has_an_effect() {
        for spelling in ["effect:runs_commands", "effect:runs-commands"] {
            let scope = scope(None, &[spelling]);
            assert_eq!(names(&scope), Vec::<String>::new(), "nobody knows what these do");
            assert!(scope.allows(&echo_tool("read", Toolset::Basic).read_only()));
        }
    }

    #[test]
    fn a_scope_selects_by_property() {
        let scope = scope(Some(&["is:offered_to_agents"]), &[]);
        assert_eq!(names(&scope), Vec::<String>::new());
        assert!(scope.allows(&echo_tool("read", Toolset::Basic).offered_to_agents()));
    }

    /// A node says what its tools are called, not what they do.
    #[test]
    fn node_tools_with_a_standard_name_get_the_attributes_of_this_programs_own() {
        let registry = Registry::default();
        registry.set_standard_node_tools(vec![
            echo_tool("Read", Toolset::Node).read_only().offered_to_clients(),
            echo_tool("Write", Toolset::Node).effects(&[Effect::WritesFiles]),
            echo_tool("Process", Toolset::Node).capabilities(&[Capability::ShellExec]).polls(),
        ]);
        let remote = |name: &str, read_only| {
            let remote = RemoteTool {
                name: format!("box__{name}"),
                toolset: Toolset::Node,
                description: "x".into(),
                input_schema: serde_json::json!({"type": "object"}),
                output_schema: None,
                read_only,
                destructive: !read_only,
                idempotent: false,
                open_world: false,
                capabilities: vec![Capability::FilesystemRead],
            };
            Tool::remote(remote, |_, input| async move { Ok(Reply::Json(input)) })
        };
        let effects = |name: &str, read_only| {
            registry.set_node("box", NodeState::default(), vec![remote(name, read_only)]);
            registry.find(&format!("box__{name}")).unwrap().effect_list()
        };
        assert_eq!(effects("Read", true), []);
        assert_eq!(effects("Read", false), Effect::ALL, "it changes things, this program's does not");
        assert_eq!(effects("Write", false), [Effect::WritesFiles]);
        assert_eq!(effects("Write", true), [Effect::WritesFiles], "a node's word does not count");
        assert_eq!(effects("Process", false), Effect::ALL, "a command does anything");
        assert!(registry.find("box__Process").unwrap().is_polling());
        assert_eq!(effects("Deploy", true), Effect::ALL);
        assert_eq!(effects("Read", true), []);
        assert!(registry.find("box__Read").unwrap().has_property(Property::OfferedToClients));
        let offered = scope(Some(&["is:offered_to_clients"]), &[]);
        registry.set_node("new", NodeState::default(), Vec::new());
        let open = |bare: &str| !registry.never_here(&offered, bare).is_empty();
        assert!(open("Read") && !open("Write") && !open("Deploy"));
    }

    #[test]
    fn a_selector_that_is_nothing_is_an_error() {
        for unknown in ["effect:flies", "is:blue"] {
            assert!(ToolScope::new(None, &[unknown.to_owned()]).is_err(), "{unknown}");
        }
        assert!(ToolScope::new(None, &["local__{Bash".to_owned()]).is_err());
    }

    #[test]
    fn a_scope_hides_tools_from_resolve_too() {
        let registry = registry();
        let scope = scope(Some(&["read"]), &[]);
        assert!(registry.resolve(&scope, "read").is_some());
        for hidden in ["Bash", "local__Bash", "tool__file_read"] {
            assert!(registry.resolve(&scope, hidden).is_none(), "{hidden}");
        }
    }
}
