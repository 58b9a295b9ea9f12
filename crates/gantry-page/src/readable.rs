//! Converts any body that a server sent into text, by its header and its bytes.

use url::Url;

use crate::decode::decode;
use crate::html::page;
use crate::pdf::pdf_text;

/// `Readable` is the text of a body of any kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readable {
    pub text: String,
    /// The title, if the page has one.
    pub title: Option<String>,
    /// Whether the document has text beyond `text`.
    pub cut: bool,
}

/// `Unreadable` is a document that cannot be read as text. It says what the document is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// How many characters of a PDF are read.
const MAX_PDF_CHARS: usize = 10_000_000;
/// How many bytes are examined to detect the kind of a document.
const SNIFF: usize = 1024;

/// Returns the text of `bytes`: of a page as a reader sees it, of a PDF page by page, of any other
/// text unchanged. `content_type` is the header as received. If it is missing or meaningless, the
/// bytes decide.
pub fn readable(
    bytes: &[u8],
    content_type: Option<&str>,
    base: Option<&Url>,
) -> Result<Readable, Unreadable> {
    let kind = content_type.and_then(|header| header.split(';').next()).unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    if is_pdf(bytes) {
        let found = pdf_text(bytes, MAX_PDF_CHARS)?;
        return Ok(Readable { text: found.text, title: None, cut: found.cut });
    }
    let unmarked = encoding_rs::Encoding::for_bom(bytes).is_none();
    if unmarked && let Some(known) = infer::get(bytes).filter(|known| !is_text(known.mime_type())) {
        return Err(Unreadable(format!("binary content ({})", known.mime_type())));
    }
    let names_binary = ["image/", "audio/", "video/", "font/"].iter().any(|group| kind.starts_with(group));
    let wide = content_type.is_some_and(|header| header.to_ascii_lowercase().contains("utf-16"));
    let start = &bytes[..bytes.len().min(SNIFF)];
    let nuls = memchr::memchr_iter(0, start).count();
    // A stray NUL does not make a declared text binary.
    let strays = if is_text(&kind) || kind == "application/xhtml+xml" { 1 + start.len() / 128 } else { 0 };
    let looks_binary = unmarked && !wide && nuls > strays;
    if (names_binary && !is_text(&kind)) || looks_binary {
        let kind = if kind.is_empty() { "application/octet-stream" } else { &kind };
        return Err(Unreadable(format!("binary content ({kind})")));
    }
    let mut text = decode(bytes, content_type);
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}").into();
    }
    if is_html(&kind, &text) {
        let page = page(&text, base);
        return Ok(Readable { text: page.text, title: page.title, cut: false });
    }
    Ok(Readable { text: text.into_owned(), title: None, cut: false })
}

/// The signature may follow a little after the beginning.
fn is_pdf(bytes: &[u8]) -> bool {
    memchr::memmem::find(&bytes[..bytes.len().min(SNIFF)], b"%PDF-").is_some_and(|at| {
        at == 0 || bytes[..at].iter().all(|byte| byte.is_ascii_whitespace() || !byte.is_ascii())
    })
}

/// Matches kinds that are text without being `text/…`: SVG, mail, scripts and similar.
fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
        || kind.ends_with("+xml")
        || kind.ends_with("+json")
        || ["application/xml", "application/json", "application/rtf", "message/rfc822", "application/x-sh"]
            .contains(&kind)
}

fn is_html(kind: &str, text: &str) -> bool {
    match kind {
        "text/html" | "application/xhtml+xml" => true,
        "" | "application/octet-stream" | "unknown/unknown" | "application/unknown" | "*/*" => {
            looks_like_html(text)
        }
        _ => false,
    }
}

fn looks_like_html(text: &str) -> bool {
    const FIRST_TAGS: [&str; 14] = [
        "!doctype html",
        "html",
        "head",
        "body",
        "script",
        "title",
        "meta",
        "div",
        "table",
        "h1",
        "style",
        "p",
        "a",
        "br",
    ];
    let mut rest = text.trim_start();
    while let Some(comment) = rest.strip_prefix("<!--") {
        let Some((_, after)) = comment.split_once("-->") else { return false };
        rest = after.trim_start();
    }
    let Some(rest) = rest.strip_prefix('<') else { return false };
    FIRST_TAGS.iter().any(|tag| {
        rest.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag))
            && rest[tag.len()..].starts_with([' ', '>', '\n', '\r', '\t', '/'])
    })
}
