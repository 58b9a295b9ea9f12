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

use gantry_tool::{Tool, Toolset};

pub use assistant::{TokenCache, missing_secrets};
pub use gantry_tool::LOCAL_NODE;
pub use machine::{Isolation, IsolationLevel, Machine, MachineParts, SandboxMode, ShellSettings};
pub use model_tools::{ANTHROPIC_WEB_SEARCH, MODEL_TOOLS, ModelTool};
pub use native::{
    Endpoint, Ends, Native, NodeLogs, NodeServices, SkillSource, StoredTree, ToolFuture, Transferred,
    WorkspacePath, gateway_tools,
};
pub use node::{CommandNote, process_end};
pub use transfer::{PartsFolder, transfer_desk};
pub use web::{SearchEndpoints, SearchKey, SearchProvider, SearchSettings, Web};

type Ctx = gantry_tool::Ctx<Machine>;

/// Every tool, on this machine and on the agents' workspaces.
pub fn all(machine: &Arc<Machine>, native: &Arc<Native>) -> Vec<Tool> {
    let mut tools: Vec<Tool> = node_tools(machine).into_iter().map(|tool| tool.on_node(LOCAL_NODE)).collect();
    tools.extend(native::tools(native));
    tools.extend(guarded::tools(machine));
    tools.extend(basic::tools(machine));
    tools.extend(assistant::tools(machine));
    tools.extend(assistant::kept_tools(native));
    tools.extend(gantry::tools(machine));
    tools
}

/// Whether a tool works without a machine of its own: on storage, on memories, on agents, on the gateway itself.
pub fn needs_no_machine(tool: &Tool) -> bool {
    matches!(tool.toolset(), Toolset::Native | Toolset::Gantry)
        || assistant::KEPT_TOOLS.contains(&tool.name())
}

/// The tools that a node contributes, under their bare names: the gateway puts the node's own before them.
pub fn node_tools(machine: &Arc<Machine>) -> Vec<Tool> {
    node::tools(machine)
}
