//! The toolsets: one folder per toolset, one file per tool. Tools are thin and call the engines
//! below.
//!
//! [`all`] is the only list of tools. It feeds the registry, the command line, the documentation
//! and the tests.

mod agent_shells;
mod asked;
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
mod whole_secrets;
mod workers;

use std::sync::Arc;

use gantry_tool::{Registry, Tool};

pub use agent_shells::{
    AgentNetwork, AgentPort, EgressHost, EgressHostError, EgressSettings, IDLE_LIMIT, MAX_SHELL_SESSIONS,
};
pub use assistant::{TokenCache, missing_secrets};
pub use gantry_tool::LOCAL_NODE;
pub use machine::{
    Isolation, IsolationLevel, Machine, MachineParts, MachineSettings, SandboxMode, ShellSettings,
};
pub use model_tools::{ANTHROPIC_WEB_SEARCH, MODEL_TOOLS, ModelTool};
pub use native::{
    Endpoint, Ends, Native, NodeLogs, NodeServices, SkillSource, StoredTree, ToolFuture, Transferred,
    WorkspacePath, gateway_tools,
};
pub use node::{CommandNote, process_end};
pub use transfer::{PartsFolder, transfer_service};
pub use web::{SearchEndpoints, SearchKey, SearchProvider, SearchSettings, Web};
pub use workers::{WorkerSetup, worker_main};

type Ctx = gantry_tool::Ctx<Machine>;

/// A tool's name and constructor. The name is known without a machine.
type ToolEntry<S> = (&'static str, fn(&Arc<S>) -> Tool);

fn make<S>(entries: &[ToolEntry<S>], state: &Arc<S>) -> Vec<Tool> {
    entries.iter().map(|(_, tool)| tool(state)).collect()
}

fn names_of<S>(entries: &'static [ToolEntry<S>]) -> impl Iterator<Item = &'static str> {
    entries.iter().map(|(name, _)| *name)
}

/// Returns every tool on this machine and on the agents' workspaces.
pub fn all(machine: &Arc<Machine>, native: &Arc<Native>) -> Vec<Tool> {
    let mut tools: Vec<Tool> = node_tools(machine).into_iter().map(|tool| tool.on_node(LOCAL_NODE)).collect();
    tools.extend(make(native::TOOLS, native));
    tools.extend(make(guarded::TOOLS, machine));
    tools.extend(make(basic::TOOLS, machine));
    tools.extend(assistant::tools(machine));
    tools.extend(make(assistant::NATIVE_STATE_TOOLS, native));
    tools.extend(make(gantry::TOOLS, machine));
    tools
}

/// Offers the tools that depend on settings, or withdraws them, after the settings changed.
pub fn refresh_tools(machine: &Arc<Machine>, registry: &Registry) {
    assistant::refresh(machine, registry);
}

/// Returns the names of [`all`] tools and of [`gateway_tools`], with bare names for node tools. It
/// includes tools that need a setting, whether or not it is set.
pub fn names() -> impl Iterator<Item = &'static str> {
    node::names()
        .chain(names_of(native::TOOLS))
        .chain(native::gateway_tool_names())
        .chain(names_of(guarded::TOOLS))
        .chain(names_of(basic::TOOLS))
        .chain(names_of(assistant::TOOLS))
        .chain(names_of(assistant::NATIVE_STATE_TOOLS))
        .chain(names_of(gantry::TOOLS))
}

/// Returns the tools that a node contributes, with bare names. The gateway adds the node's prefix.
pub fn node_tools(machine: &Arc<Machine>) -> Vec<Tool> {
    node::tools(machine)
}

#[cfg(test)]
mod tests;
