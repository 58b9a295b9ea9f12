//! The body of a response: read up to a limit, masked, shown in part, and stored behind a handle.
//!
//! The body is in memory only once: it is changed in place, or while it is written to the disk.

use std::io::{self, Write};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use gantry_net::{Body, NetError, ReadBody};
use gantry_tool::{Masker, TextLength, ToolError, WriteText};

use super::super::sent_credentials::{SentCredentials, mask_all};
use super::json;
use crate::Ctx;

/// The most bytes of one response that are read and stored.
const MAX_KEPT_BYTES: usize = 16 << 20;
/// The limit for text that is not UTF-8: converting it briefly needs a second copy.
const MAX_CONVERTED_BYTES: usize = 12 << 20;
/// JSON that would be longer than this when indented is not indented.
const MAX_INDENTED_BYTES: usize = 32 << 20;

/// Reads the body up to the limit. Also returns the error that ended it early, if any.
pub(super) async fn read(mut body: Body) -> (ReadBody, Option<NetError>) {
    let mut bytes = Vec::new();
    loop {
        match body.chunk().await {
            Ok(None) => return (ReadBody { bytes, cut: false }, None),
            Err(err) => return (ReadBody { bytes, cut: false }, Some(err)),
            Ok(Some(chunk)) => {
                let room = MAX_KEPT_BYTES - bytes.len();
                // The buffer never grows beyond the limit; doubling could take twice as much
                // memory.
                if bytes.capacity() - bytes.len() < chunk.len() {
                    let more = bytes.len().max(chunk.len()).min(room);
                    bytes.reserve_exact(more);
                }
                bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    return (ReadBody { bytes, cut: true }, None);
                }
            }
        }
    }
}

/// Returns the body, or the shown part of it and a note on the rest. Masking, decoding and storing
/// take time.
pub(super) fn shown(
    ctx: &Ctx,
    read: ReadBody,
    content_type: Option<&str>,
    used: &SentCredentials,
) -> Result<(String, Option<String>), ToolError> {
    let ReadBody { bytes, cut } = read;
    if bytes.is_empty() {
        return Ok((String::new(), None));
    }
    let masker = ctx.state.masker();
    if !is_text(&bytes, content_type) {
        let kind = mask_all(used, masker, content_type.unwrap_or("unknown type").to_owned());
        let kind: String = kind.chars().take(100).collect();
        return keep_binary(ctx, masked_bytes(bytes, cut, used, masker), cut, &kind);
    }
    let count = bytes.len();
    let (text, cut_again) = gantry_page::decode_within(bytes, content_type, MAX_CONVERTED_BYTES);
    let cut = cut || cut_again;
    let unread = unread(cut);
    let text = Shaped::of(masked_text(json::plainly_spelt(text), cut, used, masker), cut);
    let limit = ctx.state.settings().web.http_response_limit;
    let (shown, length) = text.head(limit)?;
    if length.bytes <= limit {
        return Ok((shown, cut.then(|| format!("more than {count} bytes{unread}"))));
    }
    let handle = keep(ctx, length, &mut |file| text.write(&mut |piece| file.write_all(piece.as_bytes())))?;
    // `result_read` counts in characters.
    let offset = shown.chars().count();
    let note = format!(
        "truncated: {} of {} bytes shown; use result_read with handle {handle} and offset {offset} to continue{unread}; the limit is \
         web.httpResponseLimit",
        shown.len(),
        length.bytes
    );
    Ok((shown, Some(note)))
}

fn unread(cut: bool) -> &'static str {
    if cut { "; the rest was not read" } else { "" }
}

fn keep_binary(
    ctx: &Ctx,
    bytes: Vec<u8>,
    cut: bool,
    kind: &str,
) -> Result<(String, Option<String>), ToolError> {
    let count = bytes.len();
    let more = if cut { "more than " } else { "" };
    let characters = base64::encoded_len(count, true).unwrap_or(usize::MAX);
    let length = TextLength { characters, bytes: characters };
    let handle = keep(ctx, length, &mut |file| {
        let mut encoder = EncoderWriter::new(file, &STANDARD);
        encoder.write_all(&bytes)?;
        encoder.finish().map(drop)
    })?;
    let note = format!(
        "binary, {kind}, {more}{count} bytes, not shown; stored as base64: use result_read with handle {handle}{}",
        unread(cut)
    );
    Ok((String::new(), Some(note)))
}

fn keep(ctx: &Ctx, length: TextLength, write: WriteText<'_>) -> Result<String, ToolError> {
    let owner = ctx.call.principal.to_string();
    let kept = ctx.state.results().keep_written(&owner, "http_request", length, write);
    kept.map(|kept| kept.handle).map_err(|err| ToolError::failed(err.to_string()))
}

