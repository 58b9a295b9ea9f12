//! The `gantry` toolset: what Gantry itself offers beside the five designs. Errors are `{"error": …}`.

mod result_read;

use crate::{Listed, Machine};

pub(crate) const TOOLS: &[Listed<Machine>] = &[(result_read::NAME, result_read::tool)];
