//! The guarded toolset: files contained in the workspace, and listed commands in a kernel sandbox.

mod apply_patch;
mod file_list;
mod file_read;
mod file_write;
mod shell_exec;

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
    ]
}

#[cfg(test)]
mod tests;
