//! A model's answer: events as they arrive, and their sum.

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
    /// A piece of the call's arguments, as they arrive.
    ToolInput {
        id: String,
        partial: String,
    },
    /// The attempt failed after it had produced output. Discard everything since the request began.
    Restart {
        reason: String,
    },
    /// The last event.
    Done(Box<Reply>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The assistant's message, with every block in the form in which it must be sent back.
    pub message: Message,
    pub stop: StopReason,
    pub usage: Usage,
    /// The `provider/model` that answered, which may be a fallback.
    pub model: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    ToolUse,
    MaxTokens,
    /// The provider continues with its own tools. Send the message back unchanged.
    Pause,
    Refusal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Without tokens from the cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}
