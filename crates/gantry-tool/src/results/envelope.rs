//! The shapes in which toolsets report success and errors.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::ToolError;
use crate::tool::{Reply, Tool, Toolset};

/// The shape of every success of the native toolset.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Done<T> {
    /// Always true; an error has `ok: false` and `error`.
    ok: bool,
    /// What the tool found or did.
    result: T,
}

pub fn done<T>(result: T) -> Done<T> {
    Done { ok: true, result }
}

/// Renders a tool's error as its toolset promises.
pub(crate) fn error(tool: &Tool, error: &ToolError) -> Reply {
    let text = error.to_string();
    match tool.toolset() {
        Toolset::Node | Toolset::Guarded | Toolset::Gantry | Toolset::Mcp => {
            Reply::Json(json!({ "error": text }))
        }
        Toolset::Native => Reply::Json(json!({"ok": false, "error": text})),
        Toolset::Assistant => Reply::Text(text),
        Toolset::Basic => {
            let mut object = Map::new();
            if !tool.has_errors_without_success() {
                object.insert("success".into(), Value::Bool(false));
            }
            object.insert("error".into(), Value::String(text));
            for (name, value) in error.fields().into_iter().flatten() {
                object.insert(name.clone(), value.clone());
            }
            Reply::Json(Value::Object(object))
        }
    }
}
