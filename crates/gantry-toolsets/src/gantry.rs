//! The `gantry` toolset: what Gantry itself offers beside the five designs. Errors are `{"error": …}`.

mod result_read;

use std::sync::Arc;

use gantry_tool::Tool;

use crate::Machine;

pub(crate) fn tools(machine: &Arc<Machine>) -> Vec<Tool> {
    vec![result_read::tool(machine)]
}
