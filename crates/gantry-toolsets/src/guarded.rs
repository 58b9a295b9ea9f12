//! The guarded toolset: files contained in the workspace, and listed commands in a kernel sandbox.

mod apply_patch;
mod file_list;
mod file_read;
mod file_write;
mod shell_exec;

use std::path::PathBuf;
use std::sync::Arc;

use gantry_tool::{Call, Tool};

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

/// Where a path of the input leads, for policy to judge; as written from the workspace when the engine refuses it.
fn touched(machine: &Machine, call: &Call, path: &str) -> PathBuf {
    let resolved = machine.contained(call).ok().and_then(|scope| scope.resolve(path).ok());
    resolved.unwrap_or_else(|| call.workspace.join(path))
}

#[cfg(test)]
mod tests;
