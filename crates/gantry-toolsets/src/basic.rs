//! The basic toolset: `read`, `write` and `exec` on the whole machine.

mod exec;
mod read;
mod write;

use std::sync::Arc;

use gantry_tool::Tool;

use crate::Machine;

pub(crate) fn tools(machine: &Arc<Machine>) -> Vec<Tool> {
    vec![read::tool(machine), write::tool(machine), exec::tool(machine)]
}
