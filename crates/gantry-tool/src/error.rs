//! Two kinds of failure: [`ToolError`] is a tool's own, [`Refusal`] is the gate's.

use serde_json::{Map, Value, json};

/// The text of an error, a hint what to do next, and the fields that an envelope adds (`path`, `command`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    pub text: String,
    pub hint: Option<String>,
    /// Boxed, because few errors have fields and the map would enlarge every `Result`.
    pub fields: Option<Box<Map<String, Value>>>,
}

impl Message {
    pub fn new(text: impl Into<String>) -> Self {
        Message { text: text.into(), ..Message::default() }
    }
}

impl std::fmt::Display for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)?;
        match &self.hint {
            // After quoted lines the hint needs a line of its own, or it reads as part of them.
            Some(hint) if self.text.contains('\n') => write!(f, "\n({hint})"),
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// A tool's own error. The gate renders it in the shape of the tool's toolset.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The caller can fix this: a rule between fields, a pattern that does not parse.
    #[error("{0}")]
    Input(Message),
    /// The operation failed: missing file, full disk, no permission. The text names the object.
    #[error("{0}")]
    Failed(Message),
    /// An engine denied the operation: a closed directory, a sandbox that cannot be enforced.
    #[error("denied: {0}")]
    Denied(Message),
    /// The node or server is not connected.
    #[error("{0}")]
    Unavailable(Message),
    #[error("cancelled")]
    Cancelled,
    /// A defect of Gantry. The audit log has the details under this id, the caller gets only the id.
    #[error("internal error {id}")]
    Internal { id: String, detail: String },
    /// The tool ran on another node, which already gave the error its shape.
    #[error("{}", .0.to_text())]
    Shaped(crate::tool::Reply),
    /// The gate of another node refused the call.
    #[error("{0}")]
    Refused(Refusal),
}

impl ToolError {
    pub fn input(text: impl Into<String>) -> Self {
        ToolError::Input(Message::new(text))
    }

    pub fn failed(text: impl Into<String>) -> Self {
        ToolError::Failed(Message::new(text))
    }

    /// For tools that need a running gateway.
    pub fn needs_gateway() -> ToolError {
        ToolError::failed("this needs a running gateway").with_hint("start one with `gantry up`")
    }

    pub fn denied(text: impl Into<String>) -> Self {
        ToolError::Denied(Message::new(text))
    }

    pub fn unavailable(text: impl Into<String>) -> Self {
        ToolError::Unavailable(Message::new(text))
    }

    pub fn internal(detail: impl Into<String>) -> Self {
        ToolError::Internal { id: uuid::Uuid::new_v4().to_string(), detail: detail.into() }
    }

    /// An input that the schema accepts and the tool's type rejects.
    pub(crate) fn violation(violation: Violation) -> Self {
        let refusal = Refusal::new(RefusalCode::InvalidInput, "the input has 1 error");
        ToolError::Refused(Refusal { violations: vec![violation], ..refusal })
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(message) = self.message_mut() {
            message.hint = Some(hint.into());
        }
        self
    }

    /// Adds a field for the error's envelope. A field that is already set keeps its value.
    pub fn with_field(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Some(message) = self.message_mut() {
            message.fields.get_or_insert_default().entry(name.to_owned()).or_insert_with(|| value.into());
        }
        self
    }

    pub fn fields(&self) -> Option<&Map<String, Value>> {
        match self {
            ToolError::Input(m) | ToolError::Failed(m) | ToolError::Denied(m) | ToolError::Unavailable(m) => {
                m.fields.as_deref()
            }
            ToolError::Cancelled
            | ToolError::Internal { .. }
            | ToolError::Shaped(_)
            | ToolError::Refused(_) => None,
        }
    }

    fn message_mut(&mut self) -> Option<&mut Message> {
        match self {
            ToolError::Input(m) | ToolError::Failed(m) | ToolError::Denied(m) | ToolError::Unavailable(m) => {
                Some(m)
            }
            ToolError::Cancelled
            | ToolError::Internal { .. }
            | ToolError::Shaped(_)
            | ToolError::Refused(_) => None,
        }
    }
}

/// One way in which an input breaks its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Dotted path of the offending value; empty for the input itself.
    pub path: String,
    pub message: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

/// Why the gate did not let a call run, or did not wait for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub code: RefusalCode,
    pub message: String,
    pub hint: Option<String>,
    pub violations: Vec<Violation>,
    /// Whether the call may have taken effect, because its result was lost.
    pub outcome_unknown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    UnknownTool,
    InvalidInput,
    Denied,
    ApprovalNeeded,
    /// The audit line could not be written, so nothing ran.
    Unaudited,
    Unavailable,
    Deadline,
    Cancelled,
}

impl RefusalCode {
    pub const ALL: [RefusalCode; 8] = [
        RefusalCode::UnknownTool,
        RefusalCode::InvalidInput,
        RefusalCode::Denied,
        RefusalCode::ApprovalNeeded,
        RefusalCode::Unaudited,
        RefusalCode::Unavailable,
        RefusalCode::Deadline,
        RefusalCode::Cancelled,
    ];

    pub fn from_name(name: &str) -> Option<RefusalCode> {
        RefusalCode::ALL.into_iter().find(|code| code.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            RefusalCode::UnknownTool => "unknown_tool",
            RefusalCode::InvalidInput => "invalid_input",
            RefusalCode::Denied => "denied",
            RefusalCode::ApprovalNeeded => "approval_needed",
            RefusalCode::Unaudited => "unaudited",
            RefusalCode::Unavailable => "unavailable",
            RefusalCode::Deadline => "deadline",
            RefusalCode::Cancelled => "cancelled",
        }
    }
}

impl Refusal {
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Refusal { code, message: message.into(), hint: None, violations: Vec::new(), outcome_unknown: false }
    }

    /// For a call that was lost after it began, and may have taken effect.
    pub fn lost(message: impl Into<String>) -> Self {
        Refusal { outcome_unknown: true, ..Refusal::new(RefusalCode::Unavailable, message) }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The refusal with its code, so that a model knows whether to fix the call, to ask, or to stop.
    pub fn describe(&self) -> String {
        let code = self.code.name();
        if self.message.starts_with(code) { self.to_string() } else { format!("{code}: {self}") }
    }

    /// `{"error":{"code","message","hint"?,"violations"?,"outcomeUnknown"?}}`
    pub fn to_json(&self) -> Value {
        let mut error = json!({"code": self.code.name(), "message": self.message});
        if let Some(hint) = &self.hint {
            error["hint"] = json!(hint);
        }
        if !self.violations.is_empty() {
            let rows = self.violations.iter().map(|v| json!({"path": v.path, "message": v.message}));
            error["violations"] = rows.collect();
        }
        if self.outcome_unknown {
            error["outcomeUnknown"] = json!(true);
        }
        json!({ "error": error })
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        for violation in &self.violations {
            write!(f, "\n  - {violation}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_starts_with_the_code_once() {
        let denied = Refusal::new(RefusalCode::Denied, "denied: no (rule x)").with_hint("ask the operator");
        assert_eq!(denied.describe(), "denied: no (rule x)\nhint: ask the operator");
        let offline = Refusal::new(RefusalCode::Unavailable, "the node is offline");
        assert_eq!(offline.describe(), "unavailable: the node is offline");
    }
}
