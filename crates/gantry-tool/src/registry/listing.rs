//! The list of tools for surfaces: every tool by its name, and node tools also once by their bare name.

use gantry_protocol::ToolInfo;

use crate::registry::View;
use crate::registry::multi_node::SharedTool;
use crate::tool::attributes::Property;
use crate::tool::{Tool, Toolset};

impl Tool {
    /// The description of a tool for other programs.
    pub fn to_info(&self) -> ToolInfo {
        let offered_to = [("clients", Property::OfferedToClients), ("agents", Property::OfferedToAgents)];
        let offered_to = offered_to.into_iter().filter(|(_, property)| self.has_property(*property));
        ToolInfo {
            name: self.name().to_owned(),
            toolset: self.toolset().name().to_owned(),
            description: self.description().to_owned(),
            notes: self.notes().to_owned(),
            read_only: self.is_read_only(),
            destructive: self.is_destructive(),
            idempotent: self.is_idempotent(),
            open_world: self.is_open_world(),
            capabilities: self.capability_ids().iter().map(|capability| capability.id().to_owned()).collect(),
            effects: Some(self.effect_list().into_iter().map(|effect| effect.name().to_owned()).collect()),
            offered_to: Some(offered_to.map(|(audience, _)| audience.to_owned()).collect()),
            input_schema: self.input_schema().clone(),
            output_schema: self.output_schema().cloned(),
            nodes: None,
            online: None,
        }
    }
}

impl SharedTool {
    /// As [`Tool::to_info`], with the bare name, the `node` argument and the list of nodes.
    pub fn to_info(&self) -> ToolInfo {
        ToolInfo {
            name: self.name.clone(),
            nodes: Some(self.nodes.clone()),
            online: Some(self.online.clone()),
            input_schema: self.input_schema(),
            ..self.tool.to_info()
        }
    }
}

impl View {
    /// The tools of one toolset or of all. Tools with a `node` argument come first.
    pub fn list(&self, toolset: Option<Toolset>) -> Vec<ToolInfo> {
        let wanted = |set: Toolset| toolset.is_none_or(|toolset| toolset == set);
        let shared = self.shared().into_iter().filter(|_| wanted(Toolset::Node)).map(|tool| tool.to_info());
        let tools = self.entries().into_iter().filter(|tool| wanted(tool.toolset()));
        shared.chain(tools.map(|tool| tool.to_info())).collect()
    }

    /// One tool by any of its names.
    pub fn describe(&self, name: &str) -> Option<ToolInfo> {
        let shared = self.shared().into_iter().find(|tool| tool.name == name);
        shared.map(|tool| tool.to_info()).or_else(|| self.find(name).map(|tool| tool.to_info()))
    }
}
