//! Sanitizes text of servers before it is shown: bounded, on one line, without invisible characters.

use gantry_tool::{is_hidden, without_hidden};

const SHOWN_CHARS: usize = 200;
const SHOWN_NAME_CHARS: usize = 64;

/// Returns a server's text, bounded and on one line.
pub(super) fn shown(text: &str) -> String {
    let plain = without_hidden(text);
    let plain = plain.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let short: String = plain.clone().take(SHOWN_CHARS).collect();
    if plain.count() > SHOWN_CHARS { format!("{short}…") } else { short }
}

/// Returns a tool's name for display, bounded and without whitespace.
pub fn shown_name(name: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && !is_hidden(None, c);
    let plain = name.chars().map(|c| if is_plain(c) { c } else { '?' });
    let short: String = plain.take(SHOWN_NAME_CHARS).collect();
    if name.chars().nth(SHOWN_NAME_CHARS).is_some() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_are_removed() {
        assert_eq!(shown("no\u{202e}\u{e0069}\nway"), "no way");
        assert_eq!(shown_name("read_file"), "read_file");
        assert_eq!(shown_name("a\u{1b} b"), "a??b");
        assert_eq!(shown_name(&"x".repeat(5_000)).chars().count(), SHOWN_NAME_CHARS + 1);
    }
}
