//! The basic toolset: `read`, `write` and `exec` on the whole machine.

mod exec;
mod read;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use gantry_tool::{Call, Tool};

use crate::Machine;

pub(crate) fn tools(machine: &Arc<Machine>) -> Vec<Tool> {
    vec![read::tool(machine), write::tool(machine), exec::tool(machine)]
}

/// Where a path of the input leads, for policy to judge; as written from the workspace when the engine refuses it.
fn touched(machine: &Machine, call: &Call, path: &str) -> PathBuf {
    let resolved = machine.free(call).ok().and_then(|scope| scope.resolve(path).ok());
    resolved.unwrap_or_else(|| call.workspace.join(path))
}
