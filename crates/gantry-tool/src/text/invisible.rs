//! Characters that nobody sees: those that take no room, hide words in words, or make a line read otherwise than it is.

/// Whether a reader would not see a character that stands after another. What joins letters or chooses how a sign is
/// drawn is fine after one that can be, and nowhere else.
pub fn is_hidden(before: Option<char>, c: char) -> bool {
    match c {
        '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' => {
            !before.is_some_and(|before| !before.is_ascii() && !is_invisible(before))
        }
        c => is_invisible(c),
    }
}

/// `text` without what is hidden in it.
pub fn without_hidden(text: &str) -> String {
    let mut before = None;
    text.chars().filter(|c| !is_hidden(before.replace(*c), *c)).collect()
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
    fn what_nobody_sees_is_hidden_and_what_people_write_is_not() {
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