fn masked_bytes(bytes: Vec<u8>, cut: bool, used: &SentCredentials, masker: &Masker) -> Vec<u8> {
    let mut bytes = used.mask_bytes(bytes);
    masker.mask_bytes(&mut bytes);
    if cut {
        bytes.truncate(bytes.len().saturating_sub(torn(used, masker)));
    }
    bytes
}

fn masked_text(text: String, cut: bool, used: &SentCredentials, masker: &Masker) -> String {
    let mut text = mask_all(used, masker, text);
    if cut {
        let end = text.len().saturating_sub(torn(used, masker));
        text.truncate(text.floor_char_boundary(end));
    }
    text
}

/// The number of bytes to drop from the end of a truncated body: the length of the longest possible
/// start of a credential, whatever the bytes are. Dropping only real matches would reveal a
/// credential letter by letter to anyone who controls the body.
fn torn(used: &SentCredentials, masker: &Masker) -> usize {
    used.longest().max(masker.longest_secret()).saturating_sub(1)
}

/// The text of a body. JSON is indented while it is written.
struct Shaped {
    text: String,
    indented: bool,
}

impl Shaped {
    fn of(text: String, cut: bool) -> Shaped {
        let mut length = 0;
        let indented = !cut
            && json::is_json(&text)
            && json::indent(&text, &mut |piece| {
                length += piece.len();
                if length > MAX_INDENTED_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
            })
            .is_ok();
        Shaped { text, indented }
    }

    fn write(&self, to: &mut dyn FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        if self.indented { json::indent(&self.text, to) } else { to(&self.text) }
    }

    /// Returns at most `limit` bytes, ending with a whole character, and the length of the whole
    /// text.
    fn head(&self, limit: usize) -> Result<(String, TextLength), ToolError> {
        let (mut head, mut length) = (String::new(), TextLength::default());
        let measured = self.write(&mut |piece| {
            // Stops at the first character that does not fit.
            if head.len() == length.bytes {
                head.push_str(&piece[..piece.floor_char_boundary(limit - head.len())]);
            }
            length.bytes += piece.len();
            length.characters += piece.chars().count();
            Ok(())
        });
        measured.map_err(|err| ToolError::internal(format!("cannot measure the body: {err}")))?;
        Ok((head, length))
    }
}

/// Decides by the content type and by the bytes: only UTF-16 text contains NUL bytes.
fn is_text(bytes: &[u8], content_type: Option<&str>) -> bool {
    let kind = content_type.unwrap_or_default().to_ascii_lowercase();
    let marked = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") || kind.contains("utf-16");
    if marked {
        return true;
    }
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let named = ["json", "xml", "javascript", "yaml", "csv", "x-www-form-urlencoded", "graphql"];
    let named_text = essence.starts_with("text/") || named.iter().any(|name| essence.contains(name));
    let head = &bytes[..bytes.len().min(8 * 1024)];
    let nul = head.contains(&0);
    // The end of the head may split a character.
    let utf8 = std::str::from_utf8(head).map_or_else(|err| err.error_len().is_none(), |_| true);
    !nul && (named_text || utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_leaves_no_start_of_a_credential() {
        let mut used = SentCredentials::default();
        used.add("sent-credential");
        let masker = Masker::new(["known-elsewhere".to_owned()]);
        for secret in ["sent-credential", "known-elsewhere"] {
            for length in 1..=secret.len() {
                let text = format!("grüße {}{}", "x".repeat(1_000), &secret[..length]);
                let bytes = masked_bytes(text.clone().into_bytes(), true, &used, &masker);
                let shown = masked_text(text.clone(), true, &used, &masker);
                for shown in [shown, String::from_utf8_lossy(&bytes).into_owned()] {
                    assert!(
                        shown.contains("grüße xxx") && !shown.contains(&secret[..1]),
                        "{length}: {shown}"
                    );
                }
                if length < secret.len() {
                    assert_eq!(
                        masked_text(text.clone(), false, &used, &masker),
                        text,
                        "a whole body is unchanged"
                    );
                }
            }
        }
    }

    #[test]
    fn text_is_distinguished_from_binary() {
        assert!(is_text(b"hello", None) && is_text("grö".as_bytes(), Some("application/octet-stream")));
        assert!(is_text(b"gr\xf6\xdfe", Some("text/plain; charset=latin1")));
        assert!(is_text(b"\xff\xfeh\0", None) && is_text(b"h\0i\0", Some("text/plain; charset=utf-16le")));
        assert!(!is_text(b"\x89PNG\r\n\x1a\n\0", Some("image/png")) && !is_text(b"a\0b", Some("text/plain")));
        assert!(!is_text(b"\xff\xd8\xff", None) && !is_text(b"\xff\xd8\xff", Some("image/jpeg")));
    }
}
