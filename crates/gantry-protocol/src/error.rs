//! Error codes of the protocol.

use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The reason why a request failed. HTTP uses the same codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// Not JSON, or not a frame of this protocol.
    BadFrame,
    /// A request came before `connect`, or `connect` came twice.
    NotConnected,
    UnsupportedProtocol,
    Unauthorized,
    /// This role, or this principal, may not do that.
    Forbidden,
    UnknownMethod,
    BadParams,
    NotFound,
    Conflict,
    TooLarge,
    TooMany,
    UnknownTool,
    InvalidInput,
    Denied,
    ApprovalNeeded,
    Unaudited,
    Unavailable,
    Deadline,
    Cancelled,
    /// The source's bytes are not those that the destination already has.
    PrefixMismatch,
    /// The operation failed: missing file, full disk. The message names the object.
    Failed,
    Internal,
}

impl ErrorCode {
    pub fn name(self) -> &'static str {
        match self {
            ErrorCode::BadFrame => "bad_frame",
            ErrorCode::NotConnected => "not_connected",
            ErrorCode::UnsupportedProtocol => "unsupported_protocol",
            ErrorCode::Unauthorized => "unauthorized",
            ErrorCode::Forbidden => "forbidden",
            ErrorCode::UnknownMethod => "unknown_method",
            ErrorCode::BadParams => "bad_params",
            ErrorCode::NotFound => "not_found",
            ErrorCode::Conflict => "conflict",
            ErrorCode::TooLarge => "too_large",
            ErrorCode::TooMany => "too_many",
            ErrorCode::UnknownTool => "unknown_tool",
            ErrorCode::InvalidInput => "invalid_input",
            ErrorCode::Denied => "denied",
            ErrorCode::ApprovalNeeded => "approval_needed",
            ErrorCode::Unaudited => "unaudited",
            ErrorCode::Unavailable => "unavailable",
            ErrorCode::Deadline => "deadline",
            ErrorCode::Cancelled => "cancelled",
            ErrorCode::PrefixMismatch => "prefix_mismatch",
            ErrorCode::Failed => "failed",
            ErrorCode::Internal => "internal",
        }
    }

    /// Whether the same request may succeed later without a change.
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorCode::Unavailable | ErrorCode::TooMany | ErrorCode::Deadline)
    }
}

/// The `error` of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    #[serde(deserialize_with = "known_code")]
    #[schemars(with = "ErrorCode")]
    pub code: ErrorCode,
    pub message: String,
    /// For tool calls: `hint` and `violations`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    #[serde(default)]
    pub retryable: bool,
}

/// Reads the code of a newer peer that is unknown here as `failed`. The message has the reason.
fn known_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ErrorCode, D::Error> {
    let code = String::deserialize(deserializer)?;
    let known: Result<ErrorCode, ValueError> = ErrorCode::deserialize(code.into_deserializer());
    Ok(known.unwrap_or(ErrorCode::Failed))
}

impl WireError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> WireError {
        WireError { code, message: message.into(), details: None, retryable: code.is_retryable() }
    }
}
