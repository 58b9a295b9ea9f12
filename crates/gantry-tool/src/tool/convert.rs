//! Converts a checked input to the tool's type. The type limits numbers that the schema does not.

use serde::Deserializer;
use serde::de::DeserializeOwned;

use crate::error::Violation;

/// Ranges of the types that inputs have, as serde names them in its messages.
const RANGES: &[(&str, &str)] = &[
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number from 0 to 18446744073709551615"),
    ("usize", "a whole number from 0 to 18446744073709551615"),
    ("i32", "a whole number from -2147483648 to 2147483647"),
    ("i64", "a whole number from -9223372036854775808 to 9223372036854775807"),
    ("isize", "a whole number from -9223372036854775808 to 9223372036854775807"),
];

/// Converts the input, or names the value that does not fit.
pub(crate) fn convert<'de, I: DeserializeOwned>(
    input: impl Deserializer<'de, Error = serde_json::Error>,
) -> Result<I, Violation> {
    serde_path_to_error::deserialize(input).map_err(|err| {
        let path = err.path().to_string();
        let message = err.into_inner().to_string();
        let expected = message.rsplit_once("expected ").map(|(_, expected)| expected);
        let range = RANGES.iter().find(|(name, _)| Some(*name) == expected);
        Violation {
            // serde's name for the input itself.
            path: if path == "." { String::new() } else { path },
            message: range.map_or(message, |(_, range)| format!("must be {range}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its shape is used")]
    struct Input {
        limit: Option<u32>,
        lines: Vec<Line>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its shape is used")]
    struct Line {
        number: i64,
    }

    #[test]
    fn number_outside_its_type_is_reported_with_the_range() {
        let violation = |input: Value| convert::<Input>(&input).unwrap_err().to_string();
        let message = violation(json!({"limit": 9_007_199_254_740_992_u64, "lines": []}));
        assert_eq!(message, "limit: must be a whole number from 0 to 4294967295");
        let message = violation(json!({"lines": [{"number": 1}, {"number": 1e300}]}));
        assert_eq!(
            message,
            "lines[1].number: must be a whole number from -9223372036854775808 to 9223372036854775807"
        );
        assert!(convert::<Input>(&json!({"limit": null, "lines": [{"number": -5}]})).is_ok());
    }
}
