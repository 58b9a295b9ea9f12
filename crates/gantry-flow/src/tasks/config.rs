//! The `[tasks]` section of `gantry.toml`.

use gantry_domain::ConfigSection;
use gantry_tool::Violation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct TasksConfig {
    /// Scopes of tasks in addition to `global`, `user:owner` and `agent:NAME`, such as `project:website`.
    pub scopes: Vec<String>,
}

/// Whether a text has the form `type:id`.
pub(crate) fn is_scope(text: &str) -> bool {
    let is_name = |name: &str| {
        name.len() <= 128
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    text.split_once(':').is_some_and(|(kind, id)| is_name(kind) && is_name(id))
}

impl ConfigSection for TasksConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        let wrong = self.scopes.iter().filter(|scope| !is_scope(scope));
        wrong
            .map(|scope| Violation {
                path: format!("{at}.scopes"),
                message: format!("{scope:?} must have the form type:id, such as \"project:website\""),
            })
            .collect()
    }
}
