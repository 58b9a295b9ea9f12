//! The guarded toolset: files contained in the workspace, listed commands in a kernel sandbox, the web.

mod apply_patch;
mod file_list;
mod file_read;
mod file_write;
mod shell_exec;
mod web_fetch;
mod web_search;

use std::sync::Arc;

use gantry_tool::Tool;

use crate::Machine;

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

#[cfg(test)]
mod tests;
