//! Counts the values of a JSON text without parsing it. A parsed value takes many times the memory of its text, so
//! messages are limited in bytes and in values.

/// The most values in one message.
pub const MAX_VALUES: usize = 500_000;

/// The estimated memory of one parsed value.
pub const VALUE_BYTES: usize = 256;

/// Counts names and values by the brackets, commas and colons outside strings. Invalid JSON gets a count too.
pub fn count_values(json: &[u8]) -> usize {
    let (mut count, mut rest) = (0, json);
    loop {
        let quote = memchr::memchr(b'"', rest).unwrap_or(rest.len());
        count += rest[..quote].iter().filter(|byte| matches!(byte, b'[' | b'{' | b',' | b':')).count();
        let Some(mut text) = rest.get(quote + 1..) else { return count };
        loop {
            match memchr::memchr2(b'"', b'\\', text) {
                None => return count,
                Some(end) if text[end] == b'"' => {
                    rest = &text[end + 1..];
                    break;
                }
                Some(escape) => text = text.get(escape + 2..).unwrap_or_default(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_counted_and_a_string_counts_once() {
        for (json, count) in [
            ("", 0),
            ("7", 0),
            ("[]", 1),
            ("[1,2,3]", 3),
            (r#"{"a":1,"b":[2]}"#, 5),
            (r#"{"a,b:[{":",,,\",,,\\"}"#, 2),
            (r#"[{"":0},{"":0}]"#, 6),
            (r#"["\\",","]"#, 2),
            (r#"["open , \"#, 1),
            (r#"[",,,"#, 1),
        ] {
            assert_eq!(count_values(json.as_bytes()), count, "{json}");
        }
    }
}
