//! Reads the bytes of a message into the parts that the API returns. It is a small reader of its own, so that the product's
//! reader is not its own judge.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};

/// The API returns the content of larger parts by a separate request.
const MAX_INLINE: usize = 200_000;

struct Part {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    parts: Vec<Part>,
}

fn split_head(bytes: &[u8]) -> (&[u8], &[u8]) {
    if bytes.starts_with(b"\r\n") {
        return (&[], &bytes[2..]);
    }
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    end.map_or((bytes, &[]), |end| (&bytes[..end], &bytes[end + 4..]))
}

fn headers(head: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(head);
    let unfolded = text.replace("\r\n ", " ").replace("\r\n\t", " ");
    let pair =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    unfolded.split("\r\n").filter_map(pair).collect()
}

/// Gmail accepts messages whose lines end with a line feed alone.
pub(super) fn with_line_ends(bytes: Vec<u8>) -> Vec<u8> {
    if bytes.windows(2).any(|pair| pair == b"\r\n") {
        return bytes;
    }
    bytes.into_iter().flat_map(|byte| if byte == b'\n' { vec![b'\r', b'\n'] } else { vec![byte] }).collect()
}

/// Whether a line of the head is neither a header nor the rest of one.
pub(super) fn has_broken_header(bytes: &[u8]) -> bool {
    let (head, _) = split_head(bytes);
    let text = String::from_utf8_lossy(head);
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    text.split("\r\n").any(|line| {
        let is_folded = line.starts_with([' ', '\t']);
        !is_folded && !line.split_once(':').is_some_and(|(name, _)| is_name(name))
            || line.contains(['\r', '\n', '\0'])
    })
}

pub(super) fn header(bytes: &[u8], wanted: &str) -> Option<String> {
    let found = headers(split_head(bytes).0).into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    found.map(|(_, value)| value)
}

pub(super) fn has_recipients(bytes: &[u8]) -> bool {
    ["To", "Cc", "Bcc"].iter().any(|name| header(bytes, name).is_some_and(|value| value.contains('@')))
}

fn value<'a>(headers: &'a [(String, String)], wanted: &str) -> &'a str {
    let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    found.map_or("", |(_, value)| value.as_str())
}

fn parameter(header: &str, wanted: &str) -> Option<String> {
    header.split(';').skip(1).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().trim_matches('"').to_owned())
    })
}

fn kind(headers: &[(String, String)]) -> String {
    let kind = value(headers, "Content-Type").split(';').next().unwrap_or_default().trim().to_lowercase();
    if kind.is_empty() { "text/plain".to_owned() } else { kind }
}

fn file_name(headers: &[(String, String)]) -> String {
    let disposition = value(headers, "Content-Disposition");
    if let Some(encoded) = parameter(disposition, "filename*") {
        let text = encoded.splitn(3, '\'').nth(2).unwrap_or_default();
        return percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    }
    let name = parameter(disposition, "filename");
    name.or_else(|| parameter(value(headers, "Content-Type"), "name")).unwrap_or_default()
}

fn read(bytes: &[u8]) -> Part {
    let (head, body) = split_head(bytes);
    let headers = headers(head);
    let mut parts = Vec::new();
    if kind(&headers).starts_with("multipart/")
        && let Some(boundary) = parameter(value(&headers, "Content-Type"), "boundary")
    {
        let text = [b"\r\n", body].concat();
        let separator = format!("\r\n--{boundary}").into_bytes();
        let mut rest: &[u8] = &text;
        let mut starts = Vec::new();
        let mut offset = 0;
        while let Some(at) = rest.windows(separator.len()).position(|window| window == separator) {
            starts.push(offset + at);
            offset += at + separator.len();
            rest = &text[offset..];
        }
        for pair in starts.windows(2) {
            let part = &text[pair[0] + separator.len()..pair[1]];
            parts.push(read(part.strip_prefix(b"\r\n").unwrap_or(part)));
        }
    }
    let body = match value(&headers, "Content-Transfer-Encoding").to_lowercase().as_str() {
        "base64" => {
            let packed: Vec<u8> = body.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
            STANDARD.decode(packed).unwrap_or_default()
        }
        "quoted-printable" => quoted_printable(body),
        _ => body.to_vec(),
    };
    Part { headers, body, parts }
}

fn quoted_printable(body: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let rest = &body[at..];
        if rest.starts_with(b"=\r\n") {
            at += 3;
        } else if rest[0] == b'=' && rest.len() >= 3 {
            let hex = std::str::from_utf8(&rest[1..3]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
            decoded.push(hex.unwrap_or(b'='));
            at += if hex.is_some() { 3 } else { 1 };
        } else {
            decoded.push(rest[0]);
            at += 1;
        }
    }
    decoded
}

fn shown_headers(headers: &[(String, String)]) -> Vec<Value> {
    headers.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// The headers alone. Without a list, all of them.
pub(super) fn metadata(bytes: &[u8], wanted: &[&str]) -> Value {
    let headers = headers(split_head(bytes).0);
    let is_wanted = |(name, _): &(String, String)| {
        wanted.is_empty() || wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
    };
    let mime = kind(&headers);
    let shown: Vec<(String, String)> = headers.into_iter().filter(is_wanted).collect();
    json!({"mimeType": mime, "headers": shown_headers(&shown)})
}

/// All parts. `store` names a part that has to be loaded separately.
pub(super) fn full(bytes: &[u8], store: &mut dyn FnMut(&[usize]) -> String) -> Value {
    shown(&read(bytes), &mut Vec::new(), store)
}

fn shown(part: &Part, path: &mut Vec<usize>, store: &mut dyn FnMut(&[usize]) -> String) -> Value {
    let name = file_name(&part.headers);
    let numbers: Vec<String> = path.iter().map(ToString::to_string).collect();
    let mut shown = json!({
        "partId": numbers.join("."),
        "mimeType": kind(&part.headers),
        "filename": name,
        "headers": shown_headers(&part.headers),
    });
    if !part.parts.is_empty() {
        let mut parts = Vec::new();
        for (number, inner) in part.parts.iter().enumerate() {
            path.push(number);
            parts.push(self::shown(inner, path, store));
            path.pop();
        }
        shown["body"] = json!({"size": 0});
        shown["parts"] = json!(parts);
    } else if !name.is_empty() || part.body.len() > MAX_INLINE {
        shown["body"] = json!({"attachmentId": store(path), "size": part.body.len()});
    } else {
        shown["body"] = json!({"size": part.body.len(), "data": URL_SAFE.encode(&part.body)});
    }
    shown
}

/// The content of one part.
pub(super) fn attachment(bytes: &[u8], path: &[usize]) -> Vec<u8> {
    let mut part = read(bytes);
    for number in path {
        part = part.parts.remove(*number);
    }
    part.body
}

/// The first words of the text.
pub(super) fn snippet(bytes: &[u8]) -> String {
    fn first_text(part: &Part) -> Option<String> {
        let inner = part.parts.iter().find_map(first_text);
        let own = || {
            kind(&part.headers).starts_with("text/").then(|| String::from_utf8_lossy(&part.body).into_owned())
        };
        inner.or_else(own)
    }
    let text = first_text(&read(bytes)).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(150).collect()
}
