//! Definitions of the tools of other nodes, for decisions only. The gateway knows which nodes exist; here a name is enough.

use gantry_tool::{LOCAL_NODE, NodeState, RemoteTool, Tool, ToolError, Toolset, canonical_name};

use crate::local::Local;

/// Makes the tools of the node in `NODE__Tool` known, if they are not. The node itself decides on paths.
pub(super) fn add_node_of(local: &Local, name: &str) {
    let registry = local.gate.registry();
    let name = canonical_name(name);
    let Some((node, bare)) = name.split_once("__") else { return };
    let own = registry.find(&format!("{LOCAL_NODE}__{bare}")).filter(|tool| tool.toolset() == Toolset::Node);
    if registry.registered(&name) || registry.has_server(node) || own.is_none() {
        return;
    }
    let tools = registry.entries();
    let own_prefix = format!("{LOCAL_NODE}__");
    let tools = tools.iter().filter_map(|tool| {
        let bare = tool.name().strip_prefix(&own_prefix).filter(|_| tool.toolset() == Toolset::Node)?;
        Some(on_other_node(tool, format!("{node}__{bare}")))
    });
    registry.set_node(node, NodeState { online: true, tags: Vec::new() }, tools.collect());
}

fn on_other_node(tool: &Tool, name: String) -> Tool {
    let remote = RemoteTool {
        name,
        toolset: Toolset::Node,
        description: tool.description().to_owned(),
        input_schema: tool.input_schema().clone(),
        output_schema: tool.output_schema().cloned(),
        read_only: tool.is_read_only(),
        destructive: tool.is_destructive(),
        idempotent: tool.is_idempotent(),
        open_world: tool.is_open_world(),
        capabilities: tool.capability_ids().to_vec(),
    };
    Tool::remote(remote, |_, _| std::future::ready(Err(ToolError::failed("this tool only explains policy"))))
}
