//! Text and its encodings: UTF-8, and UTF-16 with a byte-order mark. Everything else is binary.
//!
//! Text that was read as UTF-16, or with a UTF-8 mark, is written back in the same way.

use std::borrow::Cow;

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF16_LE_MARK: &[u8] = b"\xff\xfe";
const UTF16_BE_MARK: &[u8] = b"\xfe\xff";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Utf8,
    /// UTF-8 that starts with a byte-order mark.
    Utf8Marked,
    Utf16Le,
    Utf16Be,
}

/// `Text` is decoded text, without its byte-order mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text<'a> {
    pub text: Cow<'a, str>,
    pub encoding: Encoding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("binary content ({mime}), not text")]
pub struct NotText {
    pub mime: &'static str,
}

/// `Ending` says how a line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Lf,
    CrLf,
    /// The last line of a file may have no ending.
    None,
}

impl Ending {
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Lf => "\n",
            Ending::CrLf => "\r\n",
            Ending::None => "",
        }
    }
}

impl Encoding {
    /// Determines the encoding from the first bytes. The rest may still be invalid.
    pub fn of(head: &[u8]) -> Encoding {
        if head.starts_with(UTF8_MARK) {
            Encoding::Utf8Marked
        } else if head.starts_with(UTF16_LE_MARK) {
            Encoding::Utf16Le
        } else if head.starts_with(UTF16_BE_MARK) {
            Encoding::Utf16Be
        } else {
            Encoding::Utf8
        }
    }

    pub(crate) fn mark(self) -> &'static [u8] {
        match self {
            Encoding::Utf8 => b"",
            Encoding::Utf8Marked => UTF8_MARK,
            Encoding::Utf16Le => UTF16_LE_MARK,
            Encoding::Utf16Be => UTF16_BE_MARK,
        }
    }

    pub(crate) fn is_utf16(self) -> bool {
        matches!(self, Encoding::Utf16Le | Encoding::Utf16Be)
    }
}

/// Decodes a whole file.
pub fn decode(bytes: &[u8]) -> Result<Text<'_>, NotText> {
    let encoding = Encoding::of(bytes);
    let body = &bytes[encoding.mark().len()..];
    let not_text = || NotText { mime: crate::media::mime(bytes) };
    let text = match encoding {
        Encoding::Utf8 | Encoding::Utf8Marked => {
            std::str::from_utf8(body).map(Cow::Borrowed).map_err(|_| not_text())?
        }
        Encoding::Utf16Le => decode_utf16(encoding_rs::UTF_16LE, body).ok_or_else(not_text)?,
        Encoding::Utf16Be => decode_utf16(encoding_rs::UTF_16BE, body).ok_or_else(not_text)?,
    };
    Ok(Text { text, encoding })
}

fn decode_utf16<'a>(encoding: &'static encoding_rs::Encoding, body: &'a [u8]) -> Option<Cow<'a, str>> {
    encoding.decode_without_bom_handling_and_without_replacement(body)
}

/// Converts edited text back into its original encoding. UTF-8 parts are not copied.
pub fn encode<'a>(encoding: Encoding, parts: Vec<Cow<'a, str>>) -> Vec<Cow<'a, [u8]>> {
    let to_bytes = |part: Cow<'a, str>| match part {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    };
    let mut bytes = vec![Cow::Borrowed(encoding.mark())];
    if !encoding.is_utf16() {
        bytes.extend(parts.into_iter().map(to_bytes));
        return bytes;
    }
    for part in parts {
        let units = part.encode_utf16();
        bytes.push(Cow::Owned(match encoding {
            Encoding::Utf16Be => units.flat_map(u16::to_be_bytes).collect(),
            _ => units.flat_map(u16::to_le_bytes).collect(),
        }));
    }
    bytes
}

/// Returns the ending that most lines of a text have; `None` without a line break.
pub fn main_ending(text: &str) -> Option<Ending> {
    let lf = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    if lf == 0 {
        return None;
    }
    let crlf = memchr::memmem::find_iter(text.as_bytes(), b"\r\n").count();
    Some(if crlf * 2 > lf { Ending::CrLf } else { Ending::Lf })
}

/// Gives every line break of `text` the wanted ending.
pub fn with_ending(text: &str, ending: Option<Ending>) -> Cow<'_, str> {
    match ending {
        Some(Ending::Lf) if text.contains("\r\n") => Cow::Owned(text.replace("\r\n", "\n")),
        Some(Ending::CrLf) if text.contains('\n') => {
            Cow::Owned(text.replace("\r\n", "\n").replace('\n', "\r\n"))
        }
        _ => Cow::Borrowed(text),
    }
}

/// Counts the lines of a text; a last line without an ending counts.
pub fn count_lines(text: &str) -> u64 {
    let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64;
    breaks + u64::from(!text.is_empty() && !text.ends_with('\n'))
}

/// Iterates over the lines of a text, each with its ending.
pub fn lines(text: &str) -> impl Iterator<Item = (&str, Ending)> {
    text.split_inclusive('\n').map(|line| {
        if let Some(line) = line.strip_suffix("\r\n") {
            (line, Ending::CrLf)
        } else if let Some(line) = line.strip_suffix('\n') {
            (line, Ending::Lf)
        } else {
            (line, Ending::None)
        }
    })
}

/// Returns the longest start of `bytes` that is whole characters; `None` if it is not valid UTF-8.
pub(crate) fn whole_characters(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(err) if err.error_len().is_none() => std::str::from_utf8(&bytes[..err.valid_up_to()]).ok(),
        Err(_) => None,
    }
}
