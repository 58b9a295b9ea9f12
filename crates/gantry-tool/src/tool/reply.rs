//! `Reply` is what a tool returns. `IntoReply` turns a tool's output type into it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::schema;

/// The answer of a tool: an object, or plain text.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Json(Value),
    Text(String),
}

impl Reply {
    /// The reply as surfaces show it: compact JSON, or the text itself.
    pub fn to_text(&self) -> String {
        match self {
            Reply::Json(value) => value.to_string(),
            Reply::Text(text) => text.clone(),
        }
    }
}

/// Plain text as a tool's whole output.
#[derive(Debug)]
pub struct Text(pub String);

/// A tool's output type: anything with a schema, or [`Text`].
pub trait IntoReply: Send + 'static {
    fn schema() -> Option<Value>;
    fn into_reply(self) -> Result<Reply, serde_json::Error>;
}

impl<T: Serialize + JsonSchema + Send + 'static> IntoReply for T {
    fn schema() -> Option<Value> {
        Some(schema::of_output::<T>())
    }

    fn into_reply(self) -> Result<Reply, serde_json::Error> {
        Ok(Reply::Json(serde_json::to_value(self)?))
    }
}

impl IntoReply for Text {
    fn schema() -> Option<Value> {
        None
    }

    fn into_reply(self) -> Result<Reply, serde_json::Error> {
        Ok(Reply::Text(self.0))
    }
}
