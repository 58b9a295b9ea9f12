//! [`StoredMessage`] is a message as Gmail's API returns it.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use gantry_tool::ToolError;
use jiff::Timestamp;
use serde::Deserialize;

use super::{Ctx, Gmail, READ};
use crate::api::{ApiCall, Service};
use crate::errors::GoogleError;
use crate::ids::segment;
use crate::mail::{Content, Headers, Part};

/// Deeper parts are left out.
const MAX_DEPTH: usize = 30;
/// The headers that a list and a reply need.
const HEADERS: &[&str] =
    &["From", "Reply-To", "To", "Cc", "Subject", "Date", "Message-ID", "References", "In-Reply-To"];
/// The server whose verdict on a sender counts.
const OWN_SERVER: &str = "mx.google.com;";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StoredMessage {
    pub(super) id: String,
    pub(super) thread_id: String,
    pub(super) label_ids: Vec<String>,
    pub(super) snippet: String,
    /// Milliseconds since 1970, as text.
    internal_date: String,
    payload: Payload,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Payload {
    mime_type: String,
    filename: String,
    headers: Vec<Pair>,
    body: Body,
    parts: Vec<Payload>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pair {
    name: String,
    value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Body {
    attachment_id: Option<String>,
    size: u64,
    data: Option<String>,
}

impl StoredMessage {
    pub(super) fn headers(&self) -> Headers {
        Headers::from_pairs(self.payload.headers.iter().map(|pair| (pair.name.as_str(), pair.value.as_str())))
    }

    pub(super) fn is_unread(&self) -> bool {
        self.label_ids.iter().any(|label| label == "UNREAD")
    }

    /// When Gmail got the message.
    pub(super) fn received(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.internal_date.parse().ok()?).ok()
    }

    /// The results of Gmail's own checks of the sender, such as `dkim=pass spf=pass`.
    pub(super) fn sender_checks(&self) -> Option<String> {
        let is_result = |pair: &&Pair| pair.name.eq_ignore_ascii_case("Authentication-Results");
        // Gmail adds its header above those that the sender may have written.
        let first = self.payload.headers.iter().find(is_result)?;
        let results = first.value.trim_start().strip_prefix(OWN_SERVER)?;
        let methods = ["dkim=", "spf=", "dmarc="];
        let is_known = |word: &&str| methods.iter().any(|method| word.starts_with(method));
        let found: Vec<&str> = results.split([' ', ';', '\r', '\n', '\t']).filter(is_known).collect();
        (!found.is_empty()).then(|| found.join(" "))
    }

    /// The tree of the message.
    pub(super) fn part(self) -> Part {
        self.payload.part(0)
    }
}

impl Payload {
    fn part(self, depth: usize) -> Part {
        let value = |name: &str| {
            let found = self.headers.iter().find(|pair| pair.name.eq_ignore_ascii_case(name));
            found.map(|pair| pair.value.clone()).unwrap_or_default()
        };
        let charset = parameter(&value("Content-Type"), "charset");
        let disposition = value("Content-Disposition");
        let is_attachment = disposition.trim_start().to_ascii_lowercase().starts_with("attachment");
        let name = Some(self.filename).filter(|name| !name.is_empty());
        let content = match self.body {
            _ if !self.parts.is_empty() && depth < MAX_DEPTH => {
                Content::Parts(self.parts.into_iter().map(|part| part.part(depth + 1)).collect())
            }
            Body { attachment_id: Some(id), size, .. } => Content::Stored { id, size },
            Body { data: Some(data), .. } => Content::Bytes(decoded(&data).unwrap_or_default()),
            _ => Content::Bytes(Vec::new()),
        };
        let mime = Some(self.mime_type.to_lowercase()).filter(|mime| mime.contains('/'));
        Part { mime: mime.unwrap_or_else(|| "text/plain".to_owned()), charset, name, is_attachment, content }
    }
}

/// The value of a header's parameter.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    header.split(';').skip(1).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        (name.trim().eq_ignore_ascii_case(wanted) && !value.is_empty()).then(|| value.to_owned())
    })
}

/// Decodes base64url, with or without padding.
fn decoded(data: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(data.trim_end_matches('=')).or_else(|_| URL_SAFE.decode(data)).ok()
}

/// The largest answer with an attachment: the largest message, in base64.
const MAX_ATTACHMENT_ANSWER: usize = 50 << 20;

/// Loads a message in full.
pub(super) async fn full(ctx: &Ctx, account: &str, id: &str) -> Result<StoredMessage, ToolError> {
    let request = ApiCall::get(Service::Gmail, format!("/messages/{id}"), READ).with("format", "full");
    let answer = ctx.state.google.api.call(&ctx.call, Some(account), request).await?;
    parsed(answer)
}

