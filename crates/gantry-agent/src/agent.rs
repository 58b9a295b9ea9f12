//! An agent as its sessions need it.

use std::path::PathBuf;

use gantry_model::{Effort, Thinking};
use gantry_tool::{Autonomy, ToolScope};

use crate::lasting_approval::ALWAYS_HOURS;
use crate::reset::ResetPolicy;

#[derive(Debug, Clone)]
pub struct Agent {
    /// Without one, the default.
    pub model: Option<String>,
    pub thinking: Thinking,
    pub effort: Option<Effort>,
    /// Its model may search the web by itself, where the provider has that, while the session holds nothing private.
    pub native_web_search: bool,
    pub autonomy: Autonomy,
    /// What it may call.
    pub scope: ToolScope,
    /// Of that, what its model is told of.
    pub shown: ToolScope,
    pub workspace: PathBuf,
    /// The node that its bare tool names mean.
    pub node: Option<String>,
    /// Said before the files of its workspace.
    pub prompt: Option<String>,
    pub reset: ResetPolicy,
    pub flow: FlowRule,
    /// How often the model may be asked in one run.
    pub max_requests: u32,
    /// Minutes until a question that nobody answered is a no.
    pub approval_minutes: u32,
    /// Hours that an "always" counts, unless whoever gives it says otherwise.
    pub always_hours: u32,
    /// The agents that it may write to, beside itself; without a list, all.
    pub messages: Option<Vec<String>>,
    /// Agents whose rules bind it too.
    pub policy_agents: Vec<String>,
    /// The longest an answer of its model may be, in tokens; without one, as long as the model can.
    pub max_tokens: Option<u32>,
}

/// What becomes of calls that reach outside, once a session holds both labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FlowRule {
    /// A human is asked; without one, no.
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
