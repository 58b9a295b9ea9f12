//! Words of strangers, for others to read: what a server says of itself and of its tools, bounded and plain.

use gantry_tool::{is_hidden, without_hidden};
use serde_json::Value;

const SHOWN_CHARS: usize = 200;
const SHOWN_NAME_CHARS: usize = 64;

/// A stranger's words, bounded and on one line.
pub(super) fn shown(text: &str) -> String {
    let plain = without_hidden(text);
    let plain = plain.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let short: String = plain.clone().take(SHOWN_CHARS).collect();
    if plain.count() > SHOWN_CHARS { format!("{short}…") } else { short }
}

/// A tool's name as it is told: a stranger's words, bounded and on one line.
pub fn shown_name(name: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && !is_hidden(None, c);
    let plain = name.chars().map(|c| if is_plain(c) { c } else { '?' });
    let short: String = plain.take(SHOWN_NAME_CHARS).collect();
    if name.chars().nth(SHOWN_NAME_CHARS).is_some() { format!("{short}…") } else { short }
}

/// What a server says of its tool, for others to read: without what steers a terminal, turns lines around or cannot be
/// seen.
pub(super) fn plain(text: &str) -> String {
    let mut plain = without_hidden(text);
    plain.retain(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    plain
}

/// A schema with plain words where it describes; what it demands stays as it is.
pub(super) fn plainly_described(mut schema: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, field) in fields.iter_mut() {
                    match field {
                        Value::String(text)
                            if matches!(key.as_str(), "description" | "title" | "$comment") =>
                        {
                            *text = plain(text);
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
    fn words_that_steer_terminals_are_left_out_and_demands_are_not() {
        assert_eq!(plain("a\u{1b}[31mb\u{7}\n\tc\u{202e}d\r"), "a[31mb\n\tcd");
        assert_eq!(plain("adds\u{e0069}\u{e0067}\u{200b}\u{feff} numbers"), "adds numbers");
        assert_eq!(shown("no\u{202e}\u{e0069}\nway"), "no way");
        let schema = json!({
            "description": "x\u{1b}y", "enum": ["\u{1b}"], "pattern": "\u{7}",
            "properties": {"description": {"type": "string", "description": "\u{9b}z"}},
        });
        let expected = json!({
            "description": "xy", "enum": ["\u{1b}"], "pattern": "\u{7}",
            "properties": {"description": {"type": "string", "description": "z"}},
        });
        assert_eq!(plainly_described(schema), expected);
        assert_eq!(shown_name("read_file"), "read_file");
        assert_eq!(shown_name("a\u{1b} b"), "a??b");
        assert_eq!(shown_name(&"x".repeat(5_000)).chars().count(), SHOWN_NAME_CHARS + 1);
    }
}
