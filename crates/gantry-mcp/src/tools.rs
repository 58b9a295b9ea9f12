//! Converts the offered tools to the protocol's list.

use std::sync::Arc;

use gantry_tool::{ESCALATION_FIELD, SharedTool, Tool, Toolset, published_input, published_name};
use rmcp::model::{JsonObject, Tool as McpTool, ToolAnnotations};

use crate::backend::{Names, OfferedTools};
use crate::output_shape;
use crate::titles::title;

/// Lists every tool once, in a stable order, with the name that clients call it by.
pub(crate) fn list(offered: &OfferedTools) -> Vec<McpTool> {
    names(offered).into_iter().map(|named| named.to_mcp()).collect()
}

/// Returns the internal name of a listed tool.
pub(crate) fn find(offered: &OfferedTools, name: &str) -> Option<String> {
    names(offered).into_iter().map(|named| named.name()).find(|own| published_name(own) == name)
}

enum Named {
    Shared(SharedTool),
    Own(Arc<Tool>),
}

/// Returns the tools that can be called now. Tools of offline nodes are left out.
fn names(offered: &OfferedTools) -> Vec<Named> {
    let own = |tool: &Arc<Tool>| {
        (offered.names == Names::Namespaced || tool.toolset() != Toolset::Node)
            && offered.tools.is_online(tool)
    };
    let here = |shared: SharedTool| {
        (!shared.online.is_empty())
            .then(|| Named::Shared(SharedTool { nodes: shared.online.clone(), ..shared }))
    };
    let shared = match offered.names {
        Names::Bare => offered.tools.shared(),
        Names::Namespaced => Vec::new(),
    };
    let entries = offered.tools.entries().into_iter().filter(own).map(Named::Own);
    shared.into_iter().filter_map(here).chain(entries).collect()
}

impl Named {
    fn name(&self) -> String {
        match self {
            Named::Shared(shared) => shared.name.clone(),
            Named::Own(tool) => tool.name().to_owned(),
        }
    }

    fn to_mcp(&self) -> McpTool {
        let (name, tool) = (self.name(), self.tool());
        let annotations = ToolAnnotations::new()
            .read_only(tool.is_read_only())
            .destructive(tool.is_destructive())
            .idempotent(tool.is_idempotent())
            .open_world(tool.is_open_world());
        let listed = McpTool::new(published_name(&name), tool.description().to_owned(), self.input_schema());
        let listed = listed.with_title(title(&name)).with_annotations(annotations);
        match self.output_schema() {
            Some(schema) => listed.with_raw_output_schema(Arc::new(schema)),
            None => listed,
        }
    }

    fn tool(&self) -> &Tool {
        match self {
            Named::Shared(shared) => &shared.tool,
            Named::Own(tool) => tool,
        }
    }

    /// Adds the `node` argument if there are several nodes.
    fn input_schema(&self) -> JsonObject {
        let schema = match self {
            Named::Shared(shared) if shared.nodes.len() > 1 => shared.input_schema(),
            Named::Shared(_) | Named::Own(_) => self.tool().input_schema().clone(),
        };
        let mut schema = published_input(schema);
        // Only Gantry's own agents have a sandbox to leave.
        let fields = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut);
        if let Some(fields) = fields.filter(|_| self.tool().toolset() == Toolset::Node) {
            fields.shift_remove(ESCALATION_FIELD);
        }
        schema
    }

    /// Returns `None` if an answer may have another shape: answers of several nodes, and images.
    fn output_schema(&self) -> Option<JsonObject> {
        if matches!(self, Named::Shared(shared) if shared.nodes.len() > 1) {
            return None;
        }
        output_shape::output(self.tool().output_schema()?.clone())
    }
}

#[cfg(test)]
mod tests {
    use gantry_tool::testing::echo_tool;
    use gantry_tool::{NodeState, Registry, ToolScope};
    use serde_json::{Value, json};

    use super::*;

    fn offered(nodes: &[&str], names: Names) -> OfferedTools {
        let registry = Registry::default();
        for node in nodes {
            let tools = vec![echo_tool("Read", Toolset::Node).on_node(node)];
            registry.set_node(node, NodeState { online: true, tags: Vec::new() }, tools);
        }
        registry.replace(echo_tool("tool::web_fetch", Toolset::Guarded).read_only().open_world());
        OfferedTools { tools: registry.view(&ToolScope::default()), names }
    }

    fn listed(nodes: &[&str], names: Names) -> Vec<Value> {
        list(&offered(nodes, names)).iter().map(|tool| serde_json::to_value(tool).unwrap()).collect()
    }

    #[test]
    fn node_tool_is_listed_once_and_has_a_node_argument_for_several_nodes() {
        let one = listed(&["a"], Names::Bare);
        assert_eq!(one[0]["name"], "Read");
        assert!(one[0]["inputSchema"]["properties"].get("node").is_none());
        assert_eq!(one[0]["outputSchema"]["type"], "object");
        let two = listed(&["a", "b"], Names::Bare);
        assert_eq!(two.len(), 2);
        assert!(two[0]["inputSchema"]["properties"]["node"].is_object());
        assert!(two[0].get("outputSchema").is_none(), "several nodes answer in another shape");
        let names: Vec<Value> =
            listed(&["a", "b"], Names::Namespaced).iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(names, ["a__Read", "b__Read", "tool__web_fetch"]);
    }

    #[test]
    fn tools_of_offline_nodes_are_not_listed() {
        let registry = Registry::default();
        for (node, online) in [("a", true), ("b", false)] {
            let tools = ["Read", node].map(|name| echo_tool(name, Toolset::Node).on_node(node));
            registry.set_node(node, NodeState { online, tags: Vec::new() }, tools.into());
        }
        let view = || registry.view(&ToolScope::default());
        let listed = list(&OfferedTools { tools: view(), names: Names::Bare });
        assert_eq!(listed.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["Read", "a"]);
        assert!(!listed[0].input_schema["properties"].to_string().contains("Where to run"));
        let listed = list(&OfferedTools { tools: view(), names: Names::Namespaced });
        assert_eq!(listed.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["a__Read", "a__a"]);
    }

    #[test]
    fn tools_have_titles_annotations_and_compact_schemas() {
        let fetch = listed(&[], Names::Bare).remove(0);
        assert_eq!(
            fetch,
            json!({
                "name": "tool__web_fetch",
                "title": "Web fetch",
                "description": "Says its input back.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"text": {"description": "What to say.", "type": "string"}},
                },
                "outputSchema": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}},
                    "required": ["text"],
                },
                "annotations":
                    {"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": true},
            })
        );
    }

    #[test]
    fn listed_names_are_resolved() {
        let offered = offered(&["a"], Names::Bare);
        assert_eq!(find(&offered, "tool__web_fetch").as_deref(), Some("tool::web_fetch"));
        assert_eq!(find(&offered, "nothing"), None);
    }
}
