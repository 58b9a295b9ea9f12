//! The guarded toolset: files contained in the workspace, listed commands in a kernel sandbox, the web.

mod agent_send;
mod agent_spawn;
mod apply_patch;
mod file_list;
mod file_read;
mod file_write;
mod shell_exec;
mod web_fetch;
mod web_search;

use std::sync::Arc;

use gantry_tool::Tool;

pub use agent_spawn::AgentSpawned;

use crate::{Machine, Native};

/// They work on the agents of the gateway, wherever it runs.
pub(crate) const AGENT_TOOLS: [&str; 2] = ["tool::agent_spawn", "tool::agent_send"];

pub(crate) fn tools(machine: &Arc<Machine>) -> Vec<Tool> {
    vec![
        file_read::tool(machine),
        file_write::tool(machine),
        file_list::tool(machine),
        apply_patch::tool(machine),
        shell_exec::tool(machine),
        web_fetch::tool(machine),
        web_search::tool(machine),
    ]
}

pub(crate) fn agent_tools(native: &Arc<Native>) -> Vec<Tool> {
    vec![agent_spawn::tool(native), agent_send::tool(native)]
}

#[cfg(test)]
mod tests;
