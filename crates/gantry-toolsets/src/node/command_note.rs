//! The note that `Bash` stores with a background command: its owner and the command, for use after
//! a restart.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `CommandNote` is returned with the end of the command, as the `note` of its report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandNote {
    /// The caller that started the command, such as `agent:ID`.
    pub principal: String,
    pub agent: String,
    /// The command; a long one is shortened and ends in an ellipsis.
    pub command: String,
    pub workdir: PathBuf,
    /// Whether the command has no network access.
    pub offline: bool,
}

/// The stored form. A path need not be UTF-8.
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
    /// Parses a note. Returns `None` if it is not a note of this form.
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
        // Serialising strings, bytes and a boolean cannot fail.
        serde_json::to_string(&written).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_round_trips_with_any_path() {
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
