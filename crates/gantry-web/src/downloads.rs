//! `downloads.link`: a URL that works for one request within a minute. The bytes come as an attachment, so that a browser
//! never shows a file as a page of the gateway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use gantry_domain::MethodContext;
use gantry_domain::http::problem;
use gantry_protocol::{DownloadFile, DownloadLink, ErrorCode, WireError};
use gantry_store::{ObjectError, ObjectReader, PlainToken};

use crate::storage_access::{StoredFile, Use};
use crate::web_domain::WebState;

const LIFE: Duration = Duration::from_secs(60);
/// Links that may be open at a time.
const MAX_OPEN: usize = 256;

/// What a browser may do with a downloaded file that it shows after all: nothing.
const SANDBOX: &str = "sandbox; default-src 'none'";

#[derive(Default)]
pub(crate) struct Downloads(Mutex<HashMap<blake3::Hash, Ticket>>);

struct Ticket {
    file: StoredFile,
    offset: u64,
    etag: String,
    issued: Instant,
}

impl Downloads {
    fn open(&self) -> MutexGuard<'_, HashMap<blake3::Hash, Ticket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn issue(&self, ticket: Ticket) -> Result<PlainToken, WireError> {
        let failed = |err| WireError::new(ErrorCode::Internal, format!("cannot make a link: {err}"));
        let name = PlainToken::one_time_code().map_err(failed)?;
        let mut open = self.open();
        open.retain(|_, ticket| ticket.issued.elapsed() < LIFE);
        if open.len() >= MAX_OPEN {
            let message = format!("{MAX_OPEN} downloads were requested within a minute and have not begun");
            return Err(WireError::new(ErrorCode::TooMany, message));
        }
        open.insert(blake3::hash(name.expose().as_bytes()), ticket);
        Ok(name)
    }

    /// Uses a link up.
    fn redeem(&self, name: &str) -> Option<Ticket> {
        let ticket = self.open().remove(&blake3::hash(name.as_bytes()))?;
        (ticket.issued.elapsed() < LIFE).then_some(ticket)
    }
}

pub(crate) async fn link(
    state: Arc<WebState>,
    context: MethodContext,
    params: DownloadFile,
) -> Result<DownloadLink, WireError> {
    let file = StoredFile::parse(params.agent, &params.path)?;
    let work = state.admit(&context, &file, Use::Read).await?;
    let Some(found) = state.objects.head(&file.key).await.map_err(|err| failed(&err))? else {
        let message = format!("there is no file {:?} in the storage of {}", file.path, file.agent);
        return Err(WireError::new(ErrorCode::NotFound, message));
    };
    if params.etag.is_some_and(|etag| etag != found.etag) || params.offset > found.size {
        let message = format!("{} has changed; download it from the beginning", file.path);
        return Err(WireError::new(ErrorCode::Conflict, message));
    }
    let name = file.name().to_owned();
    let ticket = Ticket { file, offset: params.offset, etag: found.etag.clone(), issued: Instant::now() };
    let url = format!("/download/{}", state.downloads.issue(ticket)?.expose());
    work.ended(Ok(()));
    Ok(DownloadLink { url, name, size: found.size, etag: found.etag })
}

pub(crate) async fn download(
    Extension(state): Extension<Arc<WebState>>,
    Path(name): Path<String>,
) -> Response {
    let mut response = match state.downloads.redeem(&name) {
        None => {
            let hint = Some("a link works for one request within a minute");
            problem(StatusCode::NOT_FOUND, "not_found", "this download link was used or has expired", hint)
        }
        Some(ticket) => match state.objects.open(&ticket.file.key, ticket.offset, Some(&ticket.etag)).await {
            Ok(Some(reader)) => attachment(&ticket, reader),
            Ok(None) => problem(StatusCode::NOT_FOUND, "not_found", "the file was removed", None),
            Err(err) => problem(StatusCode::CONFLICT, "conflict", &err.to_string(), None),
        },
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, SANDBOX),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn attachment(ticket: &Ticket, reader: ObjectReader) -> Response {
    let length = reader.info.size.saturating_sub(ticket.offset);
    let blocks = stream::try_unfold(reader, async |mut reader| {
        let block = reader.next().await.map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>(block.map(|block| (block, reader)))
    });
    let mut response = Body::from_stream(Box::pin(blocks)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if let Ok(value) = HeaderValue::from_str(&disposition(ticket.file.name())) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    response
}

/// The name in the form of RFC 8187: every byte that is not a letter or a digit is escaped, but for a few.
fn disposition(name: &str) -> String {
    let mut value = String::from("attachment; filename*=UTF-8''");
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' => value.push(char::from(byte)),
            _ => value.push_str(&format!("%{byte:02X}")),
        }
    }
    value
}

fn failed(err: &ObjectError) -> WireError {
    WireError::new(ErrorCode::Failed, err.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_cannot_leave_its_header() {
        assert_eq!(disposition("a\"; b\r\nc: d"), "attachment; filename*=UTF-8''a%22%3B%20b%0D%0Ac%3A%20d");
        assert_eq!(disposition("ü.png"), "attachment; filename*=UTF-8''%C3%BC.png");
    }

    #[test]
    fn link_works_once() {
        let downloads = Downloads::default();
        let ticket = |issued| Ticket {
            file: StoredFile::parse(None, "a").unwrap_or_else(|err| panic!("{err:?}")),
            offset: 0,
            etag: String::new(),
            issued,
        };
        let now = Instant::now();
        let name = downloads.issue(ticket(now)).unwrap();
        assert!(downloads.redeem("x").is_none());
        assert!(downloads.redeem(name.expose()).is_some());
        assert!(downloads.redeem(name.expose()).is_none());
        if let Some(past) = now.checked_sub(LIFE) {
            let late = downloads.issue(ticket(past)).unwrap();
            assert!(downloads.redeem(late.expose()).is_none());
        }
    }
}
