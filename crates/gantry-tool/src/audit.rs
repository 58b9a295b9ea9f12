//! The records of the audit log, and when they must be on disk. `gantry-store` writes them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of the log: a call that begins, ends or is refused, or a connection of its command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// The id of the call. Both of its lines have it.
    pub call: String,
    pub phase: Phase,
    pub principal: Cow<'static, str>,
    pub agent: String,
    pub surface: Cow<'static, str>,
    pub tool: String,
    /// Masked and bounded. Only on the first line of a call, and on connections: `host`, `port`, `bytesUp`, `bytesDown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The policy rule that decided, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Cow<'static, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
}

impl AuditRecord {
    /// The record as one line of JSON.
    pub fn to_text(&self) -> String {
        // The fields cannot fail to serialise.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The tool is about to run.
    Begin,
    /// The tool has run.
    End,
    /// The tool did not run: the call was denied, invalid or unknown.
    Refused,
    /// A connection of a sandboxed command has ended, or was denied.
    Connection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk before `append` returns.
    Now,
    /// Written before `append` returns, on disk within 50 ms.
    Soon,
    /// Written before the next line or within a few milliseconds, on disk within 50 ms. For calls that change nothing:
    /// appending the last line of a call also writes its first line, so the read is on record before the answer.
    Later,
}

/// The append-only log. Blocking; the gate moves durable appends off the async threads.
pub trait AuditSink: Send + Sync {
    fn append(&self, record: AuditRecord, durability: Durability) -> Result<(), AuditError>;

    /// Writes deferred lines. Call it when no caller waits.
    fn settle(&self) {}

    /// Writes all appended lines to disk.
    fn flush(&self) -> Result<(), AuditError>;
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write the audit log: {0}")]
pub struct AuditError(pub String);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn record_is_read_as_it_was_written() {
        let whole = AuditRecord {
            call: "c".into(),
            phase: Phase::Begin,
            principal: "mcp:a\"b\\".into(),
            agent: "main".into(),
            surface: "cli".into(),
            tool: "T\n".into(),
            input: Some(json!({"ä": [1, null, "x\u{1}"]})),
            rule: Some("r".into()),
            status: Some("s".into()),
            error: Some("e".into()),
            duration_ms: Some(0.127),
        };
        let short = AuditRecord {
            input: None,
            rule: None,
            status: None,
            error: None,
            duration_ms: None,
            phase: Phase::Refused,
            ..whole.clone()
        };
        assert_eq!(
            short.to_text(),
            r#"{"call":"c","phase":"refused","principal":"mcp:a\"b\\","agent":"main","surface":"cli","tool":"T\n"}"#
        );
        let ended = AuditRecord { duration_ms: Some(1234.0), phase: Phase::End, ..short.clone() };
        for record in [whole, short, ended] {
            assert_eq!(serde_json::from_str::<AuditRecord>(&record.to_text()).unwrap(), record);
        }
    }
}
