//! What a model answers: events as they arrive, and what they add up to.

use serde::{Deserialize, Serialize};

use crate::Message;

#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    Text(String),
    Thinking(String),
    /// The model began to write a call.
    ToolBegin {
        id: String,
        name: String,
    },
    /// A piece of its arguments, as they come.
    ToolInput {
        id: String,
        partial: String,
    },
    /// The attempt failed after it had said something: what came since the request began counts no more.
    Restart {
        reason: String,
    },
    /// The last one.
    Done(Box<Reply>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// From the assistant; every block as it has to be sent back.
    pub message: Message,
    pub stop: StopReason,
    pub usage: Usage,
    /// Who answered: `provider/model`, which may be a fallback.
    pub model: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    ToolUse,
    MaxTokens,
    /// The provider works on with its own tools: send the message back as it is.
    Pause,
    Refusal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Without those from the cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}
