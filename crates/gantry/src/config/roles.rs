//! `[roles.NAME]` configures roles of `spawn_agent` in addition to the four built-in ones.

use gantry_agent::{Role, ToolLimits};
use gantry_tool::{RegistryError, ToolScope, Violation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agents::{EffortConfig, ThinkingConfig};
use super::names::no_tool;

/// `RoleConfig` names a model, a prompt and a subset of the tools. A built-in name replaces the built-in role.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct RoleConfig {
    /// A tier, or `provider/model`; `balanced` when left out.
    model: Option<String>,
    /// `off`, `adaptive`, or a number of tokens; the parent's setting when left out.
    thinking: Option<ThinkingConfig>,
    /// `low`, `medium` or `high`; the parent's setting when left out.
    effort: Option<EffortConfig>,
    /// The prompt, in place of the parent's.
    prompt: Option<String>,
    /// The parent's tools that it may use: names, globs and toolsets.
    allowed_tools: Option<Vec<String>>,
    /// The parent's tools that it may not use.
    denied_tools: Vec<String>,
}

impl RoleConfig {
    pub(crate) fn role(&self) -> Role {
        Role {
            model: self.model.clone(),
            thinking: self.thinking.as_ref().map(ThinkingConfig::thinking),
            effort: self.effort.map(EffortConfig::effort),
            prompt: self.prompt.clone(),
            tools: ToolLimits { allow: self.allowed_tools.clone(), deny: self.denied_tools.clone() },
        }
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns every selector, so that each can be checked.
    pub(crate) fn selectors(&self) -> Vec<String> {
        self.allowed_tools.iter().flatten().chain(&self.denied_tools).cloned().collect()
    }

    /// Returns the errors that the types cannot express.
    pub(crate) fn violations(&self, key: &str) -> Vec<Violation> {
        let scope: Result<ToolScope, RegistryError> =
            ToolScope::new(self.allowed_tools.as_deref(), &self.denied_tools);
        let unknown = self.selectors().into_iter().filter_map(|selector| no_tool(&selector));
        let messages = scope.err().map(|err| err.to_string()).into_iter().chain(unknown);
        messages.map(|message| Violation { path: key.to_owned(), message }).collect()
    }
}
