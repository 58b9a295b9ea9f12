//! Output schemas as MCP clients read them: the shape of what is always there.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// An output's: the shape of what is always there. None where the answer may be a picture, or is one of several shapes, which tells little.
pub(crate) fn output(mut schema: Value) -> Option<JsonObject> {
    if has_images(&schema) || schema.get("anyOf").is_some() || schema.get("oneOf").is_some() {
        return None;
    }
    only_shape(&mut schema);
    let schema = object(schema);
    (schema.get("type") == Some(&json!("object"))).then_some(schema)
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

fn has_images(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.get("const").is_some_and(|value| value == "image") || object.values().any(has_images)
        }
        Value::Array(items) => items.iter().any(has_images),
        _ => false,
    }
}

/// Leaves out texts for people and bounds, but no property that happens to have such a name; and that there is nothing
/// else: the gate adds fields, such as where a long result is kept.
fn only_shape(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for name in
                ["description", "title", "format", "minimum", "maximum", "default", "additionalProperties"]
            {
                if object.get(name).is_some_and(|value| !value.is_object()) {
                    object.shift_remove(name);
                }
            }
            only_required(object);
            object.values_mut().for_each(only_shape);
        }
        Value::Array(items) => items.iter_mut().for_each(only_shape),
        _ => {}
    }
}

/// What an answer may have beside is seen when it is there.
fn only_required(schema: &mut JsonObject) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|name, _| required.iter().any(|required| required == name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_their_shape() {
        let schema = json!({
            "type": "object", "description": "d", "additionalProperties": false,
            "required": ["title", "n"],
            "properties": {
                "title": {"type": "string", "description": "d"},
                "n": {"type": ["integer", "null"], "minimum": 0},
                "sometimes": {"type": "string"},
            },
        });
        let lean = json!({
            "type": "object",
            "required": ["title", "n"],
            "properties": {"title": {"type": "string"}, "n": {"type": ["integer", "null"]}},
        });
        assert_eq!(output(schema).map(Value::Object), Some(lean));
        assert_eq!(output(json!({"anyOf": [{"type": "object"}]})), None);
        assert_eq!(output(json!({"type": "object", "properties": {"x": {"const": "image"}}})), None);
        assert_eq!(output(json!({"type": "string"})), None);
    }
}
