//! The `fields` parameter: an answer has only the fields that the request named.

use serde_json::{Map, Value};

/// Removes every field that the mask does not name. A mask looks like `nextPageToken,files(id,owners/emailAddress)`.
pub(super) fn apply(mask: &str, value: &Value) -> Value {
    if mask.trim().is_empty() || mask.trim() == "*" {
        return value.clone();
    }
    match value {
        Value::Array(items) => items.iter().map(|item| apply(mask, item)).collect(),
        Value::Object(fields) => {
            let mut kept = Map::new();
            for part in parts(mask) {
                let (name, rest) = match part.find(['/', '(']) {
                    Some(at) if part.as_bytes()[at] == b'/' => (&part[..at], part[at + 1..].to_owned()),
                    Some(at) => (&part[..at], part[at + 1..].trim_end_matches(')').to_owned()),
                    None => (part, String::new()),
                };
                // A mask in parentheses that contains parentheses has to keep its own.
                let rest = match part.find('(') {
                    Some(at) if part.ends_with(')') && !part[..at].contains('/') => {
                        part[at + 1..part.len() - 1].to_owned()
                    }
                    _ => rest,
                };
                if let Some(value) = fields.get(name) {
                    kept.insert(name.to_owned(), apply(&rest, value));
                }
            }
            Value::Object(kept)
        }
        other => other.clone(),
    }
}

/// Splits at the commas outside parentheses.
fn parts(mask: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (at, c) in mask.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(mask[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(mask[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_have_the_named_fields_only() {
        let value = json!({"n": 1, "m": 2, "files": [{"id": 1, "x": 2, "owners": [{"e": 1, "f": 2}]}]});
        assert_eq!(
            apply("n,files(id,owners(e))", &value),
            json!({"n": 1, "files": [{"id": 1, "owners": [{"e": 1}]}]})
        );
        assert_eq!(apply("files/owners/f", &value), json!({"files": [{"owners": [{"f": 2}]}]}));
        assert_eq!(apply("*", &value), value);
    }
}
