//! The shape in which each toolset reports an error.

use serde_json::{Map, Value, json};

use crate::error::ToolError;
use crate::tool::{Reply, Tool, Toolset};

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
