//! `View` is the part of the registry that one principal sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::entries::Entries;
use super::multi_node::{SharedTool, representative};
use super::names::node_and_name;
use crate::error::{Refusal, RefusalCode};
use crate::text::nearest::nearest;
use crate::tool::Tool;

/// The tools that one principal sees.
#[derive(Debug, Clone)]
pub struct View {
    pub(super) entries: Entries,
    /// Nodes that have never connected.
    pub(super) never_here: BTreeSet<String>,
}

impl View {
    /// Finds a tool by its name, its `__` spelling, or its bare name, which means `local` or the only online node.
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

    /// The node tools by their bare names, each once.
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
                tool: representative(&tools)?.clone(),
            })
        };
        by_name.into_iter().filter_map(shared).collect()
    }

    /// Whether a tool can be called now: its node is online, or it needs none.
    pub fn is_online(&self, tool: &Tool) -> bool {
        node_and_name(tool).is_none_or(|(node, _)| self.entries.state(node).online)
    }

    /// The refusal for an unknown name, with similar names as a hint. For `{node}__{name}` the hint stays on that node.
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
            [] => "`gantry tools` lists the available tools".to_owned(),
            names => format!("did you mean {}?", names.join(", ")),
        };
        if !name.contains("__") && !self.never_here.is_empty() {
            let away = self.never_here.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
            hint.push_str(&format!("; nodes that never connected may have it: {away}"));
        }
        let shown = &name[..name.floor_char_boundary(200)];
        Refusal::new(RefusalCode::UnknownTool, format!("unknown tool \"{shown}\"")).with_hint(hint)
    }
}

/// The refusal for a node that never connected.
pub(crate) fn never_connected(node: &str) -> Refusal {
    let message = format!("the node \"{node}\" is offline; it never connected, so its tools are unknown");
    Refusal::new(RefusalCode::Unavailable, message)
        .with_hint("start `gantry node` on that machine; `gantry nodes` shows the state")
}
