//! Invisible characters: they have no width, hide text in other text, or reverse the reading direction.

/// Whether a reader does not see the character `c` after `before`. Joiners and variation selectors are fine after a
/// visible non-ASCII character, and hidden elsewhere.
pub fn is_hidden(before: Option<char>, c: char) -> bool {
    match c {
        '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' => {
            !before.is_some_and(|before| !before.is_ascii() && !is_invisible(before))
        }
        c => is_invisible(c),
    }
}

/// `text` without its invisible characters.
pub fn without_hidden(text: &str) -> String {
    let mut before = None;
    text.chars().filter(|c| !is_hidden(before.replace(*c), *c)).collect()
}

/// `text` on one line: line breaks, other control characters and invisible characters are escaped, so that a text cannot
/// imitate what surrounds it.
pub fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        if c.is_control() || is_hidden(before.replace(c), c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_removed_and_ordinary_text_is_kept() {
        for hidden in [
            "\u{e0069}",
            "\u{e007f}",
            "\u{200b}",
            "\u{200e}",
            "\u{202e}",
            "\u{2060}",
            "\u{2064}",
            "\u{2069}",
            "\u{feff}",
            "\u{fe00}",
            "\u{e0100}",
            "\u{200d}",
            "\u{fe0f}",
            "\u{ad}",
        ] {
            assert_eq!(without_hidden(&format!("a{hidden}b")), "ab", "{}", hidden.escape_unicode());
        }
        let two = "❤\u{fe0f}\u{fe0f}\u{fe0f}";
        assert_eq!(without_hidden(two), "❤\u{fe0f}", "one is enough");
        for plain in ["ordinary, größer, 日本語", "👨\u{200d}👩\u{200d}👧", "❤\u{fe0f}", "می\u{200c}خواهم"]
        {
            assert_eq!(without_hidden(plain), plain);
        }
    }
}
