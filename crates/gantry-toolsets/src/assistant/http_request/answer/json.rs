//! Indents JSON for display. Apart from whitespace and needless escapes, it keeps every character.

use std::io;

/// Deeper JSON is not indented: it would have more spaces than text.
const MAX_DEPTH: usize = 64;
/// The length of `\u0041`.
const ESCAPE_BYTES: usize = 6;
const PIECE_BYTES: usize = 32 * 1024;

/// Replaces escapes of printable ASCII (`\u0041`) in JSON, because they would hide a known secret
/// from the masker. The text only gets shorter, so this works in place.
pub(super) fn plainly_spelt(text: String) -> String {
    if !text.contains("\\u00") || !text.trim_start().starts_with(['{', '[', '"']) {
        return text;
    }
    let mut bytes = text.into_bytes();
    let (mut read, mut written) = (0, 0);
    while let Some(at) = memchr::memchr(b'\\', &bytes[read..]) {
        bytes.copy_within(read..read + at, written);
        (read, written) = (read + at, written + at);
        if let Some(character) = spelt_character(&bytes[read..]) {
            bytes[written] = character;
            (read, written) = (read + ESCAPE_BYTES, written + 1);
        } else {
            // Copies two bytes, so that an escaped backslash does not start an escape.
            let length = (bytes.len() - read).min(2);
            bytes.copy_within(read..read + length, written);
            (read, written) = (read + length, written + length);
        }
    }
    bytes.copy_within(read.., written);
    bytes.truncate(written + bytes.len() - read);
    // Only whole characters were replaced, so the bytes are still UTF-8.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Returns the printable character of an escape, unless JSON requires the escape.
fn spelt_character(escape: &[u8]) -> Option<u8> {
    let digits = escape.strip_prefix(b"\\u00")?.get(..2)?;
    let code = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (matches!(code, b' '..=b'~') && !matches!(code, b'"' | b'\\')).then_some(code)
}

/// Whether the text is a JSON object or array.
pub(super) fn is_json(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Writes indented JSON to `to` in pieces. Numbers keep their digits and objects their order. Fails
/// if `to` fails, or if the JSON is nested too deeply.
pub(super) fn indent(text: &str, to: &mut dyn FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    let (mut out, mut depth, mut in_string, mut escaped) = (String::new(), 0, false, false);
    let mut chars = text.trim().chars().filter(|c| !c.is_control()).peekable();
    while let Some(c) = chars.next() {
        if out.len() >= PIECE_BYTES {
            to(&out)?;
            out.clear();
        }
        if in_string {
            in_string = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            out.push(c);
            continue;
        }
        match c {
            '"' => {
                in_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|next| next.is_whitespace()).is_some() {}
                if let Some(close) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(io::Error::other("nested too deeply"));
                    }
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_whitespace() => {}
            c => out.push(c),
        }
    }
    to(&out)
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indented(text: &str) -> Option<String> {
        let mut whole = String::new();
        let to = &mut |piece: &str| {
            whole.push_str(piece);
            Ok(())
        };
        (is_json(text) && indent(text, to).is_ok()).then_some(whole)
    }

    #[test]
    fn json_is_indented_and_otherwise_unchanged() {
        let text = r#"{"b":[1,2.50,{"x":null}],"a":"q\"{[,:] \\","e":{},"l":[ ],"n":123456789012345678901234567890}"#;
        let expected = "{\n  \"b\": [\n    1,\n    2.50,\n    {\n      \"x\": null\n    }\n  ],\n  \"a\": \"q\\\"{[,:] \\\\\",\n  \"e\": {},\n  \"l\": [],\n  \"n\": 123456789012345678901234567890\n}";
        assert_eq!(indented(text).as_deref(), Some(expected));
        assert_eq!(indented(expected).as_deref(), Some(expected), "indenting twice changes nothing");
        for none in ["", "hello", "{", "{\"a\": 1} x", "[1,]", "\"text\"", "1"] {
            assert_eq!(indented(none), None, "{none}");
        }
        let long = format!("[{}]", vec!["\"é\""; 50_000].join(","));
        assert_eq!(indented(&long).unwrap().replace("\n  ", "").replace('\n', ""), long, "in many pieces");
        let deep = format!("{}{}", "[1,".repeat(1_000), "[]".to_owned() + &"]".repeat(1_000));
        assert_eq!(indented(&deep), None);
    }

    #[test]
    fn only_escapes_of_printable_ascii_are_replaced() {
        let spelt = |text: &str| plainly_spelt(text.to_owned());
        assert_eq!(
            spelt(r#"["\u0041\u002b\u007E", "\\u0041", "\u0022\u005c\u000a\u00e9\u2028"]"#),
            r#"["A+~", "\\u0041", "\u0022\u005c\u000a\u00e9\u2028"]"#
        );
        for same in [r"text \u0041", r#"["\u00"#, r#"["\u00é1"]"#, r#"["\u00+1"]"#, "[\"\\"] {
            assert_eq!(spelt(same), same);
        }
    }
}
