//! Checks a node's description of its tools strictly and converts it to tools of the registry.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_protocol::{MAX_LISTED_CALLS, NodeHello, NodeTools, WireTool};
use gantry_tool::{Capability, RemoteTool, Tool, Toolset, check_schema};

use crate::nodes::{Node, Nodes};

const MAX_TOOLS: usize = 256;
const MAX_NAME_CHARS: usize = 48;
const MAX_DESCRIPTION_BYTES: usize = 32 * 1024;

/// Checks a node's introduction. The error says why the node cannot join.
pub(crate) fn check_hello(hello: &NodeHello) -> Result<(), String> {
    if hello.instance.is_empty() || hello.instance.len() > 64 {
        return Err("\"instance\" must have 1 to 64 characters".into());
    }
    if hello.calls.len() > MAX_LISTED_CALLS {
        return Err(format!("\"calls\" must have at most {MAX_LISTED_CALLS} ids"));
    }
    if hello.bulk {
        return Ok(());
    }
    if hello.tools.is_empty() {
        return Err("a node must have at least one tool".into());
    }
    if hello.tools.len() > MAX_TOOLS {
        return Err(format!("a node must have at most {MAX_TOOLS} tools"));
    }
    let host: BTreeSet<&str> = hello.host_capabilities.iter().map(String::as_str).collect();
    if let Some(unknown) = host.iter().find(|id| Capability::from_id(id).is_none()) {
        return Err(format!("unknown capability {unknown:?}"));
    }
    for (name, capabilities) in &hello.tools {
        check_name(name)?;
        if capabilities.is_empty() {
            return Err(format!("the tool {name} has no capability"));
        }
        if let Some(missing) = capabilities.iter().find(|id| !host.contains(id.as_str())) {
            return Err(format!(
                "the tool {name} needs the capability {missing:?}, which its host does not have"
            ));
        }
    }
    Ok(())
}

/// Checks a tool's name: letters, digits and single underscores, because it follows `{node}__`.
fn check_name(name: &str) -> Result<(), String> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let fits = (1..=MAX_NAME_CHARS).contains(&name.len()) && name.bytes().all(sound);
    if !fits || name.contains("__") || name.starts_with('_') {
        let shown: String = name.chars().take(64).collect();
        return Err(format!("{shown:?} is not a valid name for a node's tool"));
    }
    Ok(())
}

/// Converts a node's tools for the registry. They must match what the node announced in `connect`.
pub(crate) fn tools(
    nodes: &Arc<Nodes>,
    node: &Arc<Node>,
    hello: &NodeHello,
    sent: &NodeTools,
) -> Result<Vec<Tool>, String> {
    let announced: BTreeSet<&str> = hello.tools.keys().map(String::as_str).collect();
    let named: BTreeSet<&str> = sent.tools.iter().map(|tool| tool.name.as_str()).collect();
    if named.len() != sent.tools.len() {
        return Err("two tools have the same name".into());
    }
    if let Some(odd) = announced.symmetric_difference(&named).next() {
        return Err(format!("the tools differ from those announced in connect: {odd}"));
    }
    sent.tools
        .iter()
        .map(|tool| {
            check_tool(tool)?;
            let capabilities = hello.tools[&tool.name].iter().filter_map(|id| Capability::from_id(id));
            Ok(remote_tool(nodes, node, tool, capabilities.collect()))
        })
        .collect()
}

fn check_tool(tool: &WireTool) -> Result<(), String> {
    check_name(&tool.name)?;
    if tool.description.is_empty() || tool.description.len() > MAX_DESCRIPTION_BYTES {
        return Err(format!("the description of {} must have 1 to {MAX_DESCRIPTION_BYTES} bytes", tool.name));
    }
    if tool.input_schema["type"] != "object" {
        return Err(format!("the input schema of {} must be of type object", tool.name));
    }
    check_schema(&tool.input_schema)
        .map_err(|err| format!("the input schema of {} is invalid: {err}", tool.name))
}

pub(crate) fn remote_tool(
    nodes: &Arc<Nodes>,
    node: &Arc<Node>,
    tool: &WireTool,
    capabilities: Vec<Capability>,
) -> Tool {
    let described = RemoteTool {
        name: format!("{}__{}", node.id(), tool.name),
        toolset: Toolset::Node,
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        output_schema: tool.output_schema.clone(),
        read_only: tool.annotations.read_only,
        destructive: tool.annotations.destructive,
        idempotent: tool.annotations.idempotent,
        open_world: tool.annotations.open_world,
        capabilities,
    };
    let (nodes, node, bare) = (nodes.clone(), node.clone(), tool.name.clone());
    let remote = Tool::remote(described, move |call, input| {
        let (nodes, node, bare) = (nodes.clone(), node.clone(), bare.clone());
        async move { nodes.call_on_node(&node, &call, &bare, input).await }
    });
    match tool.annotations.judges_connections {
        true => remote.offline_when(|call| call.principal.is_own_agent() && !call.escalated),
        false => remote,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> NodeHello {
        NodeHello {
            instance: "i".into(),
            tools: [("Read".to_owned(), vec!["filesystem.read".to_owned()])].into(),
            host_capabilities: vec!["filesystem.read".into()],
            ..NodeHello::default()
        }
    }

    #[test]
    fn invalid_introductions_are_rejected() {
        assert_eq!(check_hello(&hello()), Ok(()));
        let refused = |change: fn(&mut NodeHello)| {
            let mut hello = hello();
            change(&mut hello);
            check_hello(&hello).unwrap_err()
        };
        refused(|hello| hello.instance.clear());
        refused(|hello| hello.tools.clear());
        refused(|hello| hello.host_capabilities = vec!["root".into()]);
        refused(|hello| hello.host_capabilities.clear());
        refused(|hello| hello.tools = [("Read".to_owned(), Vec::new())].into());
        for name in ["", "a__b", "_x", "a:b", "a b", "ä", &"x".repeat(49)] {
            let tools = [(name.to_owned(), vec!["filesystem.read".to_owned()])].into();
            assert!(check_hello(&NodeHello { tools, ..hello() }).is_err(), "{name}");
        }
    }
}
