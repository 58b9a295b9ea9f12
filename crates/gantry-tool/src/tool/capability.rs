//! `Capability` is what a node reports to a gateway that it can do.

use serde::{Deserialize, Serialize};

/// An ability of a node. The gateway uses it to decide which skills fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Capability {
    #[serde(rename = "filesystem.list")]
    FilesystemList,
    #[serde(rename = "filesystem.read")]
    FilesystemRead,
    #[serde(rename = "filesystem.write")]
    FilesystemWrite,
    #[serde(rename = "filesystem.edit")]
    FilesystemEdit,
    #[serde(rename = "text.search")]
    TextSearch,
    #[serde(rename = "shell.exec")]
    ShellExec,
}

impl Capability {
    pub const ALL: [Capability; 6] = [
        Capability::FilesystemList,
        Capability::FilesystemRead,
        Capability::FilesystemWrite,
        Capability::FilesystemEdit,
        Capability::TextSearch,
        Capability::ShellExec,
    ];

    pub fn from_id(id: &str) -> Option<Capability> {
        Capability::ALL.into_iter().find(|capability| capability.id() == id)
    }

    pub fn id(self) -> &'static str {
        match self {
            Capability::FilesystemList => "filesystem.list",
            Capability::FilesystemRead => "filesystem.read",
            Capability::FilesystemWrite => "filesystem.write",
            Capability::FilesystemEdit => "filesystem.edit",
            Capability::TextSearch => "text.search",
            Capability::ShellExec => "shell.exec",
        }
    }
}
