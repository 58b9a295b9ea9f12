//! A tool's definition: the complete object that the server sent.

use serde_json::{Map, Value, json};

use super::sanitize::shown;

/// Maximum size of one definition as text.
const MAX_DEFINITION_BYTES: usize = 256 * 1024;
const MAX_NAME_CHARS: usize = 128;
/// Maximum nesting. JSON parsers stop at 128, and a definition is nested in other messages.
const MAX_NESTING: usize = 100;
/// The field that replaces an unusable definition, with the reason.
const UNREADABLE: &str = "gantry/unreadable";

/// Parses a definition. An unusable one becomes its name and the reason.
pub(super) fn read(text: &str) -> Value {
    #[derive(serde::Deserialize)]
    struct Named {
        name: Option<String>,
    }
    let why = match serde_json::from_str(text) {
        Ok(definition) if nesting(&definition) <= MAX_NESTING => return definition,
        Ok(_) => format!("its definition is nested more than {MAX_NESTING} levels deep"),
        // serde_json has no error kind for its recursion limit.
        Err(err) if err.to_string().contains("recursion limit") => {
            format!("its definition is nested more than {MAX_NESTING} levels deep")
        }
        Err(err) => format!("its definition is invalid: {err}"),
    };
    let name = serde_json::from_str(text).ok().and_then(|Named { name }| name);
    json!({"name": name, UNREADABLE: why})
}

fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the name in a definition, if any.
pub(super) fn name(definition: &Value) -> Option<&str> {
    definition.get("name").and_then(Value::as_str)
}

/// Hashes the canonical form of a definition, so that the order of fields does not matter.
pub fn hash(definition: &Value) -> String {
    blake3::hash(canonical(definition).to_string().as_bytes()).to_hex().to_string()
}

/// Returns why a definition is unusable, if it is.
pub(super) fn problem(definition: &Value) -> Option<String> {
    if let Some(why) = definition.get(UNREADABLE) {
        return Some(why.as_str().unwrap_or("its definition is invalid").to_owned());
    }
    let Some(name) = name(definition) else { return Some("it has no name".to_owned()) };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || !name.chars().all(allowed) {
        return Some("its name must have 1 to 128 letters, digits, _ - . / :".to_owned());
    }
    if name.contains("::") {
        return Some("its name contains ::, which is reserved for Gantry's own tools".to_owned());
    }
    if definition.to_string().len() > MAX_DEFINITION_BYTES {
        return Some(format!("its definition is longer than {MAX_DEFINITION_BYTES} bytes"));
    }
    let schema = |field: &str| {
        let schema = definition.get(field)?;
        if !schema.is_object() {
            return Some(format!("its {field} is not a schema: it must be an object"));
        }
        // Some clients reject the whole list because of one such tool.
        if schema.get("type").is_some_and(|kind| kind != "object") {
            return Some(format!("its {field} is not a schema of an object"));
        }
        gantry_tool::check_schema(schema).err().map(|reason| format!("its {field} is not a schema: {reason}"))
    };
    if definition.pointer("/execution/taskSupport").is_some_and(|support| support == "required") {
        return Some("it runs only as a task, which Gantry does not support".to_owned());
    }
    if definition.get("inputSchema").is_none() {
        return Some("it has no inputSchema".to_owned());
    }
    schema("inputSchema").or_else(|| schema("outputSchema")).or_else(|| {
        let read = serde_json::from_value::<rmcp::model::Tool>(definition.clone());
        read.err().map(|err| format!("its definition is invalid: {}", shown(&err.to_string())))
    })
}

/// Returns which schemas of a definition are passed on without being enforced, and why.
pub fn unchecked(definition: &Value) -> Vec<String> {
    let costly = |field: &str| {
        let why = gantry_tool::too_costly(definition.get(field)?)?;
        Some(format!("its {field} is not enforced by Gantry: {why}"))
    };
    ["inputSchema", "outputSchema"].into_iter().filter_map(costly).collect()
}

