//! Resolves character references: `&amp;`, `&#8364;`, `&#x20ac;`, and old ones without a semicolon.

use std::borrow::Cow;

use memchr::memchr;
use web_atoms::{C1_REPLACEMENTS, NAMED_ENTITIES};

/// The longest name in the standard's table is shorter.
const LONGEST_NAME: usize = 40;

/// `Place` says where a reference appears, which decides whether `&copy=1` is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Place {
    Text,
    Attribute,
}

/// Returns `text` with its references resolved.
pub(super) fn resolve(text: &str, place: Place) -> Cow<'_, str> {
    let Some(first) = memchr(b'&', text.as_bytes()) else { return Cow::Borrowed(text) };
    let mut resolved = String::with_capacity(text.len());
    resolved.push_str(&text[..first]);
    let mut rest = &text[first..];
    while !rest.is_empty() {
        let length = match reference(rest, place) {
            Some(Reference { characters, length }) => {
                resolved.extend(characters.into_iter().flatten());
                length
            }
            None => {
                resolved.push('&');
                1
            }
        };
        rest = &rest[length..];
        let plain = memchr(b'&', rest.as_bytes()).unwrap_or(rest.len());
        resolved.push_str(&rest[..plain]);
        rest = &rest[plain..];
    }
    Cow::Owned(resolved)
}

struct Reference {
    characters: [Option<char>; 2],
    length: usize,
}

/// Returns the reference at the start of `text`, which begins with `&`.
fn reference(text: &str, place: Place) -> Option<Reference> {
    match text.as_bytes().get(1)? {
        b'#' => numeric(text),
        first if first.is_ascii_alphabetic() => named(text, place),
        _ => None,
    }
}

fn numeric(text: &str) -> Option<Reference> {
    let (radix, from) = match text.as_bytes().get(2)? {
        b'x' | b'X' => (16, 3),
        _ => (10, 2),
    };
    let digits = text[from..].bytes().take_while(|byte| char::from(*byte).is_digit(radix)).count();
    if digits == 0 {
        return None;
    }
    let number = text[from..from + digits]
        .chars()
        .try_fold(0u32, |number, digit| number.checked_mul(radix)?.checked_add(digit.to_digit(radix)?));
    let character = match number {
        None | Some(0) => '\u{fffd}',
        Some(number @ 0x80..=0x9f) => C1_REPLACEMENTS[(number - 0x80) as usize]
            .unwrap_or_else(|| char::from_u32(number).unwrap_or('\u{fffd}')),
        Some(number) => char::from_u32(number).unwrap_or('\u{fffd}'),
    };
    let end = from + digits;
    let length = end + usize::from(text.as_bytes().get(end) == Some(&b';'));
    Some(Reference { characters: [Some(character), None], length })
}

/// Returns the longest name of the table that `text` begins with.
fn named(text: &str, place: Place) -> Option<Reference> {
    let letters = text[1..].bytes().take(LONGEST_NAME).take_while(u8::is_ascii_alphanumeric).count();
    let semicolon = usize::from(text.as_bytes().get(1 + letters) == Some(&b';'));
    (1..=letters + semicolon).rev().find_map(|length| {
        let name = text.get(1..=length)?;
        let (first, second) = *NAMED_ENTITIES.get(name)?;
        // The table also contains prefixes of names, without a value.
        if first == 0 {
            return None;
        }
        let next = text.as_bytes().get(1 + length);
        let in_a_word = next.is_some_and(|next| *next == b'=' || next.is_ascii_alphanumeric());
        if place == Place::Attribute && !name.ends_with(';') && in_a_word {
            return None;
        }
        let second = if second == 0 { None } else { char::from_u32(second) };
        Some(Reference { characters: [char::from_u32(first), second], length: 1 + length })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_like_in_browsers() {
        for (text, resolved) in [
            ("plain", "plain"),
            ("a &amp; b &lt;c&gt; &quot;d&quot;", "a & b <c> \"d\""),
            ("&#8364;&#x20AC;&#X20ac;", "€€€"),
            ("&#150;&#x80;", "–€"),
            ("&#0;&#xD800;&#x110000;&#99999999999999;", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            ("&copy 2026 &copyright &notin; &notit;", "© 2026 ©right ∉ ¬it;"),
            ("&acE;", "∾\u{333}"),
            ("& &; &# &#x &#; &nosuch; &", "& &; &# &#x &#; &nosuch; &"),
            ("&#65", "A"),
            ("&CounterClockwiseContourIntegral;", "∳"),
        ] {
            assert_eq!(resolve(text, Place::Text), resolved, "{text}");
        }
        for (text, resolved) in
            [("?a=1&copy=2&amp;x", "?a=1&copy=2&x"), ("&copyx&copy;", "&copyx©"), ("&copy", "©")]
        {
            assert_eq!(resolve(text, Place::Attribute), resolved, "{text}");
        }
    }
}
