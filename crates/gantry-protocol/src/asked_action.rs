//! [`AskedAction`] describes what a call that needs approval would do. Every surface shows the same description.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a call would do. Secrets are masked, and long texts are shortened.
///
/// `notShown` counts the characters that a shortened text does not show. A yes allows them too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum AskedAction {
    /// A command runs.
    Command {
        command: String,
        /// The machine's name; `local` is the gateway's own machine.
        machine: String,
        /// The working directory, if it is not the workspace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        directory: Option<String>,
        /// The agent's reason why the command has to run outside the sandbox.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        escalation: Option<String>,
        /// The command runs in the sandbox.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        sandboxed: bool,
        #[serde(default, skip_serializing_if = "is_zero")]
        not_shown: u64,
    },
    /// Files are created, changed or deleted.
    FileChange {
        machine: String,
        /// The paths that change, with links followed where the machine is known.
        paths: Vec<String>,
        /// What happens to them.
        change: ChangeKind,
        /// The unified diff of a change, or the content of a new file.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        #[serde(default, skip_serializing_if = "is_zero")]
        not_shown: u64,
    },
    FileRead {
        machine: String,
        path: String,
    },
    /// A request to a web server.
    WebRequest {
        method: String,
        url: String,
        /// The host of `url`, with its port if that is not the usual one.
        host: String,
        /// The body or the search query that is sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent: Option<String>,
        #[serde(default, skip_serializing_if = "is_zero")]
        not_shown: u64,
    },
    /// A running command opens a connection.
    Connection {
        host: String,
        port: u16,
        /// The command that opens it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// A message is sent.
    Message {
        to: String,
        text: String,
        #[serde(default, skip_serializing_if = "is_zero")]
        not_shown: u64,
    },
    /// Something changes at a service, in the owner's name.
    ServiceChange {
        /// The service, such as `Google Calendar`.
        service: String,
        /// What changes, as a command: `delete the event "Standup"`.
        what: String,
        /// The details: fields, recipients, content.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        #[serde(default, skip_serializing_if = "is_zero")]
        not_shown: u64,
    },
    /// An agent plans work that runs later without a person.
    Schedule {
        /// What runs, such as the job's name and agent.
        what: String,
        /// When it runs, in words.
        when: String,
        /// The task that the agent gets.
        text: String,
        #[serde(default, skip_serializing_if = "is_zero")]
        not_shown: u64,
    },
    /// A call of a tool that does not describe its calls.
    Other {
        tool: String,
        input: Value,
        #[serde(default, skip_serializing_if = "is_zero")]
        not_shown: u64,
    },
    /// A kind of a newer version.
    #[serde(other)]
    Unknown,
}

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The file is new; the text is its content.
    Create,
    /// The text is a unified diff.
    Change,
    /// The text replaces the whole file, and the present content is unknown here.
    Replace,
    Delete,
    /// A copy of a file or a directory; the text names the source.
    Copy,
}

impl AskedAction {
    /// The number of characters that the description does not show.
    pub fn not_shown(&self) -> u64 {
        match self {
            AskedAction::Command { not_shown, .. }
            | AskedAction::FileChange { not_shown, .. }
            | AskedAction::WebRequest { not_shown, .. }
            | AskedAction::Message { not_shown, .. }
            | AskedAction::ServiceChange { not_shown, .. }
            | AskedAction::Schedule { not_shown, .. }
            | AskedAction::Other { not_shown, .. } => *not_shown,
            AskedAction::FileRead { .. } | AskedAction::Connection { .. } | AskedAction::Unknown => 0,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn actions_are_distinguished_by_kind() {
        let command = AskedAction::Command {
            command: "cargo test".into(),
            machine: "laptop".into(),
            directory: None,
            escalation: None,
            sandboxed: true,
            not_shown: 0,
        };
        let text =
            json!({"kind": "command", "command": "cargo test", "machine": "laptop", "sandboxed": true});
        assert_eq!(serde_json::to_value(&command).unwrap(), text);
        assert_eq!(serde_json::from_value::<AskedAction>(text).unwrap(), command);
        let newer = json!({"kind": "of_a_later_version", "x": 1});
        assert_eq!(serde_json::from_value::<AskedAction>(newer).unwrap(), AskedAction::Unknown);
    }
}
