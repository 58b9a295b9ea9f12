//! Reads the start of a text file, measured in bytes, without splitting a character.

use crate::error::FileError;
use crate::media;
use crate::scope::OpenFile;
use crate::text::{self, Encoding};

/// The largest result, whatever the caller requests.
pub const MAX_PREFIX_BYTES: u64 = 256 * 1024 * 1024;
/// UTF-16 is decoded as a whole.
const MAX_UTF16_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    /// At most the requested bytes, ending between two characters, without a byte-order mark.
    pub text: String,
    /// The file's size in bytes.
    pub size: u64,
    /// Whether the file continues after `text`.
    pub truncated: bool,
}

/// `Cut` says where to cut a text that is longer than requested.
pub struct Cut<'a> {
    /// How many bytes more are read, for `place` to examine.
    pub look_ahead: u64,
    /// Receives a text and the default cut, and returns the position of the cut: there, or before.
    pub place: &'a dyn Fn(&str, usize) -> usize,
}

/// Reads at most `max_bytes` of a text file. Binary content is an error that names its type.
pub fn prefix(file: &OpenFile, max_bytes: u64, cut: &Cut<'_>) -> Result<Prefix, FileError> {
    let binary = |head: &[u8]| FileError::Binary { path: file.path.clone(), mime: media::mime(head) };
    let max_bytes = max_bytes.min(MAX_PREFIX_BYTES);
    let encoding = Encoding::of(&file.read_up_to(4)?);
    if encoding.is_utf16() {
        let bytes = file.read_all(MAX_UTF16_BYTES)?;
        let text = text::decode(&bytes).map_err(|_| binary(&bytes))?.text;
        let end = end_of(&text, max_bytes, cut);
        let truncated = end < text.len();
        return Ok(Prefix { text: text[..end].to_owned(), size: bytes.len() as u64, truncated });
    }
    // One byte more than requested shows whether the file continues.
    let wanted = max_bytes.saturating_add(cut.look_ahead).saturating_add(1);
    let bytes = file.read_up_to(wanted)?;
    let truncated = bytes.len() as u64 > max_bytes;
    let size = if truncated { file.meta.size.max(bytes.len() as u64) } else { bytes.len() as u64 };
    let text = match bytes.len() as u64 == wanted {
        true => text::whole_characters(&bytes),
        false => std::str::from_utf8(&bytes).ok(),
    };
    // Bytes beyond the requested ones need not be text.
    let asked = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let text = text.or_else(|| text::whole_characters(bytes.get(..asked).filter(|_| truncated)?));
    let whole = text.ok_or_else(|| binary(&bytes))?;
    let text = whole.strip_prefix('\u{feff}').unwrap_or(whole);
    // The mark counts among the requested bytes.
    let max_bytes = max_bytes.saturating_sub((whole.len() - text.len()) as u64);
    let end = if truncated { end_of(text, max_bytes, cut) } else { text.len() };
    Ok(Prefix { text: text[..end].to_owned(), size, truncated })
}

fn end_of(text: &str, max_bytes: u64, cut: &Cut<'_>) -> usize {
    let end = text.floor_char_boundary(usize::try_from(max_bytes).unwrap_or(usize::MAX));
    match end < text.len() {
        true => text.floor_char_boundary((cut.place)(text, end).min(end)),
        false => end,
    }
}
