//! Finds `secret:NAME` in a text, which refers to a secret without its value.

use std::ops::Range;

use super::MAX_NAME_BYTES;

const MARK: &str = "secret:";

/// One reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference<'a> {
    pub name: &'a str,
    /// Its position in the text, including `secret:`.
    pub range: Range<usize>,
}

/// Returns every `secret:NAME` of a text, in order.
pub fn references(text: &str) -> impl Iterator<Item = Reference<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        while let Some(at) = text[from..].find(MARK) {
            let (start, name_start) = (from + at, from + at + MARK.len());
            let name = name_at(&text[name_start..]);
            from = name_start + name.len();
            let before = text[..start].chars().next_back();
            if !name.is_empty() && !before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                return Some(Reference { name, range: start..from });
            }
        }
        None
    })
}

/// Returns the longest name at the start of a text, or an empty string.
fn name_at(text: &str) -> &str {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic()) {
        return "";
    }
    let length = text.bytes().take_while(|byte| allowed(*byte)).count();
    // A longer name cannot be stored. It still counts as a name, and the lookup fails.
    &text[..length.min(4 * MAX_NAME_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_at_word_boundaries() {
        let names = |text: &str| references(text).map(|found| found.name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names("Bearer secret:GITHUB"), ["GITHUB"]);
        assert_eq!(names("secret:A secret:b-2_x;secret:C."), ["A", "b-2_x", "C"]);
        for none in ["", "secret:", "secret: A", "topsecret:A", "secret:1", "Secret:A", "secret:é"] {
            assert_eq!(names(none), Vec::<String>::new(), "{none}");
        }
        assert_eq!(references("é secret:A").next().unwrap().range, 3..11);
        assert_eq!(names(&format!("secret:{}", "x".repeat(10_000))).len(), 1);
    }
}
