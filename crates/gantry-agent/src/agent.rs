//! [`Agent`] is the configuration of an agent that its sessions use.

use std::path::PathBuf;

use gantry_model::{Effort, Thinking};
use gantry_tool::{Autonomy, ToolScope};

use crate::lasting_approval::ALWAYS_HOURS;
use crate::reset::ResetPolicy;

#[derive(Debug, Clone)]
pub struct Agent {
    /// The default model when `None`.
    pub model: Option<String>,
    pub thinking: Thinking,
    pub effort: Option<Effort>,
    /// The model may use the provider's own web search while the session holds no private data.
    pub native_web_search: bool,
    pub autonomy: Autonomy,
    /// The tools it may call.
    pub scope: ToolScope,
    /// The tools among them that its model is offered.
    pub shown: ToolScope,
    pub workspace: PathBuf,
    /// The node for calls by bare tool names.
    pub node: Option<String>,
    /// The prompt, before the agent's files.
    pub prompt: Option<String>,
    pub reset: ResetPolicy,
    pub flow: FlowRule,
    /// The highest number of requests in one run.
    pub max_requests: u32,
    /// Minutes until an unanswered question counts as a no.
    pub approval_minutes: u32,
    /// The duration of an "always" in hours, unless the answer sets another.
    pub always_hours: u32,
    /// The other agents that it may write to. All when `None`.
    pub messages: Option<Vec<String>>,
    /// Agents whose rules also apply to it.
    pub policy_agents: Vec<String>,
    /// The longest answer of its model, in tokens. The model's own limit when `None`.
    pub max_tokens: Option<u32>,
}

/// The rule for calls that reach the network while a session holds both labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FlowRule {
    /// A person has to approve the call. Without one it is denied.
    #[default]
    Ask,
    Off,
}

pub const MAX_REQUESTS: u32 = 500;
pub const APPROVAL_MINUTES: u32 = 60;

impl Default for Agent {
    fn default() -> Self {
        Agent {
            model: None,
            thinking: Thinking::Off,
            effort: None,
            native_web_search: false,
            autonomy: Autonomy::default(),
            scope: ToolScope::default(),
            shown: ToolScope::default(),
            workspace: PathBuf::from("/"),
            node: None,
            prompt: None,
            reset: ResetPolicy::default(),
            flow: FlowRule::default(),
            max_requests: MAX_REQUESTS,
            approval_minutes: APPROVAL_MINUTES,
            always_hours: ALWAYS_HOURS,
            messages: None,
            policy_agents: Vec::new(),
            max_tokens: None,
        }
    }
}
