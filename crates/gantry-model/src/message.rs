//! Messages between a model and its caller, in the one form that journals store.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    /// Base64 data.
    Image {
        media_type: String,
        data: String,
    },
    /// The model's thinking. The signature belongs to the provider and is sent back unchanged.
    Thinking {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// The `provider/model` that wrote it. No other model can use the signature.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<String>,
    },
    ToolUse {
        id: String,
        name: String,
        /// An object. If the arguments could not be parsed, they are in `malformed`.
        input: Value,
        /// The arguments as received, if they are not a JSON object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        malformed: Option<String>,
    },
    ToolResult {
        id: String,
        /// Only text and images.
        content: Vec<Block>,
        #[serde(default)]
        is_error: bool,
    },
    /// A block that only its provider understands, for example its own search or redacted thinking.
    /// It is sent back unchanged, and to no other provider.
    Provider {
        /// The provider's name, or `provider/model` if only that model understands the block.
        provider: String,
        block: Value,
    },
}

impl Message {
    pub fn user(text: impl Into<String>) -> Message {
        Message { role: Role::User, content: vec![Block::text(text)] }
    }

    /// Returns all text of the message, in order.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

impl Block {
    pub fn text(text: impl Into<String>) -> Block {
        Block::Text { text: text.into() }
    }
}
