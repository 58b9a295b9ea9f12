//! The start of a text file, by bytes, never splitting a character.

use crate::error::FileError;
use crate::media;
use crate::scope::OpenFile;
use crate::text::{self, Encoding};

/// However much is asked for, no more is returned at once.
pub const MAX_PREFIX_BYTES: u64 = 256 * 1024 * 1024;
/// UTF-16 is decoded as a whole.
const MAX_UTF16_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    /// At most the bytes asked for, ending between two characters; without a byte-order mark.
    pub text: String,
    /// The file's size in bytes.
    pub size: u64,
    /// The file goes on after `text`.
    pub truncated: bool,
}

/// Reads at most `max_bytes` of a text file. Binary content is an error that names its type.
pub fn prefix(file: &OpenFile, max_bytes: u64) -> Result<Prefix, FileError> {
    let binary = |head: &[u8]| FileError::Binary { path: file.path.clone(), mime: media::mime(head) };
    let max_bytes = max_bytes.min(MAX_PREFIX_BYTES);
    let encoding = Encoding::of(&file.read_up_to(4)?);
    if encoding.is_utf16() {
        let bytes = file.read_all(MAX_UTF16_BYTES)?;
        let text = text::decode(&bytes).map_err(|_| binary(&bytes))?.text;
        let end = text.floor_char_boundary(usize::try_from(max_bytes).unwrap_or(usize::MAX));
        let truncated = end < text.len();
        return Ok(Prefix { text: text[..end].to_owned(), size: bytes.len() as u64, truncated });
    }
    // One byte more than asked for tells whether the file goes on.
    let mut bytes = file.read_up_to(max_bytes.saturating_add(1))?;
    let truncated = bytes.len() as u64 > max_bytes;
    let size = if truncated { file.meta.size.max(bytes.len() as u64) } else { bytes.len() as u64 };
    let text = if truncated {
        bytes.pop();
        text::whole_characters(&bytes)
    } else {
        std::str::from_utf8(&bytes).ok()
    };
    let text = text.ok_or_else(|| binary(&bytes))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
    Ok(Prefix { text, size, truncated })
}
