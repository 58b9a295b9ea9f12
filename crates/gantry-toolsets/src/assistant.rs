//! The `assistant` toolset: tools that answer in plain text, errors included.

mod api_setup;
mod bash;
mod batch_files;
mod http_request;
mod paths;
mod read_file;
mod web_research;
mod write_file;

use std::sync::Arc;

use gantry_tool::Tool;

pub use http_request::{TokenCache, missing_secrets};

use crate::Machine;

pub(crate) fn tools(machine: &Arc<Machine>) -> Vec<Tool> {
    let mut tools = vec![
        bash::tool(machine),
        read_file::tool(machine),
        write_file::tool(machine),
        batch_files::tool(machine),
        http_request::tool(machine),
        api_setup::tool(machine),
    ];
    // Without a provider of the operator's choice there is nothing to search with that could be relied on.
    if machine.web().search.is_configured() {
        tools.push(web_research::tool(machine));
    }
    tools
}
