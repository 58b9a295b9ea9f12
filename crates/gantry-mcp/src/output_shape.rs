//! Reduces output schemas for MCP clients to the fields that are always present.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// Reduces an output schema. Returns `None` if the answer may be an image or have one of several shapes.
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

/// Removes descriptions and bounds, but no property of such a name. Also removes `additionalProperties`, because the gate
/// adds fields such as `resultHandle`.
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

/// Removes optional properties.
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
    fn output_schemas_keep_only_required_fields() {
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
