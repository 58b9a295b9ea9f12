//! Renders a response as text: status line, headers without credentials, body.

use gantry_apis::Profile;
use gantry_net::{HeaderMap, HeaderName, Method, NetError, Response, header};
use gantry_tool::{Masker, ToolError};

use super::sent_credentials::{SentCredentials, mask_all};
use super::{is_credential_name, net_error};
use crate::Ctx;
use crate::blocking::blocking;

mod body;
mod json;

const MAX_SHOWN_HEADERS: usize = 100;
const MAX_SHOWN_VALUE: usize = 2_000;

pub(super) async fn show(
    ctx: &Ctx,
    method: &Method,
    response: Response,
    not_followed: Option<String>,
    used: SentCredentials,
    profile: Option<&Profile>,
) -> Result<String, ToolError> {
    let Response { status, version, headers, url, hops, body, .. } = response;
    let reason = status.canonical_reason().unwrap_or_default();
    let mut text = format!("{version:?} {} {reason}", status.as_u16()).trim_end().to_owned();
    text.push('\n');
    text.push_str(&shown_headers(&headers, &used, ctx.state.masker()));
    let mut notes = Vec::new();
    if hops > 0 {
        let from = redacted_address(url.as_str());
        notes.push(format!("after {hops} redirect{}, from {from}", if hops == 1 { "" } else { "s" }));
    }
    notes.extend(not_followed.map(|why| format!("the redirect was not followed: {why}")));
    if let (401 | 403, Some(profile)) = (status.as_u16(), profile) {
        notes.push(format!(
            "the API profile \"{}\" added its credentials, and the server rejected them",
            profile.id
        ));
    }
    if *method != Method::HEAD {
        let (read, broken) = body::read(body).await;
        if let Some(err @ NetError::TimedOut { .. }) = &broken
            && ctx.call.deadline.is_some_and(is_over)
        {
            return Err(used.masked_error(net_error(err.clone())));
        }
        let content_type =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let known = used.clone();
        let shaping = move |ctx: &Ctx, _: &_| body::shown(ctx, read, content_type.as_deref(), &known);
        let (shown, note) = blocking(ctx, shaping).await?;
        text.push('\n');
        text.push_str(&shown);
        notes.extend(note);
        notes.extend(
            broken.map(|err| format!("the body is incomplete: {err}; the request was sent and answered")),
        );
    }
    for note in notes {
        text.push_str(if text.ends_with('\n') { "" } else { "\n" });
        text.push_str(&format!("[{}]\n", used.mask_name(note)));
    }
    Ok(used.mask_text(text))
}

fn is_over(deadline: std::time::Instant) -> bool {
    deadline <= std::time::Instant::now()
}

fn shown_headers(headers: &HeaderMap, used: &SentCredentials, masker: &Masker) -> String {
    let mut text = String::new();
    for (name, value) in headers.iter().take(MAX_SHOWN_HEADERS) {
        let hidden = is_credential_name(name)
            || name.as_str().contains("session")
            || *name == "authentication-info"
            || *name == "proxy-authentication-info";
        let value = match hidden {
            true => "[redacted]".to_owned(),
            false => {
                // Masking comes before truncation, which could leave part of a credential.
                let value = mask_all(used, masker, String::from_utf8_lossy(value.as_bytes()).into_owned());
                let value = if is_address(name) { redacted_address(&value) } else { value };
                let cut = if value.chars().count() > MAX_SHOWN_VALUE { "…" } else { "" };
                format!("{}{cut}", value.chars().take(MAX_SHOWN_VALUE).collect::<String>())
            }
        };
        text.push_str(&format!("{}: {value}\n", used.mask_name(name.to_string())));
    }
    if headers.len() > MAX_SHOWN_HEADERS {
        text.push_str(&format!("[{} more headers]\n", headers.len() - MAX_SHOWN_HEADERS));
    }
    text
}

/// Headers whose value is an address or contains addresses.
fn is_address(name: &HeaderName) -> bool {
    matches!(name.as_str(), "location" | "content-location" | "link" | "refresh")
}

/// Redacts the values of secret parameters in an address, in query and fragment.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_parameters_of_addresses_are_redacted() {
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
}
