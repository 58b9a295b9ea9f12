//! Processes: the recorded calls of a session. They are replayed as they were, with parameters in their places.

pub(crate) mod api;
mod capture;
mod capture_process;
mod promote;
mod promote_process;

use crate::tools::MakeTool;

pub(crate) const TOOLS: &[(&str, MakeTool)] =
    &[(capture_process::NAME, capture_process::tool), (promote_process::NAME, promote_process::tool)];
