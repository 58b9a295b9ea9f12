//! `[agents.NAME]` configures agents, and `[session]` their conversations.

use std::path::PathBuf;
use std::time::Duration;

use gantry_agent::{
    ALWAYS_HOURS, APPROVAL_MINUTES, DmScope, FlowRule, MAX_ALWAYS_HOURS, MAX_REQUESTS, ResetPolicy,
};
use gantry_domain::ConfigSection;
use gantry_model::{Effort, Thinking};
use gantry_protocol::check_node_id;
use gantry_tool::{Autonomy, Property, RegistryError, ToolScope, Toolset, Violation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::IsolationConfig;
use super::names::no_tool;

/// `AgentConfig` is one configured agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct AgentConfig {
    /// The model: `provider/model`, or a tier; `balanced` when left out.
    model: Option<String>,
    /// Whether the model thinks before it answers: `off`, `adaptive`, or a number of tokens.
    thinking: ThinkingConfig,
    /// How hard the model tries: `low`, `medium` or `high`.
    effort: Option<EffortConfig>,
    /// Lets the model search the web by itself, if its provider supports that (Anthropic); on by default. Such a search cannot
    /// be approved, so it is offered only while the session holds no private data.
    native_web_search: On,
    /// Prompt text before the files of the agent's workspace.
    prompt: Option<String>,
    /// `"all"`, or a list of names, globs (`local__*`), toolsets (`node`) and effects (`effect:writes_files`).
    tools: ToolsConfig,
    /// Names, globs, toolsets and effects that the agent never gets.
    deny_tools: Vec<String>,
    pub(crate) autonomy: Autonomy,
    /// Directory that relative paths start in; the current directory when left out.
    pub(crate) workspace: Option<PathBuf>,
    /// The node that a bare tool name (`Bash`) means; when left out `local`, or the only node that can answer.
    pub(crate) node: Option<String>,
    /// Replaces the common `[isolation]`.
    pub(crate) isolation: Option<IsolationConfig>,
    /// When the agent's conversations start over automatically.
    reset: ResetConfig,
    /// What happens to calls that reach outside once a session holds private data and untrusted content: `ask` a person
    /// (autonomous agents are denied), or `off`.
    flow: FlowConfig,
    /// Other agents that it may write to with `tool::agent_send` and `gsv__SessionSend`; all when left out.
    pub(super) messages: Option<Vec<String>>,
    /// Maximum model requests in one run.
    max_requests: Option<u32>,
    /// Minutes after which an unanswered question counts as no.
    approval_minutes: Option<u32>,
    /// Hours that an "always" approval is valid, unless the answer names another time; 24 when left out.
    always_hours: Option<u32>,
}

/// A setting that is on by default.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct On(bool);

