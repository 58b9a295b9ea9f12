//! Spellings of tool names: with `::` or `__`, with and without the node.

use super::model_name::{may_be_hashed, published_name};
use crate::tool::{Tool, Toolset};

/// `tool__file_read` is how surfaces without colons spell `tool::file_read`.
pub fn canonical_name(name: &str) -> String {
    match name.strip_prefix("tool__") {
        Some(rest) => format!("tool::{rest}"),
        None => name.to_owned(),
    }
}

/// The node and the bare name of a node tool.
pub(crate) fn node_and_name(tool: &Tool) -> Option<(&str, &str)> {
    (tool.toolset() == Toolset::Node).then(|| tool.name().split_once("__")).flatten()
}

/// Whether clients and models see this MCP tool under that name, because its own name does not fit.
pub(crate) fn is_published_as(tool: &Tool, name: &str) -> bool {
    tool.toolset() == Toolset::Mcp && may_be_hashed(name) && published_name(tool.name()) == name
}

pub(super) fn bare_name(tool: &Tool) -> Option<&str> {
    node_and_name(tool).map(|(_, bare)| bare)
}
