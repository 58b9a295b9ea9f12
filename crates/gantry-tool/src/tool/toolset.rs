//! `Toolset` names the group that a tool belongs to. It decides the shape of the tool's results.

use serde::{Deserialize, Serialize};

/// A group of tools from one design, with one result shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Toolset {
    Node,
    Native,
    Guarded,
    Basic,
    Assistant,
    /// Gantry's own tools, such as reading kept results.
    Gantry,
    /// Tools of MCP servers.
    Mcp,
}

impl Toolset {
    pub const ALL: [Toolset; 7] = [
        Toolset::Node,
        Toolset::Native,
        Toolset::Guarded,
        Toolset::Basic,
        Toolset::Assistant,
        Toolset::Gantry,
        Toolset::Mcp,
    ];

    pub fn from_name(name: &str) -> Option<Toolset> {
        Toolset::ALL.into_iter().find(|toolset| toolset.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Toolset::Node => "node",
            Toolset::Native => "native",
            Toolset::Guarded => "guarded",
            Toolset::Basic => "basic",
            Toolset::Assistant => "assistant",
            Toolset::Gantry => "gantry",
            Toolset::Mcp => "mcp",
        }
    }

    /// Whether fractions are rounded instead of rejected, because the design calls counts and times numbers.
    pub(super) fn has_fractions(self) -> bool {
        matches!(self, Toolset::Node | Toolset::Native | Toolset::Guarded | Toolset::Assistant)
    }
}
