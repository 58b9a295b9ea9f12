//! `Effect` is what a tool can do to the world. Roles and lists of tools select by effects. A tool with unknown effects
//! counts as having all of them, so such a list leaves it out until its effects are declared.

use crate::tool::{Capability, Tool, Toolset};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    RunsCommands,
    WritesFiles,
    /// The tool reaches beyond the machine that it runs on.
    ReachesNetwork,
    /// The tool sends messages to people or to other agents.
    SendsMessages,
    StartsAgents,
}

impl Effect {
    pub const ALL: [Effect; 5] = [
        Effect::RunsCommands,
        Effect::WritesFiles,
        Effect::ReachesNetwork,
        Effect::SendsMessages,
        Effect::StartsAgents,
    ];

    pub(crate) const PREFIX: &str = "effect:";

    pub fn name(self) -> &'static str {
        match self {
            Effect::RunsCommands => "runs_commands",
            Effect::WritesFiles => "writes_files",
            Effect::ReachesNetwork => "reaches_network",
            Effect::SendsMessages => "sends_messages",
            Effect::StartsAgents => "starts_agents",
        }
    }

    /// Accepts hyphens too: earlier versions wrote the names with them.
    pub fn from_name(name: &str) -> Option<Effect> {
        let name = name.replace('-', "_");
        Effect::ALL.into_iter().find(|effect| effect.name() == name)
    }

    /// The effect as an entry of a list of tools.
    pub fn selector(self) -> String {
        format!("{}{}", Effect::PREFIX, self.name())
    }
}

impl Tool {
    /// Whether the tool may have this effect.
    pub fn has_effect(&self, effect: Effect) -> bool {
        if effect == Effect::ReachesNetwork && self.is_open_world() {
            return true;
        }
        if let Some(declared) = self.declared_effects().filter(|_| self.is_remote() || !self.is_read_only()) {
            return declared.contains(&effect);
        }
        if self.is_remote() {
            // The operator decides whether to trust the declarations of a server. Those of a node are never trusted.
            return self.toolset() != Toolset::Mcp || !self.is_read_only();
        }
        if self.is_read_only() {
            return false;
        }
        let capabilities = self.capability_ids();
        let has = |capability| capabilities.contains(&capability);
        match effect {
            _ if capabilities.is_empty() => true,
            Effect::RunsCommands => has(Capability::ShellExec),
            Effect::WritesFiles => {
                has(Capability::ShellExec)
                    || has(Capability::FilesystemWrite)
                    || has(Capability::FilesystemEdit)
            }
            Effect::ReachesNetwork | Effect::SendsMessages | Effect::StartsAgents => false,
        }
    }

    pub fn effect_list(&self) -> Vec<Effect> {
        Effect::ALL.into_iter().filter(|effect| self.has_effect(*effect)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::echo_tool;
    use crate::tool::{RemoteTool, Reply};

    fn effects(tool: &Tool) -> String {
        tool.effect_list().into_iter().map(Effect::name).collect::<Vec<_>>().join(" ")
    }

    fn remote(name: &str, toolset: Toolset, read_only: bool) -> Tool {
        let remote = RemoteTool {
            name: name.to_owned(),
            toolset,
            description: "x".into(),
            input_schema: json!({"type": "object"}),
            output_schema: None,
            read_only,
            destructive: !read_only,
            idempotent: false,
            open_world: false,
            capabilities: vec![Capability::FilesystemRead],
        };
        Tool::remote(remote, |_, input| async move { Ok(Reply::Json(input)) })
    }

    #[test]
    fn unknown_effects_count_as_every_effect() {
        let all = "runs_commands writes_files reaches_network sends_messages starts_agents";
        let own = |name: &str| echo_tool(name, Toolset::Basic);
        assert_eq!(effects(&own("new")), all);
        assert_eq!(effects(&own("read").read_only()), "");
        assert_eq!(
            effects(&own("exec").capabilities(&[Capability::ShellExec])),
            "runs_commands writes_files"
        );
        assert_eq!(effects(&own("write").capabilities(&[Capability::FilesystemEdit])), "writes_files");
        assert_eq!(effects(&own("send").effects(&[Effect::SendsMessages])), "sends_messages");
        assert_eq!(effects(&own("store").effects(&[])), "");
        assert_eq!(effects(&own("fetch").read_only().open_world()), "reaches_network");
        let network = own("call").effects(&[Effect::ReachesNetwork]);
        assert!(network.is_open_world());
        assert_eq!(effects(&network), "reaches_network");
        // The declarations of a node and of a server.
        assert_eq!(effects(&remote("box__Deploy", Toolset::Node, true)), all);
        assert_eq!(effects(&remote("box__Read", Toolset::Node, true)), all);
        assert_eq!(effects(&remote("fs__write_file", Toolset::Mcp, false)), all);
        assert_eq!(
            effects(&remote("fs__read_file", Toolset::Mcp, true)),
            "",
            "the operator trusts its server"
        );
    }
}
