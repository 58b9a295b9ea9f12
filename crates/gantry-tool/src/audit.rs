//! What the audit log records. `gantry-store` keeps it; this crate only says what a line holds and when.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line: what is about to happen, or what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// The same for both lines of a call.
    pub call: String,
    pub phase: Phase,
    pub principal: String,
    pub agent: String,
    pub surface: String,
    pub tool: String,
    /// Masked and bounded. Only on the first line of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The policy rule that decided, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// About to run.
    Begin,
    /// What came of it.
    End,
    /// Never ran: denied, invalid, unknown.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk before `append` returns.
    Now,
    /// Written before `append` returns, on disk within 50 ms.
    Soon,
    /// Written before the next line or within a few milliseconds, on disk within 50 ms: for outcomes that changed nothing.
    Later,
}

/// The append-only log. Blocking; the gate moves durable appends off the async threads.
pub trait AuditSink: Send + Sync {
    fn append(&self, record: AuditRecord, durability: Durability) -> Result<(), AuditError>;

    /// Does what appending has put off; for a moment in which nobody waits.
    fn settle(&self) {}

    /// Puts everything appended on disk.
    fn flush(&self) -> Result<(), AuditError>;
}

#[derive(Debug, thiserror::Error)]
#[error("the audit log cannot be written: {0}")]
pub struct AuditError(pub String);
