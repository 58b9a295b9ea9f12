//! The list of tools as the protocol has it.

use std::sync::Arc;

use gantry_tool::{SharedTool, Tool, Toolset, published_input, published_name};
use rmcp::model::{JsonObject, Tool as McpTool, ToolAnnotations};

use crate::backend::{Names, Shown};
use crate::naming::title;
use crate::output_shape;

/// Every tool of a view once, in a stable order, with the name it is called by.
pub(crate) fn list(shown: &Shown) -> Vec<McpTool> {
    names(shown).into_iter().map(|named| named.to_mcp()).collect()
}

/// The own name of a tool that is shown under another.
pub(crate) fn find(shown: &Shown, name: &str) -> Option<String> {
    names(shown).into_iter().map(|named| named.name()).find(|own| published_name(own) == name)
}

enum Named {
    Shared(SharedTool),
    Own(Arc<Tool>),
}

/// Only what can be called now: a machine that is away takes its tools with it.
fn names(shown: &Shown) -> Vec<Named> {
    let own = |tool: &Arc<Tool>| {
        (shown.names == Names::Namespaced || tool.toolset() != Toolset::Node) && shown.tools.is_online(tool)
    };
    let here = |shared: SharedTool| {
        (!shared.online.is_empty())
            .then(|| Named::Shared(SharedTool { nodes: shared.online.clone(), ..shared }))
    };
    let shared = match shown.names {
        Names::Bare => shown.tools.shared(),
        Names::Namespaced => Vec::new(),
    };
    let entries = shown.tools.entries().into_iter().filter(own).map(Named::Own);
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

    /// With the `node` argument only while there is a choice.
    fn input_schema(&self) -> JsonObject {
        let schema = match self {
            Named::Shared(shared) if shared.nodes.len() > 1 => shared.input_schema(),
            Named::Shared(_) | Named::Own(_) => self.tool().input_schema().clone(),
        };
        published_input(schema)
    }

    /// Absent where an answer may have another shape: several nodes' answers, and pictures.
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

    fn shown(nodes: &[&str], names: Names) -> Shown {
        let registry = Registry::default();
        for node in nodes {
            let tools = vec![echo_tool("Read", Toolset::Node).on_node(node)];
            registry.set_node(node, NodeState { online: true, tags: Vec::new() }, tools);
        }
        registry.replace(echo_tool("tool::web_fetch", Toolset::Guarded).read_only().open_world());
        Shown { tools: registry.view(&ToolScope::default()), names }
    }

    fn listed(nodes: &[&str], names: Names) -> Vec<Value> {
        list(&shown(nodes, names)).iter().map(|tool| serde_json::to_value(tool).unwrap()).collect()
    }

    #[test]
    fn a_node_tool_is_listed_once_and_asks_where_only_when_there_is_a_choice() {
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
    fn a_machine_that_is_away_takes_its_tools_with_it() {
        let registry = Registry::default();
        for (node, online) in [("a", true), ("b", false)] {
            let tools = ["Read", node].map(|name| echo_tool(name, Toolset::Node).on_node(node));
            registry.set_node(node, NodeState { online, tags: Vec::new() }, tools.into());
        }
        let view = || registry.view(&ToolScope::default());
        let listed = list(&Shown { tools: view(), names: Names::Bare });
        assert_eq!(listed.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["Read", "a"]);
        assert!(!listed[0].input_schema["properties"].to_string().contains("Where to run"));
        let listed = list(&Shown { tools: view(), names: Names::Namespaced });
        assert_eq!(listed.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["a__Read", "a__a"]);
    }

    #[test]
    fn annotations_and_titles_are_told_and_schemas_are_lean() {
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
    fn hashed_names_are_found_again() {
        let shown = shown(&["a"], Names::Bare);
        assert_eq!(find(&shown, "tool__web_fetch").as_deref(), Some("tool::web_fetch"));
        assert_eq!(find(&shown, "nothing"), None);
    }
}
