//! What a tool can do to the world, for whoever is to have only some of it. What is not known counts as everything, so that a
//! new tool, and a tool from elsewhere, is left out until somebody says what it does.

use crate::tool::{Capability, Tool, Toolset};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    RunsCommands,
    WritesFiles,
    /// To people, or to other agents, which then act.
    SendsMessages,
    StartsAgents,
}

/// The node tools of the protocol that only read, and those that write files. What another machine says of its other tools is
/// its own word.
const READING: [&str; 3] = ["Read", "Glob", "Grep"];
const WRITING: [&str; 2] = ["Write", "Edit"];

impl Effect {
    const ALL: [Effect; 4] =
        [Effect::RunsCommands, Effect::WritesFiles, Effect::SendsMessages, Effect::StartsAgents];

    /// As lists of tools spell it, after `effect:`.
    pub fn name(self) -> &'static str {
        match self {
            Effect::RunsCommands => "runs-commands",
            Effect::WritesFiles => "writes-files",
            Effect::SendsMessages => "sends-messages",
            Effect::StartsAgents => "starts-agents",
        }
    }

    pub fn from_name(name: &str) -> Option<Effect> {
        Effect::ALL.into_iter().find(|effect| effect.name() == name)
    }
}

impl Tool {
    /// Whether the tool may have this effect.
    pub fn has_effect(&self, effect: Effect) -> bool {
        if self.is_remote() {
            return self.may_have_remotely(effect);
        }
        if self.is_read_only() {
            return false;
        }
        match (self.declared_effects(), self.capability_ids()) {
            (Some(declared), _) => declared.contains(&effect),
            (None, []) => true,
            (None, capabilities) => {
                let has = |capability| capabilities.contains(&capability);
                match effect {
                    Effect::RunsCommands => has(Capability::ShellExec),
                    Effect::WritesFiles => {
                        has(Capability::ShellExec)
                            || has(Capability::FilesystemWrite)
                            || has(Capability::FilesystemEdit)
                    }
                    Effect::SendsMessages | Effect::StartsAgents => false,
                }
            }
        }
    }

    fn may_have_remotely(&self, effect: Effect) -> bool {
        let bare = self.name().split_once("__").map_or(self.name(), |(_, bare)| bare);
        match self.toolset() {
            // Its server is believed only where the operator trusts it.
            Toolset::Mcp => !self.is_read_only(),
            Toolset::Node if READING.contains(&bare) => !self.is_read_only(),
            Toolset::Node if WRITING.contains(&bare) => effect == Effect::WritesFiles,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::echo_tool;
    use crate::tool::{RemoteTool, Reply};

    fn effects(tool: &Tool) -> String {
        let has = Effect::ALL.into_iter().filter(|effect| tool.has_effect(*effect));
        has.map(Effect::name).collect::<Vec<_>>().join(" ")
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
    fn what_nobody_knows_counts_as_everything() {
        let all = "runs-commands writes-files sends-messages starts-agents";
        let own = |name: &str| echo_tool(name, Toolset::Basic);
        assert_eq!(effects(&own("new")), all);
        assert_eq!(effects(&own("read").read_only()), "");
        assert_eq!(
            effects(&own("exec").capabilities(&[Capability::ShellExec])),
            "runs-commands writes-files"
        );
        assert_eq!(effects(&own("write").capabilities(&[Capability::FilesystemEdit])), "writes-files");
        assert_eq!(effects(&own("send").effects(&[Effect::SendsMessages])), "sends-messages");
        assert_eq!(effects(&own("store").effects(&[])), "");
        // A machine's and a server's own word.
        assert_eq!(effects(&remote("box__Deploy", Toolset::Node, true)), all);
        assert_eq!(effects(&remote("box__Read", Toolset::Node, true)), "");
        assert_eq!(effects(&remote("box__Read", Toolset::Node, false)), all);
        assert_eq!(effects(&remote("box__Write", Toolset::Node, false)), "writes-files");
        assert_eq!(effects(&remote("fs__write_file", Toolset::Mcp, false)), all);
        assert_eq!(
            effects(&remote("fs__read_file", Toolset::Mcp, true)),
            "",
            "the operator trusts its server"
        );
    }
}
