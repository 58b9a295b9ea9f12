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

pub use agent_spawn::AgentSpawned;

use crate::{Listed, Machine, Native};

pub(crate) const TOOLS: &[Listed<Machine>] = &[
    (file_read::NAME, file_read::tool),
    (file_write::NAME, file_write::tool),
    (file_list::NAME, file_list::tool),
    (apply_patch::NAME, apply_patch::tool),
    (shell_exec::NAME, shell_exec::tool),
    (web_fetch::NAME, web_fetch::tool),
    (web_search::NAME, web_search::tool),
];

/// The tools for the agents of the gateway.
pub(crate) const AGENT_TOOLS: &[Listed<Native>] =
    &[(agent_spawn::NAME, agent_spawn::tool), (agent_send::NAME, agent_send::tool)];

#[cfg(test)]
mod tests;
