//! What a model is asked.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Message;

#[derive(Debug, Clone, Default)]
pub struct Request {
    /// As configured: `anthropic/claude-…`, `local/qwen`, or a tier.
    pub model: String,
    /// In this order, the stable parts first: caches hit as far as requests begin alike.
    pub system: Vec<SystemPart>,
    pub messages: Vec<Message>,
    pub tools: Vec<ToolSpec>,
    /// The provider's own web search, where it has one.
    pub native_web_search: bool,
    pub max_tokens: u32,
    pub thinking: Thinking,
    pub effort: Option<Effort>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPart {
    pub text: String,
    /// All up to here is the same in the next request.
    pub cache: bool,
}

#[derive(Debug, Clone)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
    /// Its arguments are wanted as they are written, not only when they are whole.
    pub eager_input_streaming: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    #[default]
    Off,
    /// As the model sees fit.
    Adaptive,
    /// At most so many tokens.
    Budget(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    Low,
    Medium,
    High,
}
