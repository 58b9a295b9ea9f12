//! Words of strangers, for others to read: what a server says of itself and of its tools, bounded and plain.

use serde_json::Value;

const SHOWN_CHARS: usize = 200;
const SHOWN_NAME_CHARS: usize = 64;

/// A stranger's words, bounded and on one line.
pub(super) fn shown(text: &str) -> String {
    let plain: String =
        text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect();
    if text.trim().chars().count() > SHOWN_CHARS { format!("{plain}…") } else { plain }
}

/// A tool's name as it is told: a stranger's words, bounded and on one line.
pub fn shown_name(name: &str) -> String {
    let plain = name.chars().map(|c| if is_plain(c) && !c.is_whitespace() { c } else { '?' });
    let short: String = plain.take(SHOWN_NAME_CHARS).collect();
    if name.chars().nth(SHOWN_NAME_CHARS).is_some() { format!("{short}…") } else { short }
}

/// What a server says of its tool, for others to read: without what steers a terminal or turns lines around.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| is_plain(*c) || matches!(c, '\n' | '\t')).collect()
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

fn is_plain(c: char) -> bool {
    let turns_text_around =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns_text_around
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_that_steer_terminals_are_left_out_and_demands_are_not() {
        assert_eq!(plain("a\u{1b}[31mb\u{7}\n\tc\u{202e}d\r"), "a[31mb\n\tcd");
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
