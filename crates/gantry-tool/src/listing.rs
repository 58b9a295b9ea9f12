//! Tools as every surface lists them: by their names, and those of nodes also once by their bare names.

use serde_json::{Value, json};

use crate::attributes::Property;
use crate::effect::Effect;
use crate::registry::View;
use crate::shared::SharedTool;
use crate::tool::{Tool, Toolset};

impl Tool {
    /// Everything about a tool, as other programs read it.
    pub fn to_json(&self) -> Value {
        let capabilities: Vec<&str> =
            self.capability_ids().iter().map(|capability| capability.id()).collect();
        let effects: Vec<&str> = self.effect_list().into_iter().map(Effect::name).collect();
        let mut offered_to = Vec::new();
        for (audience, property) in
            [("clients", Property::OfferedToClients), ("agents", Property::OfferedToAgents)]
        {
            offered_to.extend(self.has_property(property).then_some(audience));
        }
        json!({
            "name": self.name(),
            "toolset": self.toolset().name(),
            "description": self.description(),
            "notes": self.notes(),
            "readOnly": self.is_read_only(),
            "destructive": self.is_destructive(),
            "idempotent": self.is_idempotent(),
            "openWorld": self.is_open_world(),
            "capabilities": capabilities,
            "effects": effects,
            "offeredTo": offered_to,
            "inputSchema": self.input_schema(),
            "outputSchema": self.output_schema(),
        })
    }
}

impl SharedTool {
    /// As one of its tools, under the bare name, with the `node` argument and the list of nodes.
    pub fn to_json(&self) -> Value {
        let mut value = self.tool.to_json();
        value["name"] = json!(self.name);
        value["nodes"] = json!(self.nodes);
        value["online"] = json!(self.online);
        value["inputSchema"] = self.input_schema();
        value
    }
}

impl View {
    /// All tools of a toolset, or of all; first those that are called with a `node` argument.
    pub fn list(&self, toolset: Option<Toolset>) -> Vec<Value> {
        let wanted = |set: Toolset| toolset.is_none_or(|toolset| toolset == set);
        let shared = self.shared().into_iter().filter(|_| wanted(Toolset::Node)).map(|tool| tool.to_json());
        let tools = self.entries().into_iter().filter(|tool| wanted(tool.toolset()));
        shared.chain(tools.map(|tool| tool.to_json())).collect()
    }

    /// One tool by any of its names.
    pub fn describe(&self, name: &str) -> Option<Value> {
        let shared = self.shared().into_iter().find(|tool| tool.name == name);
        shared.map(|tool| tool.to_json()).or_else(|| self.find(name).map(|tool| tool.to_json()))
    }
}
