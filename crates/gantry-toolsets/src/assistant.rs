use std::sync::Arc;

use gantry_tool::Tool;

use crate::Machine;

pub(crate) fn tools(_machine: &Arc<Machine>) -> Vec<Tool> {
    vec![]
}
