//! Input schemas as models read them. A model pays for every word in every conversation, so the published form leaves out
//! what the gate checks anyway: the gate validates inputs against the whole schema.

use serde_json::{Map, Value, json};

/// The largest integer that all JSON readers represent exactly. As a maximum it adds nothing.
const LARGEST_SAFE: u64 = (1 << 53) - 1;

/// Marks parameters that an MCP server also expects as headers. Callers of Gantry do not send them.
const MCP_HEADER: &str = "x-mcp-header";

/// Returns the published form of an input schema: without null for optional fields, without defaults that the
/// description states, and without the ban on unknown fields.
pub fn published_input(schema: Value) -> Map<String, Value> {
    let mut schema = match schema {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    schema.shift_remove("title");
    if schema.get("additionalProperties") == Some(&json!(false)) {
        schema.shift_remove("additionalProperties");
    }
    schema.entry("type").or_insert_with(|| json!("object"));
    let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return schema };
    for field in fields.values_mut().filter_map(Value::as_object_mut) {
        remove_headers(field);
        let is_described =
            field.get("description").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if is_described {
            field.shift_remove("default");
        }
        if field.get("maximum") == Some(&json!(LARGEST_SAFE)) {
            field.shift_remove("maximum");
        }
        if [Some(&json!(0)), Some(&json!(1))].contains(&field.get("minimum")) {
            field.shift_remove("minimum");
        }
        remove_null(field);
    }
    schema
}

fn remove_headers(field: &mut Map<String, Value>) {
    field.shift_remove(MCP_HEADER);
    let inner = field.get_mut("properties").and_then(Value::as_object_mut);
    inner.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut).for_each(remove_headers);
}

/// Turns `["string", "null"]` into `"string"`: a caller without a value leaves the field out.
fn remove_null(field: &mut Map<String, Value>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_inputs_omit_constraints_that_the_gate_checks() {
        let schema = json!({
            "title": "Input", "type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {
                "a": {"type": "integer", "minimum": 0, "maximum": LARGEST_SAFE, "default": 3, "description": "Default 3."},
                "b": {"type": ["string", "null"], "enum": ["x", null]},
                "c": {"type": "boolean", "default": false},
                "d": {"type": "integer", "minimum": 10, "maximum": 20},
            },
        });
        let published = json!({
            "type": "object", "required": ["a"],
            "properties": {
                "a": {"type": "integer", "description": "Default 3."},
                "b": {"type": "string", "enum": ["x"]},
                "c": {"type": "boolean", "default": false},
                "d": {"type": "integer", "minimum": 10, "maximum": 20},
            },
        });
        assert_eq!(Value::Object(published_input(schema)), published);
        assert_eq!(Value::Object(published_input(json!(true))), json!({"type": "object"}));
    }

    #[test]
    fn header_marks_of_other_servers_are_removed() {
        let inner = json!({"type": "object", "properties": {"b": {"type": "string", "x-mcp-header": "B"}}});
        let schema = json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "inner": inner}});
        assert!(!Value::Object(published_input(schema)).to_string().contains("x-mcp-header"));
    }
}
