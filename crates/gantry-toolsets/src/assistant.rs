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

pub(crate) use read_file::read_whole_file;
pub(crate) use write_file::write_whole_file;

use std::sync::Arc;

use gantry_tool::{Registry, Tool};

pub use http_request::{TokenCache, missing_secrets};

use crate::{Machine, Native, ToolEntry};

pub(crate) const TOOLS: &[ToolEntry<Machine>] = &[
    (bash::NAME, bash::tool),
    (read_file::NAME, read_file::tool),
    (write_file::NAME, write_file::tool),
    (batch_files::NAME, batch_files::tool),
    (http_request::NAME, http_request::tool),
    (api_setup::NAME, api_setup::tool),
    (web_research::NAME, web_research::tool),
];

/// Assistant tools that use the gateway's state ([`Native`]) and need no machine.
pub(crate) const NATIVE_STATE_TOOLS: &[ToolEntry<Native>] = &[
    (memory_store::NAME, memory_store::tool),
    (memory_recall::NAME, memory_recall::tool),
    (ask_user::NAME, ask_user::tool),
];

/// Offers `web_research` if the operator configured a search provider meanwhile, or withdraws it.
pub(crate) fn refresh(machine: &Arc<Machine>, registry: &Registry) {
    match machine.settings().web.search.is_configured() {
        true => drop(registry.replace(web_research::tool(machine))),
        false => registry.remove(&[web_research::NAME]),
    }
}

pub(crate) fn tools(machine: &Arc<Machine>) -> Vec<Tool> {
    // `web_research` is offered only if the operator configured a search provider.
    let can_search = machine.settings().web.search.is_configured();
    let usable = TOOLS.iter().filter(|(name, _)| can_search || *name != web_research::NAME);
    usable.map(|(_, tool)| tool(machine)).collect()
}
