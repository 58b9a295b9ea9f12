//! What is said between a model and who asks it, in the one form that journals keep.

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
    /// Base64.
    Image {
        media_type: String,
        data: String,
    },
    /// What the model thought. The signature is the provider's, and goes back as it came.
    Thinking {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// Who thought it, as `provider/model`: nobody else can make anything of the signature.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<String>,
    },
    ToolUse {
        id: String,
        name: String,
        /// An object; what could not be parsed is in `malformed` instead.
        input: Value,
        /// The arguments as they came when they are no JSON object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        malformed: Option<String>,
    },
    ToolResult {
        id: String,
        /// Text and images only.
        content: Vec<Block>,
        #[serde(default)]
        is_error: bool,
    },
    /// A block that only its provider understands, sent back to it as it came and to no other: a search of its own, redacted
    /// thinking.
    Provider {
        /// Its name, or `provider/model` where the block is that model's alone.
        provider: String,
        block: Value,
    },
}

impl Message {
    pub fn user(text: impl Into<String>) -> Message {
        Message { role: Role::User, content: vec![Block::text(text)] }
    }

    /// All text of the message, in order.
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
