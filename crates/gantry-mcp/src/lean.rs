//! Schemas as models read them: every word is paid for by every conversation, so nothing is said twice. The gate checks
//! inputs against the whole schema in any case.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// Bounds that only say what a number can be at all.
const LARGEST_SAFE: u64 = (1 << 53) - 1;

/// How other servers mark parameters that are to be sent as headers too. That was between them and us.
const BY_HEADER: &str = "x-mcp-header";

/// An input's: fields that may be left out need not be said to take null, and defaults are told in words.
pub(crate) fn input(schema: Value) -> JsonObject {
    let mut schema = object(schema);
    schema.shift_remove("title");
    schema.entry("type").or_insert_with(|| json!("object"));
    let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return schema };
    for field in fields.values_mut().filter_map(Value::as_object_mut) {
        without_headers(field);
        let is_told = field.get("description").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if is_told {
            field.shift_remove("default");
        }
        if field.get("maximum") == Some(&json!(LARGEST_SAFE)) {
            field.shift_remove("maximum");
        }
        if field.get("minimum") == Some(&json!(0)) {
            field.shift_remove("minimum");
        }
        not_null(field);
    }
    schema
}

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

fn without_headers(field: &mut JsonObject) {
    field.shift_remove(BY_HEADER);
    let inner = field.get_mut("properties").and_then(Value::as_object_mut);
    inner
        .into_iter()
        .flat_map(JsonObject::values_mut)
        .filter_map(Value::as_object_mut)
        .for_each(without_headers);
}

/// `["string", "null"]` is `"string"`: who has nothing to say leaves the field out.
fn not_null(field: &mut JsonObject) {
    if let Some(Value::Array(types)) = field.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            field.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = field.get_mut("enum") {
        values.retain(|value| !value.is_null());
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
    fn inputs_say_what_may_be_given_and_no_more() {
        let schema = json!({
            "title": "Input", "type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {
                "a": {"type": "integer", "minimum": 0, "maximum": LARGEST_SAFE, "default": 3, "description": "Default 3."},
                "b": {"type": ["string", "null"], "enum": ["x", null]},
                "c": {"type": "boolean", "default": false},
            },
        });
        let lean = json!({
            "type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {
                "a": {"type": "integer", "description": "Default 3."},
                "b": {"type": "string", "enum": ["x"]},
                "c": {"type": "boolean", "default": false},
            },
        });
        assert_eq!(Value::Object(input(schema)), lean);
        assert_eq!(Value::Object(input(json!(true))), json!({"type": "object"}));
    }

    #[test]
    fn nobody_is_asked_for_headers_that_another_server_wants() {
        let inner = json!({"type": "object", "properties": {"b": {"type": "string", "x-mcp-header": "B"}}});
        let schema = json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "inner": inner}});
        assert!(!Value::Object(input(schema)).to_string().contains("x-mcp-header"));
    }

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