/// Loads the headers of a message.
pub(super) async fn metadata(
    gmail: &Gmail,
    call: &gantry_tool::Call,
    account: &str,
    id: &str,
) -> Result<StoredMessage, GoogleError> {
    let request = with_headers(ApiCall::get(Service::Gmail, format!("/messages/{}", segment(id)), READ));
    let answer = gmail.google.api.call(call, Some(account), request).await?;
    serde_json::from_value(answer).map_err(invalid)
}

/// Loads the headers of a thread's messages.
pub(super) async fn thread(
    gmail: &Gmail,
    call: &gantry_tool::Call,
    account: &str,
    id: &str,
) -> Result<Vec<StoredMessage>, GoogleError> {
    #[derive(Deserialize)]
    struct Thread {
        #[serde(default)]
        messages: Vec<StoredMessage>,
    }
    let request = with_headers(ApiCall::get(Service::Gmail, format!("/threads/{}", segment(id)), READ));
    let answer = gmail.google.api.call(call, Some(account), request).await?;
    let thread: Thread = serde_json::from_value(answer).map_err(invalid)?;
    Ok(thread.messages)
}

fn with_headers(request: ApiCall) -> ApiCall {
    let request = request.with("format", "metadata");
    HEADERS.iter().fold(request, |request, name| request.with("metadataHeaders", *name))
}

/// Loads the bytes of a part that a message does not contain.
pub(super) async fn stored_bytes(
    ctx: &Ctx,
    account: &str,
    message: &str,
    id: &str,
) -> Result<Vec<u8>, ToolError> {
    let path = format!("/messages/{message}/attachments/{}", segment(id));
    let request = ApiCall::get(Service::Gmail, path, READ);
    let api = &ctx.state.google.api;
    let bytes = api.bytes(&ctx.call, Some(account), request, MAX_ATTACHMENT_ANSWER).await?;
    let body: Body = serde_json::from_slice(&bytes).map_err(invalid)?;
    body.data.as_deref().and_then(decoded).ok_or_else(|| {
        ToolError::failed(format!(
            "Gmail returned an attachment of the message {message} without valid content"
        ))
    })
}

fn parsed(answer: serde_json::Value) -> Result<StoredMessage, ToolError> {
    serde_json::from_value(answer).map_err(|err| invalid(err).into())
}

fn invalid(err: serde_json::Error) -> GoogleError {
    GoogleError::Invalid { service: Service::Gmail, text: err.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_of_the_api_are_read() {
        let message: StoredMessage = serde_json::from_value(json!({
            "id": "18c0a", "threadId": "18c0a", "labelIds": ["INBOX", "UNREAD"], "internalDate": "1763000000000",
            "payload": {
                "mimeType": "multipart/mixed", "filename": "",
                "headers": [
                    {"name": "Authentication-Results", "value": "mx.google.com;\r\n dkim=pass header.i=@a.example; spf=fail; dmarc=pass"},
                    {"name": "Authentication-Results", "value": "mx.google.com; dkim=forged"},
                    {"name": "From", "value": "Ann <ann@a.example>"},
                ],
                "parts": [
                    {"mimeType": "text/plain", "filename": "", "headers": [{"name": "Content-Type", "value": "text/plain; charset=\"ISO-8859-1\""}],
                     "body": {"size": 4, "data": URL_SAFE.encode(b"gr\xfcn")}},
                    {"mimeType": "application/pdf", "filename": "a.pdf", "headers": [], "body": {"attachmentId": "ANGjd", "size": 12}},
                ],
            },
        }))
        .unwrap();
        assert!(message.is_unread());
        assert_eq!(message.received().unwrap().as_second(), 1_763_000_000);
        assert_eq!(message.sender_checks().as_deref(), Some("dkim=pass spf=fail dmarc=pass"));
        assert_eq!(message.headers().from[0].shown(), "Ann <ann@a.example>");
        let part = message.part();
        assert_eq!(part.text().text, "grün");
        let files = part.attachments();
        assert_eq!((files[0].name.as_str(), files[0].size), ("a.pdf", 12));
        assert!(matches!(files[0].content, Content::Stored { id, .. } if id == "ANGjd"));
    }

    #[test]
    fn checks_of_other_servers_do_not_count() {
        let message: StoredMessage = serde_json::from_value(json!({"payload": {"headers": [
            {"name": "Authentication-Results", "value": "evil.example; dkim=pass"},
        ]}}))
        .unwrap();
        assert_eq!(message.sender_checks(), None);
    }
}
