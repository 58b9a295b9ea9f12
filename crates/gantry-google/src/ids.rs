//! Ids from a model are checked before they become part of a URL.

use gantry_tool::ToolError;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const MAX_ID: usize = 1024;
/// What stays as it is in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Escapes one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    // A segment of dots alone would be resolved as a relative path.
    match text.bytes().all(|byte| byte == b'.') {
        true => "%2E".repeat(text.len()),
        false => utf8_percent_encode(text, SEGMENT).to_string(),
    }
}

/// Checks the id of a file, folder, document, spreadsheet, message, thread, draft or label.
pub(crate) fn object_id<'a>(field: &str, id: &'a str) -> Result<&'a str, ToolError> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match (5..=MAX_ID).contains(&id.len()) && id.bytes().all(is_valid) {
        true => Ok(id),
        false => Err(ToolError::input(format!(
            "{field} must be an id: at least 5 letters, digits, - and _, as a search or list returns it"
        ))),
    }
}

/// Requires a field of an action.
pub(crate) fn required<'a, T: ?Sized>(
    action: &str,
    field: &str,
    value: Option<&'a T>,
) -> Result<&'a T, ToolError> {
    value.ok_or_else(|| ToolError::input(format!("{action} needs the field {field}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_cannot_leave_their_segment() {
        for bad in ["", "abcd", "../../x", "a/b/c/d", "abc?d=1", "abcde#", "abc%2Fdef", "äbcdef", "ab cde"] {
            assert!(object_id("file_id", bad).is_err(), "{bad}");
        }
        assert_eq!(object_id("file_id", "1aB_-9xyz").unwrap(), "1aB_-9xyz");
        assert_eq!(segment("../a b'!/ü"), "..%2Fa%20b%27%21%2F%C3%BC");
        assert_eq!(segment(".."), "%2E%2E");
    }
}
