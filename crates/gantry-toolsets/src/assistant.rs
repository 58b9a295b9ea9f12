//! The `assistant` toolset: tools that answer in plain text, errors included.

mod api_setup;
mod ask_user;
mod bash;
mod batch_files;
mod http_request;
mod memory_recall;
mod memory_store;
mod namespace;
mod paths;
mod read_file;
mod web_research;
mod write_file;

use std::sync::Arc;

use gantry_tool::Tool;

pub use http_request::{TokenCache, missing_secrets};

use crate::{Machine, Native};

/// They work on what the gateway keeps, wherever it runs.
pub(crate) const KEPT_TOOLS: [&str; 3] = ["memory_store", "memory_recall", "ask_user"];

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

pub(crate) fn kept_tools(native: &Arc<Native>) -> Vec<Tool> {
    vec![memory_store::tool(native), memory_recall::tool(native), ask_user::tool(native)]
}