impl Default for On {
    fn default() -> Self {
        On(true)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum ThinkingConfig {
    Word(ThinkingWord),
    Tokens(u32),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ThinkingWord {
    Off,
    Adaptive,
}

impl ThinkingConfig {
    pub(super) fn thinking(&self) -> Thinking {
        match self {
            ThinkingConfig::Word(ThinkingWord::Off) => Thinking::Off,
            ThinkingConfig::Word(ThinkingWord::Adaptive) => Thinking::Adaptive,
            ThinkingConfig::Tokens(tokens) => Thinking::Budget(*tokens),
        }
    }
}

impl Default for ThinkingConfig {
    fn default() -> Self {
        ThinkingConfig::Word(ThinkingWord::Off)
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum EffortConfig {
    Low,
    Medium,
    High,
}

impl EffortConfig {
    pub(super) fn effort(self) -> Effort {
        match self {
            EffortConfig::Low => Effort::Low,
            EffortConfig::Medium => Effort::Medium,
            EffortConfig::High => Effort::High,
        }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct ResetConfig {
    /// `manual`, `daily` or `idle`.
    mode: ResetMode,
    /// For `daily`: the hour of the user's clock; 4 when left out.
    at_hour: Option<u8>,
    /// For `idle`: 60 when left out.
    idle_minutes: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ResetMode {
    #[default]
    Manual,
    Daily,
    Idle,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum FlowConfig {
    #[default]
    Ask,
    Off,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum ToolsConfig {
    All(AllTools),
    Listed(Vec<String>),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AllTools {
    All,
}

impl Default for ToolsConfig {
    fn default() -> Self {
        ToolsConfig::All(AllTools::All)
    }
}

impl AgentConfig {
    pub(crate) fn scope(&self) -> Result<ToolScope, RegistryError> {
        match &self.tools {
            ToolsConfig::All(AllTools::All) => ToolScope::new(None, &self.deny_tools),
            ToolsConfig::Listed(names) => ToolScope::new(Some(names), &self.deny_tools),
        }
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns every selector, so that each can be checked.
    pub(crate) fn selectors(&self) -> Vec<String> {
        let listed = match &self.tools {
            ToolsConfig::All(AllTools::All) => Vec::new(),
            ToolsConfig::Listed(names) => names.clone(),
        };
        listed.into_iter().chain(self.deny_tools.clone()).collect()
    }

    /// Builds the agent's settings. `workspace` applies unless the agent has its own.
    pub(crate) fn settings(&self, workspace: PathBuf) -> Result<gantry_agent::Agent, RegistryError> {
        let shown = match &self.tools {
            // The default is one tool of each kind, and the tools of connected servers.
            ToolsConfig::All(AllTools::All) => {
                let offered = [Property::OfferedToAgents.selector(), Toolset::Mcp.name().to_owned()];
                ToolScope::new(Some(&offered), &[])?
            }
            ToolsConfig::Listed(_) => ToolScope::default(),
        };
        Ok(gantry_agent::Agent {
            model: self.model.clone(),
            thinking: self.thinking.thinking(),
            effort: self.effort.map(EffortConfig::effort),
            native_web_search: self.native_web_search.0,
            autonomy: self.autonomy,
            scope: self.scope()?,
            shown,
            workspace: self.workspace.clone().unwrap_or(workspace),
            node: self.node.clone(),
            prompt: self.prompt.clone(),
            reset: match self.reset.mode {
                ResetMode::Manual => ResetPolicy::Manual,
                ResetMode::Daily => {
                    ResetPolicy::Daily { at_hour: i8::try_from(self.reset.at_hour.unwrap_or(4)).unwrap_or(4) }
                }
                ResetMode::Idle => ResetPolicy::Idle { minutes: self.reset.idle_minutes.unwrap_or(60) },
            },
            flow: match self.flow {
                FlowConfig::Ask => FlowRule::Ask,
                FlowConfig::Off => FlowRule::Off,
            },
            messages: self.messages.clone(),
            max_requests: self.max_requests.unwrap_or(MAX_REQUESTS),
            approval_minutes: self.approval_minutes.unwrap_or(APPROVAL_MINUTES),
            always_hours: self.always_hours.unwrap_or(ALWAYS_HOURS),
            ..gantry_agent::Agent::default()
        })
    }

    /// Returns the errors that the types cannot express.
    pub(crate) fn violations(&self, key: &str) -> Vec<Violation> {
        let violation = |key: String, message: String| Violation { path: key, message };
        let mut violations = Vec::new();
        violations.extend(self.scope().err().map(|err| violation(key.to_owned(), err.to_string())));
        let unknown = self.selectors().into_iter().filter_map(|selector| no_tool(&selector));
        violations.extend(unknown.map(|message| violation(key.to_owned(), message)));
        if let Some(Err(err)) = self.node.as_deref().map(check_node_id) {
            violations.push(violation(format!("{key}.node"), err.to_string()));
        }
        if self.max_requests == Some(0) {
            violations.push(violation(format!("{key}.maxRequests"), "must be at least 1".into()));
        }
        if self.reset.at_hour.is_some_and(|hour| hour > 23) {
            violations.push(violation(format!("{key}.reset.atHour"), "must be an hour from 0 to 23".into()));
        }
        if self.always_hours.is_some_and(|hours| !(1..=MAX_ALWAYS_HOURS).contains(&hours)) {
            let message = format!("must be a number of hours from 1 to {MAX_ALWAYS_HOURS}");
            violations.push(violation(format!("{key}.alwaysHours"), message));
        }
        let isolation = self.isolation.as_ref();
        let own = format!("{key}.isolation");
        violations.extend(isolation.into_iter().flat_map(|isolation| isolation.violations(&own)));
        violations
    }
}

/// `SessionConfig` configures conversations.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct SessionConfig {
    /// Which direct messages share a conversation: `main` (all), `per-peer`, `per-channel-peer` or
    /// `per-account-channel-peer`.
    dm_scope: DmScopeConfig,
    /// Seconds after which a child of an agent is stopped; 600 when left out.
    child_seconds: u64,
}

impl Default for SessionConfig {
    fn default() -> Self {
        SessionConfig { dm_scope: DmScopeConfig::default(), child_seconds: CHILD_SECONDS }
    }
}

const CHILD_SECONDS: u64 = 600;

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum DmScopeConfig {
    #[default]
    Main,
    PerPeer,
    PerChannelPeer,
    PerAccountChannelPeer,
}

impl SessionConfig {
    pub(crate) fn child_limit(&self) -> Duration {
        Duration::from_secs(self.child_seconds)
    }

    pub(crate) fn dm_scope(&self) -> DmScope {
        match self.dm_scope {
            DmScopeConfig::Main => DmScope::Main,
            DmScopeConfig::PerPeer => DmScope::PerPeer,
            DmScopeConfig::PerChannelPeer => DmScope::PerChannelPeer,
            DmScopeConfig::PerAccountChannelPeer => DmScope::PerAccountChannelPeer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_own_search_is_on_unless_it_is_turned_off() {
        let searches = |text: &str| {
            let agent: AgentConfig = toml::from_str(text).unwrap();
            agent.settings("/".into()).unwrap().native_web_search
        };
        assert!(AgentConfig::default().settings("/".into()).unwrap().native_web_search);
        assert!(searches("") && searches("autonomy = \"guided\"") && searches("nativeWebSearch = true"));
        assert!(!searches("nativeWebSearch = false"));
    }
}
