//! Sanitizes descriptions from nodes and MCP servers for prompts and terminals.

use serde_json::Value;

use crate::text::invisible::without_hidden;

/// Removes control characters, reversed text and invisible characters.
pub(crate) fn plain_text(text: &str) -> String {
    let mut plain = without_hidden(text);
    plain.retain(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    plain
}

/// Sanitizes the descriptions in a schema. Its constraints stay as they are.
pub(crate) fn plain_schema(mut schema: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, field) in fields.iter_mut() {
                    match field {
                        Value::String(text)
                            if matches!(key.as_str(), "description" | "title" | "$comment") =>
                        {
                            *text = plain_text(text);
                        }
                        _ => walk(field),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut schema);
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_characters_are_removed_from_descriptions_only() {
        assert_eq!(plain_text("a\u{1b}[31mb\u{7}\n\tc\u{202e}d\r"), "a[31mb\n\tcd");
        assert_eq!(plain_text("adds\u{e0069}\u{e0067}\u{200b}\u{feff} numbers"), "adds numbers");
        let schema = json!({
            "description": "x\u{1b}y", "enum": ["\u{1b}"], "pattern": "\u{7}",
            "properties": {"description": {"type": "string", "description": "\u{9b}z"}},
        });
        let expected = json!({
            "description": "xy", "enum": ["\u{1b}"], "pattern": "\u{7}",
            "properties": {"description": {"type": "string", "description": "z"}},
        });
        assert_eq!(plain_schema(schema), expected);
    }
}
