//! What `Bash` leaves with a command in the background: enough to know, after a restart, whose it is and what it was.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Comes back with the end of the command, as the `note` of its report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandNote {
    /// Who started it, as `agent:ID` and the like.
    pub principal: String,
    pub agent: String,
    /// As given; the beginning of a long one, which then ends in an ellipsis.
    pub command: String,
    pub workdir: PathBuf,
    /// Whether it ran without network.
    pub offline: bool,
}

/// As it is written: a path need not be text.
#[derive(Serialize, Deserialize)]
struct Written {
    principal: String,
    agent: String,
    command: String,
    workdir: PathText,
    offline: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PathText {
    Text(String),
    Bytes(Vec<u8>),
}

impl CommandNote {
    /// `None` when it is no note of ours.
    pub fn parse(note: &str) -> Option<CommandNote> {
        let Written { principal, agent, command, workdir, offline } = serde_json::from_str(note).ok()?;
        let workdir = match workdir {
            PathText::Text(text) => PathBuf::from(text),
            PathText::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        };
        Some(CommandNote { principal, agent, command, workdir, offline })
    }

    pub(super) fn to_text(&self) -> String {
        let workdir = match self.workdir.to_str() {
            Some(text) => PathText::Text(text.to_owned()),
            None => PathText::Bytes(self.workdir.as_os_str().as_bytes().to_vec()),
        };
        let written = Written {
            principal: self.principal.clone(),
            agent: self.agent.clone(),
            command: self.command.clone(),
            workdir,
            offline: self.offline,
        };
        // Strings, bytes and a truth value cannot fail to be written.
        serde_json::to_string(&written).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_as_it_was_whatever_the_path() {
        for path in [&b"/plain"[..], b"/not \xff text", "/h\u{e9}".as_bytes()] {
            let note = CommandNote {
                principal: "agent:a".into(),
                agent: "a".into(),
                command: "echo \"\u{1F600}\"\n".into(),
                workdir: PathBuf::from(OsString::from_vec(path.to_vec())),
                offline: true,
            };
            assert_eq!(CommandNote::parse(&note.to_text()), Some(note));
        }
        for other in ["", "{}", "null", "{\"principal\":1}"] {
            assert_eq!(CommandNote::parse(other), None);
        }
    }
}
