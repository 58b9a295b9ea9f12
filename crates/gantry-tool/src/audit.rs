//! The records of the audit log, and when they must be on disk. `gantry-store` writes them.

use std::borrow::Cow;

use gantry_protocol::push_string;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of the log: a call that begins, ends or is refused.
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
    /// Masked and bounded. Only on the first line of a call.
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
    /// As JSON, which is what serialising it makes, in a fifth of the time: every call is recorded twice.
    pub fn to_text(&self) -> String {
        let AuditRecord { call, principal, agent, surface, tool, input, rule, status, error, .. } = self;
        let input = match input {
            // Values are always JSON.
            Some(input) => serde_json::to_string(input).unwrap_or_default(),
            None => String::new(),
        };
        let mut text = String::with_capacity(256 + input.len());
        let mut field = |name: &str, value: &str| {
            text.push_str(name);
            push_string(&mut text, value);
        };
        field("{\"call\":", call);
        field(",\"phase\":", self.phase.name());
        field(",\"principal\":", principal);
        field(",\"agent\":", agent);
        field(",\"surface\":", surface);
        field(",\"tool\":", tool);
        if self.input.is_some() {
            text.push_str(",\"input\":");
            text.push_str(&input);
        }
        let status = status.as_deref();
        for (name, value) in
            [(",\"rule\":", rule.as_deref()), (",\"status\":", status), (",\"error\":", error.as_deref())]
        {
            if let Some(value) = value {
                text.push_str(name);
                push_string(&mut text, value);
            }
        }
        if let Some(took) = self.duration_ms {
            text.push_str(",\"durationMs\":");
            text.push_str(&serde_json::to_string(&took).unwrap_or_default());
        }
        text.push('}');
        text
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
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Begin => "begin",
            Phase::End => "end",
            Phase::Refused => "refused",
        }
    }
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
    fn text_equals_the_serialised_record() {
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
        let ended = AuditRecord { duration_ms: Some(1234.0), phase: Phase::End, ..short.clone() };
        let odd = AuditRecord { duration_ms: Some(f64::NAN), ..short.clone() };
        for record in [whole, short, ended, odd] {
            assert_eq!(record.to_text(), serde_json::to_string(&record).unwrap());
        }
    }
}