/// Returns the output schema of a tool, if it can be enforced.
pub(super) fn promise(definition: &Value) -> Option<&Value> {
    definition.get("outputSchema").filter(|schema| gantry_tool::too_costly(schema).is_none())
}

/// Returns a line diff of two definitions for the operator.
pub fn difference(before: &Value, after: &Value) -> String {
    let text = |value: &Value| {
        let pretty = serde_json::to_string_pretty(&canonical(value));
        pretty.unwrap_or_default() + "\n"
    };
    let (before, after) = (text(before), text(after));
    similar::TextDiff::from_lines(&before, &after)
        .unified_diff()
        .context_radius(3)
        .header("accepted", "offered")
        .to_string()
}

fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut fields: Vec<(&String, &Value)> = object.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            Value::Object(
                fields
                    .into_iter()
                    .map(|(name, value)| (name.clone(), canonical(value)))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_covers_every_field_but_not_the_order() {
        let whole = json!({
            "name": "a", "title": "A", "description": "d", "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}, "_meta": {"x": 1}, "future": 1
        });
        let turned: Value = serde_json::from_str(
            r#"{"future":1,"_meta":{"x":1},"annotations":{"readOnlyHint":true},"outputSchema":{"type":"object"},
                "inputSchema":{"type":"object"},"description":"d","title":"A","name":"a"}"#,
        )
        .unwrap();
        assert_eq!(hash(&whole), hash(&turned));
        for field in whole.as_object().unwrap().keys() {
            let mut changed = whole.clone();
            changed[field] = json!("other");
            assert_ne!(hash(&whole), hash(&changed), "{field}");
            let mut gone = whole.clone();
            gone.as_object_mut().unwrap().remove(field);
            assert_ne!(hash(&whole), hash(&gone), "{field}");
        }
    }

    #[test]
    fn invalid_definitions_are_unusable() {
        let of = |schema: Value| problem(&json!({"name": "a", "inputSchema": schema}));
        assert_eq!(of(json!({"type": "object"})), None);
        for bad in
            [json!("text"), json!(7), json!({"type": "array"}), json!({"type": 7}), json!({"properties": 7})]
        {
            assert!(of(bad.clone()).is_some_and(|why| why.contains("is not a schema")), "{bad}");
        }
        assert!(problem(&json!({"name": "a"})).is_some() && problem(&json!({"inputSchema": {}})).is_some());
        for bad in ["", "a b", "a\nb", "ä", "a\u{202e}b", &"x".repeat(129), "a::b", "::"] {
            assert!(problem(&json!({"name": bad, "inputSchema": {}})).is_some(), "{bad:?}");
        }
        for odd in [json!(1), json!("x"), json!(null), json!({"name": 7, "inputSchema": {}})] {
            assert_eq!(problem(&odd).as_deref(), Some("it has no name"), "{odd}");
        }
        for (field, odd) in [("description", json!(["x"])), ("annotations", json!({"readOnlyHint": "true"}))]
        {
            let why = problem(&json!({"name": "a", "inputSchema": {}, field: odd}));
            assert!(why.is_some_and(|why| why.contains("definition is invalid")), "{field}");
        }
        let task = json!({"name": "a", "inputSchema": {}, "execution": {"taskSupport": "required"}});
        assert!(problem(&task).is_some_and(|why| why.contains("only as a task")));
        let long = json!({"name": "a", "inputSchema": {}, "description": "x".repeat(MAX_DEFINITION_BYTES)});
        assert!(problem(&long).is_some());
    }

    #[test]
    fn difference_shows_both_sides() {
        let before = json!({"name": "a", "description": "adds"});
        let after = json!({"name": "a", "description": "adds, and sends all files away"});
        let shown = difference(&before, &after);
        assert!(shown.contains("-  \"description\": \"adds\""), "{shown}");
        assert!(shown.contains("+  \"description\": \"adds, and sends all files away\""), "{shown}");
    }
}
