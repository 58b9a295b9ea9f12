//! Text that is safe on a terminal: control characters of callers are escaped, and only our own styles are kept.

use gantry_tool::is_hidden;

/// Escapes control characters: text from callers must not control the terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' if rest.peek() == Some(&'\n') => shown.push(c),
            c if c.is_control() || is_hidden(before, c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
        before = Some(c);
    }
    shown
}

/// Also escapes line breaks, and carriage returns, which would let the end of a line overwrite its start.
pub(crate) fn one_line(text: &str) -> String {
    unstyled(text).replace('\r', "\\r").replace('\n', "\\n")
}

/// Escapes control characters like [`printable`], but keeps our own colors.
pub(crate) fn unstyled(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (index, part) in text.split("\u{1b}[").enumerate() {
        let code = STYLES
            .iter()
            .chain(&["0"])
            .find(|code| index > 0 && part.strip_prefix(**code).is_some_and(|after| after.starts_with('m')));
        match (code, index) {
            (Some(code), _) => {
                shown.push_str(&format!("\u{1b}[{code}m{}", printable(&part[code.len() + 1..])));
            }
            (None, 0) => shown.push_str(&printable(part)),
            (None, _) => shown.push_str(&printable(&format!("\u{1b}[{part}"))),
        }
    }
    shown
}

/// Escapes the control characters that JSON allows in strings: DEL and the C1 range.
pub(crate) fn tame_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        match c {
            '\n' => shown.push(c),
            c if c.is_control() || is_hidden(before, c) => {
                let units = c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}"))
                    .collect::<String>();
                shown.push_str(&units);
            }
            c => shown.push(c),
        }
        before = Some(c);
    }
    shown
}

/// Codes of the styles: bold, dim, and the colors.
const STYLES: [&str; 5] = ["1", "2", "32", "33", "1;31"];

pub(crate) fn styled(text: &str, code: &str, color: bool) -> String {
    if color { format!("\u{1b}[{code}m{}\u{1b}[0m", printable(text)) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_and_carriage_returns_are_escaped() {
        assert_eq!(one_line("good\r\nevil"), "good\\r\\nevil");
        assert_eq!(one_line("good\revil\u{1b}[2K"), "good\\revil\\u{1b}[2K");
    }
}
