//! Bytes into text, whatever character set they are in.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use memchr::memmem;

/// Browsers look this far for a `<meta>` that names the character set; some pages need a little more.
const META_WITHIN: usize = 4096;
/// The guess is made from this much.
const GUESS_FROM: usize = 256 * 1024;
/// Before the first byte that tells anything.
const CONTEXT: usize = 1024;

/// The text of `bytes`. A byte-order mark says most, then the `Content-Type` header, then the `<meta>` tag of a page or the declaration
/// of an XML document; what is valid UTF-8 is UTF-8, and the rest is guessed. Bytes that mean nothing become U+FFFD.
pub fn decode<'a>(bytes: &'a [u8], content_type: Option<&str>) -> Cow<'a, str> {
    if let Some((encoding, length)) = Encoding::for_bom(bytes) {
        return encoding.decode_without_bom_handling(&bytes[length..]).0;
    }
    if let Some(encoding) = content_type.and_then(charset).or_else(|| declared(bytes, content_type)) {
        return encoding.decode_without_bom_handling(bytes).0;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        // Cut off within a character, of a text that has shown before that it is UTF-8.
        Err(err) if err.error_len().is_none() && !bytes[..err.valid_up_to()].is_ascii() => {
            String::from_utf8_lossy(bytes)
        }
        Err(_) => guess(bytes).decode_without_bom_handling(bytes).0,
    }
}

/// The character set that a `Content-Type` header names.
fn charset(content_type: &str) -> Option<&'static Encoding> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        name.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(value.as_bytes()))?
    })
}

/// The character set that the document itself names at its beginning.
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
    // Markup that can be read as ASCII is not UTF-16, whatever it says.
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

/// The encoding in `name=label`, quoted or not.
fn value_after(text: &[u8], name: &[u8]) -> Option<&'static Encoding> {
    let after = text[memmem::find(text, name)? + name.len()..].trim_ascii_start();
    let value = after.strip_prefix(b"=")?.trim_ascii_start();
    let value = value.strip_prefix(b"\"").or_else(|| value.strip_prefix(b"'")).unwrap_or(value);
    let ends = |byte: &u8| b"\"';/?>".contains(byte) || byte.is_ascii_whitespace();
    Encoding::for_label(&value[..value.iter().position(ends).unwrap_or(value.len())])
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    // ASCII tells nothing; some of it is context.
    let telling = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or(0);
    let rest = &bytes[telling.saturating_sub(CONTEXT)..];
    let start = &rest[..rest.len().min(GUESS_FROM)];
    detector.feed(start, start.len() == rest.len());
    detector.guess(None, Utf8Detection::Allow)
}
