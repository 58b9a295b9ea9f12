//! Detects what kind of content a file holds, by its first bytes.

use crate::error::FileError;
use crate::scope::OpenFile;

/// The detector never looks at more bytes.
const HEAD_BYTES: u64 = 8192;
pub(crate) const UNKNOWN: &str = "application/octet-stream";

/// Returns the MIME type by magic bytes, or `application/octet-stream`.
pub fn mime(head: &[u8]) -> &'static str {
    infer::get(head).map_or(UNKNOWN, |kind| kind.mime_type())
}

/// Returns the MIME type of a file by its magic bytes; `None` if it has none, as text has.
pub fn mime_of(file: &OpenFile) -> Result<Option<&'static str>, FileError> {
    let head = file.read_up_to(HEAD_BYTES)?;
    Ok(infer::get(&head).map(|kind| kind.mime_type()))
}
