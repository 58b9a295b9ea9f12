//! Builds a tool's input from `key=value` words, with the types of its schema.

use anyhow::Result;
use gantry_tool::nearest;
use serde_json::{Map, Value};

use crate::exit::UsageError;

/// Returns whether these words are `key=value` pairs instead of one JSON text.
pub(super) fn is_pairs(words: &[String]) -> bool {
    words.len() > 1 || words.first().is_some_and(|word| split(word).is_some())
}

/// Builds the input. `key=value` takes the type of the schema, `key:=JSON` takes any JSON, and a list may be given by
/// repeating its key.
pub(super) fn build(schema: &Value, words: &[String]) -> Result<Value> {
    let mut input = Map::new();
    for word in words {
        let Some((key, value, is_json)) = split(word) else {
            return Err(UsageError(format!("{word:?} is neither JSON nor key=value"))
                .with_hint("write key=value, or key:=JSON for lists and objects")
                .into());
        };
        let field = field(schema, key);
        let types = field.as_ref().map(|field| types(schema, field)).unwrap_or_default();
        let value = match (is_json, &field) {
            (true, _) => serde_json::from_str(value)
                .map_err(|err| UsageError(format!("the value of {key} is not valid JSON: {err}")))?,
            (false, None) => return Err(unknown(schema, key)),
            (false, Some(field))
                if types.iter().any(|name| name == "array") && !types.iter().any(|name| name == "string") =>
            {
                let items = types_of_items(schema, field);
                let value = typed(&items, key, value)?;
                match input.get_mut(key) {
                    Some(Value::Array(values)) => {
                        values.push(value);
                        continue;
                    }
                    _ => Value::Array(vec![value]),
                }
            }
            (false, Some(_)) => typed(&types, key, value)?,
        };
        if input.insert(key.to_owned(), value).is_some() {
            return Err(UsageError(format!("{key} is given twice")).into());
        }
    }
    Ok(Value::Object(input))
}

/// Splits `key=value` and `key:=JSON`. A key has letters, digits, `_` and `-`.
fn split(word: &str) -> Option<(&str, &str, bool)> {
    let (key, value) = word.split_once('=')?;
    let (key, is_json) = key.strip_suffix(':').map_or((key, false), |key| (key, true));
    let is_key = |key: &str| {
        key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    is_key(key).then_some((key, value, is_json))
}

/// Converts a text to one of these types.
fn typed(types: &[String], key: &str, text: &str) -> Result<Value> {
    let is = |name: &str| types.iter().any(|known| known == name);
    if types.is_empty() || is("string") {
        return Ok(Value::String(text.to_owned()));
    }
    let wrong = |expected: &str| UsageError(format!("the value of {key} must be {expected}, not {text:?}"));
    if is("boolean") && !is("integer") && !is("number") {
        return Ok(Value::Bool(text.parse().map_err(|_| wrong("true or false"))?));
    }
    if is("integer") || is("number") {
        let number: serde_json::Number = text.parse().map_err(|_| wrong("a number"))?;
        return Ok(Value::Number(number));
    }
    let hint = format!("write {key}:=JSON");
    Err(wrong(&types.join(" or ")).with_hint(hint).into())
}

fn unknown(schema: &Value, key: &str) -> anyhow::Error {
    let names = fields(schema);
    let hint = match nearest(key, names.iter().map(String::as_str)).first() {
        Some(near) => format!("did you mean {near}?"),
        None => format!("the parameters are {}", names.join(", ")),
    };
    UsageError(format!("unknown parameter {key}")).with_hint(hint).into()
}

/// The schema itself, or its alternatives.
fn alternatives(schema: &Value) -> Vec<&Value> {
    let lists = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema[*key].as_array());
    std::iter::once(schema).chain(lists.flatten()).collect()
}

fn fields(schema: &Value) -> Vec<String> {
    let all = alternatives(schema).into_iter().filter_map(|one| one["properties"].as_object());
    let mut names: Vec<String> = all.flat_map(|fields| fields.keys().cloned()).collect();
    names.dedup();
    names
}

fn field(schema: &Value, key: &str) -> Option<Value> {
    alternatives(schema).into_iter().find_map(|one| one["properties"].get(key)).cloned()
}

/// The type names that a field accepts, without `null`.
fn types(schema: &Value, field: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for one in alternatives(resolved(schema, field)) {
        let one = resolved(schema, one);
        match &one["type"] {
            Value::String(name) => names.push(name.clone()),
            Value::Array(several) => {
                names.extend(several.iter().filter_map(Value::as_str).map(str::to_owned))
            }
            _ if one.get("enum").is_some() || one["const"].is_string() => names.push("string".to_owned()),
            _ => {}
        }
    }
    names.retain(|name| name != "null");
    names
}

fn types_of_items(schema: &Value, field: &Value) -> Vec<String> {
    let lists = alternatives(resolved(schema, field)).into_iter().map(|one| resolved(schema, one));
    lists.filter_map(|one| one.get("items")).flat_map(|items| types(schema, items)).collect()
}

/// Follows a reference to a definition of the same schema.
fn resolved<'a>(schema: &'a Value, field: &'a Value) -> &'a Value {
    let target = field["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    target.and_then(|path| schema.pointer(path)).unwrap_or(field)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn built(words: &[&str]) -> std::result::Result<Value, String> {
        let schema = json!({
            "properties": {
                "path": {"type": "string"},
                "limit": {"type": ["integer", "null"]},
                "background": {"type": "boolean"},
                "files": {"type": "array", "items": {"type": "string"}},
                "mode": {"anyOf": [{"$ref": "#/$defs/Mode"}, {"type": "null"}]},
                "options": {"type": "object"},
            },
            "$defs": {"Mode": {"enum": ["fast", "slow"]}},
        });
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        build(&schema, &words).map_err(|err| err.to_string())
    }

    #[test]
    fn values_take_the_types_of_the_schema() {
        assert_eq!(
            built(&["path=5", "limit=5", "background=true", "mode=fast"]),
            Ok(json!({"path": "5", "limit": 5, "background": true, "mode": "fast"}))
        );
        assert_eq!(built(&["files=a", "files=b=c"]), Ok(json!({"files": ["a", "b=c"]})));
        assert_eq!(
            built(&["files:=[\"a\"]", "options:={\"x\":1}"]),
            Ok(json!({"files": ["a"], "options": {"x": 1}}))
        );
        assert_eq!(built(&["path="]), Ok(json!({"path": ""})));
    }

    #[test]
    fn mistakes_name_the_parameter_and_the_fix() {
        let error = |words: &[&str]| built(words).unwrap_err();
        assert!(error(&["limit=many"]).contains("limit must be a number, not \"many\""));
        assert!(error(&["background=yes"]).contains("true or false"));
        assert!(error(&["pth=x"]).contains("did you mean path?"));
        assert!(error(&["options=x"]).contains("options:=JSON"));
        assert!(error(&["path=a", "path=b"]).contains("given twice"));
        assert!(error(&["path=a", "loose"]).contains("neither JSON nor key=value"));
        assert!(error(&["options:={"]).contains("not valid JSON"));
    }

    #[test]
    fn json_is_not_taken_for_pairs() {
        let is = |words: &[&str]| is_pairs(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert!(is(&["path=a"]) && is(&["files:=[]"]) && is(&["a", "b"]));
        assert!(!is(&["{\"a\": \"b=c\"}"]) && !is(&["-"]) && !is(&["@file=x"]) && !is(&[]));
    }
}
