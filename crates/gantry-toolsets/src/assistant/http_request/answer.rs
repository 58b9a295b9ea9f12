//! What came back, as text: status line, headers without credentials, body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_net::{Body, HeaderMap, HeaderName, Method, NetError, ReadBody, Response, header};
use gantry_store::Profile;
use gantry_tool::{Masker, ToolError};

use super::used::{Used, mask_all};
use super::{is_credential_name, net_error};
use crate::Ctx;
use crate::blocking::blocking;

/// What is read and kept of one answer.
const MAX_KEPT_BYTES: usize = 16 << 20;
const MAX_SHOWN_HEADERS: usize = 100;
const MAX_SHOWN_VALUE: usize = 2_000;
/// JSON that goes deeper stays as it came: indenting it would make more blanks than text.
const MAX_DEPTH: usize = 64;

pub(super) async fn show(
    ctx: &Ctx,
    method: &Method,
    response: Response,
    not_followed: Option<String>,
    used: Used,
    profile: Option<&Profile>,
) -> Result<String, ToolError> {
    let Response { status, version, headers, url, hops, body } = response;
    let reason = status.canonical_reason().unwrap_or_default();
    let mut text = format!("{version:?} {} {reason}", status.as_u16()).trim_end().to_owned();
    text.push('\n');
    text.push_str(&shown_headers(&headers, &used));
    let mut notes = Vec::new();
    if hops > 0 {
        let from = redacted_address(url.as_str());
        notes.push(format!("after {hops} redirect{}, from {from}", if hops == 1 { "" } else { "s" }));
    }
    notes.extend(not_followed.map(|why| format!("the redirect was not followed: {why}")));
    if let (401 | 403, Some(profile)) = (status.as_u16(), profile) {
        notes.push(format!(
            "the API profile \"{}\" added its credentials, and they were not accepted",
            profile.id
        ));
    }
    if *method != Method::HEAD {
        let (read, broken) = read(body).await;
        if let Some(err @ NetError::TimedOut { .. }) = &broken
            && ctx.call.deadline.is_some_and(is_over)
        {
            return Err(used.masked_error(net_error(err.clone())));
        }
        let content_type =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let known = used.clone();
        let shaping = move |ctx: &Ctx, _: &_| shown_body(ctx, read, content_type.as_deref(), &known);
        let (shown, note) = blocking(ctx, shaping).await?;
        text.push('\n');
        text.push_str(&shown);
        notes.extend(note);
        notes.extend(
            broken.map(|err| format!("the body ends here: {err}; the request was sent and answered")),
        );
    }
    for note in notes {
        text.push_str(if text.ends_with('\n') { "" } else { "\n" });
        text.push_str(&format!("[{note}]\n"));
    }
    Ok(used.mask_text(text))
}

fn is_over(deadline: std::time::Instant) -> bool {
    deadline <= std::time::Instant::now()
}

