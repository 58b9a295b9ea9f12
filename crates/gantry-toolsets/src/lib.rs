//! The toolsets: one folder each, one file a tool. Tools are thin; the engines below do the work.
//!
//! [`all`] is the one list that feeds the registry, the command line, the documentation and the tests.

mod assistant;
mod basic;
mod blocking;
mod gantry;
mod guarded;
mod machine;
mod model_tools;
mod native;
mod node;
mod optional_path;
mod run_to_end;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transfer;
mod web;

use std::sync::Arc;

use gantry_tool::Tool;

pub use assistant::{TokenCache, missing_secrets};
pub use gantry_tool::LOCAL_NODE;
pub use machine::{Isolation, IsolationLevel, Machine, MachineParts, SandboxMode, ShellSettings};
pub use model_tools::{ANTHROPIC_WEB_SEARCH, MODEL_TOOLS, ModelTool};
pub use native::{
    Endpoint, Ends, Native, NodeLogs, NodeServices, SkillSource, StoredTree, ToolFuture, Transferred,
    WorkspacePath, gateway_tools,
};
pub use node::{CommandNote, process_end};
pub use transfer::{PartsFolder, transfer_service};
pub use web::{SearchEndpoints, SearchKey, SearchProvider, SearchSettings, Web};

type Ctx = gantry_tool::Ctx<Machine>;

/// A tool's name, and how it is made. Names are known before there is a machine to make tools for.
type Listed<S> = (&'static str, fn(&Arc<S>) -> Tool);

fn make<S>(listed: &[Listed<S>], state: &Arc<S>) -> Vec<Tool> {
    listed.iter().map(|(_, tool)| tool(state)).collect()
}

fn names_of<S>(listed: &'static [Listed<S>]) -> impl Iterator<Item = &'static str> {
    listed.iter().map(|(name, _)| *name)
}

/// Every tool, on this machine and on the agents' workspaces.
pub fn all(machine: &Arc<Machine>, native: &Arc<Native>) -> Vec<Tool> {
    let mut tools: Vec<Tool> = node_tools(machine).into_iter().map(|tool| tool.on_node(LOCAL_NODE)).collect();
    tools.extend(make(native::TOOLS, native));
    tools.extend(make(guarded::TOOLS, machine));
    tools.extend(make(basic::TOOLS, machine));
    tools.extend(assistant::tools(machine));
    tools.extend(make(assistant::KEPT_TOOLS, native));
    tools.extend(make(gantry::TOOLS, machine));
    tools
}

/// The names of [`all`] tools and of [`gateway_tools`], those of nodes under their bare names. Tools that need a setting
/// are named without it too.
pub fn names() -> impl Iterator<Item = &'static str> {
    node::names()
        .chain(names_of(native::TOOLS))
        .chain(native::gateway_tool_names())
        .chain(names_of(guarded::TOOLS))
        .chain(names_of(basic::TOOLS))
        .chain(names_of(assistant::TOOLS))
        .chain(names_of(assistant::KEPT_TOOLS))
        .chain(names_of(gantry::TOOLS))
}

/// The tools that a node contributes, under their bare names: the gateway puts the node's own before them.
pub fn node_tools(machine: &Arc<Machine>) -> Vec<Tool> {
    node::tools(machine)
}

#[cfg(test)]
mod tests;
