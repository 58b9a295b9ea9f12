//! Decodes bytes into text, in any character set.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{CoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use memchr::memmem;

/// Browsers look this far for a `<meta>` that names the character set. Some pages need a little
/// more.
const META_WITHIN: usize = 4096;
/// The guess uses this many bytes.
const GUESS_FROM: usize = 256 * 1024;
/// How many bytes before the first non-ASCII byte the guess includes.
const CONTEXT: usize = 1024;

/// Decodes `bytes`. A byte-order mark decides first, then the `Content-Type` header, then the
/// `<meta>` tag of a page or the declaration of an XML document. Without these, valid UTF-8 is
/// UTF-8, and the rest is guessed. Invalid bytes become U+FFFD.
pub fn decode<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    match detect(bytes, content_type) {
        Detected::Text(text) => Cow::Borrowed(text),
        Detected::Encoded { encoding, mark } => encoding.decode_without_bom_handling(&bytes[mark..]).0,
    }
}

/// Like [`decode`], for many bytes in little memory. Valid UTF-8 is converted in place. Anything
/// else is decoded up to `limit` bytes of text. Returns true if there was more.
pub fn decode_within(mut bytes: Vec<u8>, content_type: Option<&str>, limit: usize) -> (String, bool) {
    let (encoding, mark) = match detect(&bytes, content_type) {
        Detected::Text(_) => (UTF_8, 0),
        Detected::Encoded { encoding, mark } => (encoding, mark),
    };
    bytes.drain(..mark);
    if encoding == UTF_8 || (encoding.is_ascii_compatible() && bytes.is_ascii()) {
        match String::from_utf8(bytes) {
            Ok(text) => return (text, false),
            Err(err) => bytes = err.into_bytes(),
        }
    }
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let most = decoder.max_utf8_buffer_length(bytes.len()).unwrap_or(limit);
    // Reserving too much costs nothing, but a buffer that grows exists twice for a moment.
    let mut text = String::with_capacity(most.min(limit));
    let (result, _, _) = decoder.decode_to_string(&bytes, &mut text, true);
    (text, result == CoderResult::OutputFull)
}

/// `Detected` is the encoding of bytes before they are decoded.
enum Detected<'a> {
    Text(&'a str),
    Encoded {
        encoding: &'static Encoding,
        /// The length of the byte-order mark.
        mark: usize,
    },
}

fn detect<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Detected<'a> {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        return Detected::Encoded { encoding, mark };
    }
    if let Some(encoding) = content_type.and_then(charset).or_else(|| declared(bytes, content_type)) {
        return Detected::Encoded { encoding, mark: 0 };
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Detected::Text(text),
        // The text was cut inside a character, but the part before shows that it is UTF-8.
        Err(err) if err.error_len().is_none() && !bytes[..err.valid_up_to()].is_ascii() => {
            Detected::Encoded { encoding: UTF_8, mark: 0 }
        }
        Err(_) => Detected::Encoded { encoding: guess(bytes), mark: 0 },
    }
}

/// Returns the character set that a `Content-Type` header names.
fn charset(content_type: &str) -> Option<&'static Encoding> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        name.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(value.as_bytes()))?
    })
}

/// Returns the character set that the document itself names at its beginning.
fn declared(bytes: &[u8], content_type: Option<&str>) -> Option<&'static Encoding> {
    let head = &bytes[..bytes.len().min(META_WITHIN)];
    let kind = content_type.and_then(|header| header.split(';').next()).unwrap_or_default();
    let may_be_html = kind.trim().is_empty() || kind.to_ascii_lowercase().contains("html");
    let may_be_xml = may_be_html || kind.to_ascii_lowercase().contains("xml");
    let found = if may_be_xml && head.starts_with(b"<?xml") {
        let declaration = &head[..memchr::memchr(b'>', head).unwrap_or(head.len())];
        value_after(declaration, b"encoding")
    } else {
        None
    };
    let found = found.or_else(|| may_be_html.then(|| meta_charset(head)).flatten());
    // Markup that is readable as ASCII cannot be UTF-16, whatever it declares.
    found.map(|encoding| if encoding == UTF_16BE || encoding == UTF_16LE { UTF_8 } else { encoding })
}

fn meta_charset(head: &[u8]) -> Option<&'static Encoding> {
    let lower = head.to_ascii_lowercase();
    memmem::find_iter(&lower, b"<meta").find_map(|at| {
        let tag = &lower[at..];
        let tag = &tag[..memchr::memchr(b'>', tag).unwrap_or(tag.len())];
        value_after(tag, b"charset")
    })
}

/// Returns the encoding in `name=label`, quoted or not.
fn value_after(text: &[u8], name: &[u8]) -> Option<&'static Encoding> {
    let after = text[memmem::find(text, name)? + name.len()..].trim_ascii_start();
    let value = after.strip_prefix(b"=")?.trim_ascii_start();
    let value = value.strip_prefix(b"\"").or_else(|| value.strip_prefix(b"'")).unwrap_or(value);
    let ends = |byte: &u8| b"\"';/?>".contains(byte) || byte.is_ascii_whitespace();
    Encoding::for_label(&value[..value.iter().position(ends).unwrap_or(value.len())])
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    // ASCII says nothing about the encoding; some of it is kept as context.
    let first_non_ascii = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or(0);
    let rest = &bytes[first_non_ascii.saturating_sub(CONTEXT)..];
    let start = &rest[..rest.len().min(GUESS_FROM)];
    detector.feed(start, start.len() == rest.len());
    detector.guess(None, Utf8Detection::Allow)
}
