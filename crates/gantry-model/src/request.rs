//! What a model is asked.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Message;

#[derive(Debug, Clone, Default)]
pub struct Request {
    /// A configured name: `anthropic/claude-…`, `local/qwen`, or a tier.
    pub model: String,
    /// In this order, stable parts first: a cache applies as far as two requests are equal.
    pub system: Vec<SystemPart>,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolSpec>,
    /// The provider's own web search, if it has one.
    pub native_web_search: bool,
    pub max_tokens: u32,
    pub thinking: Thinking,
    pub effort: Option<Effort>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPart {
    pub text: String,
    /// Everything up to here is the same in the next request.
    pub cache: bool,
}

#[derive(Debug, Clone)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
    /// Whether the arguments are needed while they are written, and not only when they are
    /// complete.
    pub eager_input_streaming: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    #[default]
    Off,
    /// The model decides.
    Adaptive,
    /// At most this many tokens.
    Budget(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    Low,
    Medium,
    High,
}
