//! `ChildLimits` is the part of a session's status that only a child session has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who started a child session, and the limits it works within.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildLimits {
    /// Its name, for people.
    pub name: String,
    /// The session that started it, or the principal if no session did.
    pub parent: String,
    /// The first session of the family. The child's questions are asked there.
    pub root: String,
    /// The call of the parent that waits for the child.
    pub step: String,
    /// The id of its first message.
    pub message: String,
    /// 1 for a child of a session that is not a child itself.
    pub depth: u32,
    /// The child is stopped at this time.
    pub deadline: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The configured agent that it was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Agents whose rules and tool limits also apply to it.
    #[serde(default, rename = "alsoAs", skip_serializing_if = "Vec::is_empty")]
    pub policy_agents: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingMode>,
    /// `low`, `medium` or `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Replaces its agent's prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// It may call the tools that every entry allows.
    pub tools: Vec<ChildTools>,
    /// The tools that its model is offered, if they are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Vec<String>>,
    /// `supervised`, `guided` or `autonomous`.
    pub autonomy: String,
    pub workspace: String,
    /// The highest number of requests to its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// The longest answer of its model, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The account that is charged, below the account of its parent's run.
    pub account: String,
    /// Its own budget and those of the sessions above it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<ChildBudget>,
    /// It does not see its parent's memory.
    #[serde(default)]
    pub isolated_memory: bool,
    /// A session above it is autonomous, so calls that need an approval are denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// No call waits for it: the gateway started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundLimits>,
}

/// The limits of a session that the gateway started for a schedule, a task or a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackgroundLimits {
    /// Minutes until an unanswered question counts as a no.
    pub approval_minutes: u32,
    /// The session makes this one call and asks no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<BackgroundCall>,
}

/// A tool call without a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackgroundCall {
    pub tool: String,
    pub input: Value,
}

/// Names, globs, toolsets, effects and properties of tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChildTools {
    /// All tools when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// The highest amount that may be spent on an account and the accounts below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChildBudget {
    pub account: String,
    /// In billionths of a US dollar.
    pub limit: u64,
    /// Models without a known price count as free.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allows_unpriced: bool,
}

/// Whether a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingMode {
    Off,
    /// The model decides.
    Adaptive,
    /// At most this many tokens.
    Budget(u32),
}