/// As much as came and is kept, and what went wrong with the rest.
async fn read(mut body: Body) -> (ReadBody, Option<NetError>) {
    let mut bytes = Vec::new();
    loop {
        match body.chunk().await {
            Ok(None) => return (ReadBody { bytes, cut: false }, None),
            Err(err) => return (ReadBody { bytes, cut: false }, Some(err)),
            Ok(Some(chunk)) => {
                let room = MAX_KEPT_BYTES - bytes.len();
                // Never more room than is kept: growing by doubling would take twice as much.
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

fn shown_headers(headers: &HeaderMap, used: &Used) -> String {
    let mut text = String::new();
    for (name, value) in headers.iter().take(MAX_SHOWN_HEADERS) {
        let hidden = is_credential_name(name)
            || name.as_str().contains("session")
            || *name == "authentication-info"
            || *name == "proxy-authentication-info";
        let value = match hidden {
            true => "[redacted]".to_owned(),
            false => {
                // Masked before it is cut: half a credential is one too.
                let value = used.mask_text(String::from_utf8_lossy(value.as_bytes()).into_owned());
                let value = if is_address(name) { redacted_address(&value) } else { value };
                let cut = if value.chars().count() > MAX_SHOWN_VALUE { "…" } else { "" };
                format!("{}{cut}", value.chars().take(MAX_SHOWN_VALUE).collect::<String>())
            }
        };
        text.push_str(&format!("{name}: {value}\n"));
    }
    if headers.len() > MAX_SHOWN_HEADERS {
        text.push_str(&format!("[{} more headers]\n", headers.len() - MAX_SHOWN_HEADERS));
    }
    text
}

/// Headers whose value is an address, or holds some.
fn is_address(name: &HeaderName) -> bool {
    matches!(name.as_str(), "location" | "content-location" | "link" | "refresh")
}

/// An address with the values of its secret parameters left out, in query and fragment.
fn redacted_address(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices(['?', '&', '#', ';']) {
        let start = at + 1;
        if start < from {
            continue;
        }
        let end = text[start..].find(['&', '#', '>', ';', ' ', '"']).map_or(text.len(), |end| start + end);
        let Some((name, value)) = text[start..end].split_once('=') else { continue };
        if Masker::is_secret_name(name) && !value.is_empty() {
            out.push_str(&text[from..start + name.len() + 1]);
            out.push_str("[redacted]");
            from = end;
        }
    }
    out.push_str(&text[from..]);
    out
}

/// The body, or as much of it as is shown, and a note on the rest. Masking, decoding and keeping take their time.
fn shown_body(
    ctx: &Ctx,
    read: ReadBody,
    content_type: Option<&str>,
    used: &Used,
) -> Result<(String, Option<String>), ToolError> {
    let ReadBody { bytes, cut } = read;
    let mut bytes = used.mask_bytes(bytes);
    if cut {
        used.drop_torn_end(&mut bytes);
    }
    let read = bytes.len();
    let there = if cut { format!("more than {read}") } else { read.to_string() };
    let unread = if cut { "; what comes after that was not read" } else { "" };
    if read == 0 {
        return Ok((String::new(), None));
    }
    if !is_text(&bytes, content_type) {
        let kind = content_type.unwrap_or("of no stated type").chars().take(100).collect::<String>();
        let handle = keep(ctx, &STANDARD.encode(&bytes))?;
        let note = format!(
            "binary, {kind}, {there} bytes, not shown; kept as base64: result_read with handle {handle}{unread}"
        );
        return Ok((String::new(), Some(note)));
    }
    let decoded = match gantry_page::decode(&bytes, content_type) {
        std::borrow::Cow::Owned(text) => text,
        // The same bytes: they become the text without a copy.
        std::borrow::Cow::Borrowed(same) if same.len() == bytes.len() => String::from_utf8(bytes)
            .map_err(|err| ToolError::internal(format!("decoded text is no text: {err}")))?,
        std::borrow::Cow::Borrowed(part) => part.to_owned(),
    };
    let decoded = plainly_spelt(decoded);
    let text = if cut { None } else { indented(&decoded) };
    let text = mask_all(used, &ctx.state.web().masker, text.unwrap_or(decoded));
    let limit = ctx.state.web().http_response_limit;
    if text.len() <= limit {
        let note = cut.then(|| format!("{there} bytes{unread}"));
        return Ok((text, note));
    }
    let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let shown = text[..end].to_owned();
    let whole = text.len();
    let handle = keep(ctx, &text)?;
    // Its own unit is characters.
    let offset = shown.chars().count();
    let note = format!(
        "cut: {end} of {whole} bytes shown; result_read with handle {handle} and offset {offset} reads on{unread}; the \
         limit is web.httpResponseLimit"
    );
    Ok((shown, Some(note)))
}

fn keep(ctx: &Ctx, text: &str) -> Result<String, ToolError> {
    let kept = ctx.state.results().keep(&ctx.call.principal.to_string(), "http_request", text);
    kept.map(|kept| kept.handle).map_err(|err| ToolError::failed(err.to_string()))
}

/// By what it says it is, and by what it is: a NUL is in no text but UTF-16.
fn is_text(bytes: &[u8], content_type: Option<&str>) -> bool {
    let kind = content_type.unwrap_or_default().to_ascii_lowercase();
    let marked = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") || kind.contains("utf-16");
    if marked {
        return true;
    }
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let named = ["json", "xml", "javascript", "yaml", "csv", "x-www-form-urlencoded", "graphql"];
    let said = essence.starts_with("text/") || named.iter().any(|name| essence.contains(name));
    let head = &bytes[..bytes.len().min(8 * 1024)];
    let nul = head.contains(&0);
    // A character may be cut at the end of the head.
    let utf8 = std::str::from_utf8(head).map_or_else(|err| err.error_len().is_none(), |_| true);
    !nul && (said || utf8)
}

/// JSON whose printable ASCII is not spelt in escapes (`\u0041`): such a spelling hides a known value from the masker.
fn plainly_spelt(text: String) -> String {
    if !text.contains("\\u00") || !text.trim_start().starts_with(['{', '[', '"']) {
        return text;
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at..];
        let code = escape.strip_prefix("\\u").and_then(|digits| digits.get(..4));
        let code = code.and_then(|digits| u8::from_str_radix(digits.strip_prefix("00")?, 16).ok());
        match code.filter(|code| matches!(code, b' '..=b'~') && !matches!(code, b'"' | b'\\')) {
            Some(code) => {
                out.push(char::from(code));
                rest = &escape[6..];
            }
            // Two characters at once, so that an escaped backslash begins nothing.
            None => {
                let length = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
                out.push_str(&escape[..length]);
                rest = &escape[length..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// JSON with line breaks and blanks, character for character otherwise: numbers keep their digits, objects their order.
/// `None` for what is no JSON.
fn indented(text: &str) -> Option<String> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) || serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return None;
    }
    let (mut out, mut depth, mut in_string, mut escaped) =
        (String::with_capacity(text.len() * 2), 0, false, false);
    let mut chars = text.chars().filter(|c| !c.is_control()).peekable();
    while let Some(c) = chars.next() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            out.push(c);
            continue;
        }
        match c {
            '"' => {
                in_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|next| next.is_whitespace()).is_some() {}
                if let Some(close) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return None;
                    }
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_whitespace() => {}
            c => out.push(c),
        }
    }
    Some(out)
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_otherwise_untouched() {
        let text = r#"{"b":[1,2.50,{"x":null}],"a":"q\"{[,:] \\","e":{},"l":[ ],"n":123456789012345678901234567890}"#;
        let expected = "{\n  \"b\": [\n    1,\n    2.50,\n    {\n      \"x\": null\n    }\n  ],\n  \"a\": \"q\\\"{[,:] \\\\\",\n  \"e\": {},\n  \"l\": [],\n  \"n\": 123456789012345678901234567890\n}";
        assert_eq!(indented(text).as_deref(), Some(expected));
        assert_eq!(indented(expected).as_deref(), Some(expected), "again is the same");
        for none in ["", "hello", "{", "{\"a\": 1} x", "[1,]", "\"text\"", "1"] {
            assert_eq!(indented(none), None, "{none}");
        }
        let deep = format!("{}{}", "[1,".repeat(1_000), "[]".to_owned() + &"]".repeat(1_000));
        assert_eq!(indented(&deep), None);
    }

    #[test]
    fn escapes_of_plain_characters_are_spelt_out_and_others_stay() {
        let spelt = |text: &str| plainly_spelt(text.to_owned());
        assert_eq!(
            spelt(r#"["\u0041\u002b\u007E", "\\u0041", "\u0022\u005c\u000a\u00e9\u2028"]"#),
            r#"["A+~", "\\u0041", "\u0022\u005c\u000a\u00e9\u2028"]"#
        );
        for same in [r"text \u0041", r#"["\u00"#, r#"["\u00é1"]"#, r#"["\u00+1"]"#, "[\"\\"] {
            assert_eq!(spelt(same), same);
        }
    }

    #[test]
    fn secret_parameters_of_addresses_are_left_out() {
        for (text, expected) in [
            (
                "/a?b=c&access_token=x#id_token=y&z=1",
                "/a?b=c&access_token=[redacted]#id_token=[redacted]&z=1",
            ),
            ("<https://a/?api_key=x&page=2>; rel=next", "<https://a/?api_key=[redacted]&page=2>; rel=next"),
            ("/plain?q=key", "/plain?q=key"),
            ("0; url=/a?token=x", "0; url=/a?token=[redacted]"),
        ] {
            assert_eq!(redacted_address(text), expected);
        }
    }

    #[test]
    fn text_is_told_from_bytes() {
        assert!(is_text(b"hello", None) && is_text("grö".as_bytes(), Some("application/octet-stream")));
        assert!(is_text(b"gr\xf6\xdfe", Some("text/plain; charset=latin1")));
        assert!(is_text(b"\xff\xfeh\0", None) && is_text(b"h\0i\0", Some("text/plain; charset=utf-16le")));
        assert!(!is_text(b"\x89PNG\r\n\x1a\n\0", Some("image/png")) && !is_text(b"a\0b", Some("text/plain")));
        assert!(!is_text(b"\xff\xd8\xff", None) && !is_text(b"\xff\xd8\xff", Some("image/jpeg")));
    }
}
