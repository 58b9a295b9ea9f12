//! What kind of content a file holds, by its first bytes.

use crate::error::FileError;
use crate::scope::OpenFile;

/// As much as the detector ever looks at.
const HEAD_BYTES: u64 = 8192;
pub(crate) const UNKNOWN: &str = "application/octet-stream";

/// The MIME type by magic bytes, or `application/octet-stream`.
pub fn mime(head: &[u8]) -> &'static str {
    infer::get(head).map_or(UNKNOWN, |kind| kind.mime_type())
}

/// The MIME type of a file by its magic bytes; `None` when it has none, as text has.
pub fn mime_of(file: &OpenFile) -> Result<Option<&'static str>, FileError> {
    let head = file.read_up_to(HEAD_BYTES)?;
    Ok(infer::get(&head).map(|kind| kind.mime_type()))
}
