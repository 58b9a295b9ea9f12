//! The `gantry` toolset: Gantry's own tools, which come from none of the five designs. Errors are
//! `{"error": …}`.

mod result_read;

use crate::{Machine, ToolEntry};

pub(crate) const TOOLS: &[ToolEntry<Machine>] = &[(result_read::NAME, result_read::tool)];
