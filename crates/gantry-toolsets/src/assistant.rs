//! The `assistant` toolset: tools that answer in plain text, errors included.

mod bash;
mod batch_files;
mod paths;
mod read_file;
mod write_file;

use std::sync::Arc;

use gantry_tool::Tool;

use crate::Machine;

pub(crate) fn tools(machine: &Arc<Machine>) -> Vec<Tool> {
    vec![bash::tool(machine), read_file::tool(machine), write_file::tool(machine), batch_files::tool(machine)]
}
