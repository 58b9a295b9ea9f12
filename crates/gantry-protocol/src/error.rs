//! What goes wrong on the wire, by code.

use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Why a request was not answered with a result. The same codes are used by HTTP.
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
    /// It happened and failed: no such file, disk full. The message says on what.
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

    /// Whether the same request may succeed later without anybody changing anything.
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

/// A newer peer may have codes that are not known here: it failed, and the message says why.
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
