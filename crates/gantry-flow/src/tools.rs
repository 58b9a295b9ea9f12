//! The tools of this domain. Each part has its own list.

use std::sync::Arc;

use gantry_tool::{Tool, ToolError};

use crate::domain::Flow;
use crate::jobs;

/// The state of the tools: the work of a running gateway, if there is one.
pub(crate) struct FlowTools(Option<Arc<Flow>>);

impl FlowTools {
    pub(crate) fn flow(&self) -> Result<&Arc<Flow>, ToolError> {
        self.0.as_ref().ok_or_else(ToolError::needs_gateway)
    }
}

pub(crate) type MakeTool = fn(&Arc<FlowTools>) -> Tool;

/// The lists of all parts.
const PARTS: [&[(&str, MakeTool)]; 5] = [
    &[(jobs::tool::NAME, jobs::tool::tool)],
    crate::pipelines::TOOLS,
    crate::plans::TOOLS,
    crate::processes::TOOLS,
    crate::tasks::tools::TOOLS,
];

/// Returns the tools of this domain. With `None` the tools can be listed but not run.
pub fn tools(flow: Option<Arc<Flow>>) -> Vec<Tool> {
    let state = Arc::new(FlowTools(flow));
    PARTS.iter().flat_map(|part| part.iter()).map(|(_, tool)| tool(&state)).collect()
}

/// The names of [`tools`].
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().flat_map(|part| part.iter()).map(|(name, _)| *name)
}
