//! The basic toolset: `read`, `write` and `exec` on the whole machine.

mod exec;
mod read;
mod write;

use crate::{Machine, ToolEntry};

pub(crate) const TOOLS: &[ToolEntry<Machine>] =
    &[(read::NAME, read::tool), (write::NAME, write::tool), (exec::NAME, exec::tool)];
