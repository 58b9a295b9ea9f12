//! `[roles.NAME]`: what children of `spawn_agent` can be, beside the four roles that are always there.

use gantry_agent::{Role, ToolLimits};
use gantry_tool::{RegistryError, ToolScope, Violation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agents::{EffortConfig, ThinkingConfig};
use super::names::no_tool;

/// A model, a prompt and a part of the tools under one name. One of the built-in names takes the built-in's place.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct RoleConfig {
    /// A tier, or `provider/model`; `balanced` when left out.
    model: Option<String>,
    /// `off`, `adaptive`, or a number of tokens; as its parent when left out.
    thinking: Option<ThinkingConfig>,
    /// `low`, `medium` or `high`; as its parent when left out.
    effort: Option<EffortConfig>,
    /// In place of the parent's own.
    prompt: Option<String>,
    /// Of the parent's tools, the only ones it has: names, globs and toolsets.
    allowed_tools: Option<Vec<String>>,
    /// Of the parent's tools, those it has not.
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

    /// Every selector of its lists, for checks that each one means something.
    pub(crate) fn selectors(&self) -> Vec<String> {
        self.allowed_tools.iter().flatten().chain(&self.denied_tools).cloned().collect()
    }

    /// What the types cannot say.
    pub(crate) fn violations(&self, key: &str) -> Vec<Violation> {
        let scope: Result<ToolScope, RegistryError> =
            ToolScope::new(self.allowed_tools.as_deref(), &self.denied_tools);
        let unknown = self.selectors().into_iter().filter_map(|selector| no_tool(&selector));
        let messages = scope.err().map(|err| err.to_string()).into_iter().chain(unknown);
        messages.map(|message| Violation { path: key.to_owned(), message }).collect()
    }
}
