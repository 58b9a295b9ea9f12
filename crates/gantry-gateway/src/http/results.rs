//! `GET /v1/results/{handle}` returns a stored result, whole or by byte range.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gantry_domain::Identity;
use gantry_domain::http::{internal_error, refusal_response};
use gantry_tool::{ResultError, Surface};

use super::call::agent_of;
use super::{Named, problem};
use crate::callers::Wanted;
use crate::gateway::Gateway;

pub(super) async fn read(
    State(gateway): State<Arc<Gateway>>,
    Extension(identity): Extension<Identity>,
    Named(handle): Named,
    headers: HeaderMap,
) -> Response {
    let agent = match agent_of(&headers) {
        Ok(agent) => agent,
        Err(refused) => return *refused,
    };
    let reader = match gateway.call(&identity, &Wanted { agent, ..Wanted::default() }, Surface::Http) {
        Ok(call) => call.principal.to_string(),
        Err(refusal) => return refusal_response(&refusal),
    };
    let results = gateway.results.clone();
    let page = tokio::task::spawn_blocking(move || results.read(&reader, &handle, 0, usize::MAX, None)).await;
    match page {
        Ok(Ok(page)) => ranged(page.text.into_bytes(), headers.get(header::RANGE)),
        Ok(Err(err @ (ResultError::NotFound(_) | ResultError::BadPattern(_)))) => {
            problem(StatusCode::NOT_FOUND, "not_found", &err.to_string(), None)
        }
        Ok(Err(err)) => internal_error(&err.to_string(), &err),
        Err(err) => internal_error(&err.to_string(), &err),
    }
}

fn ranged(bytes: Vec<u8>, range: Option<&HeaderValue>) -> Response {
    let total = bytes.len();
    let plain = (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned());
    let accepts = (header::ACCEPT_RANGES, "bytes".to_owned());
    // Other units are ignored, as the standard requires.
    let asked = range.and_then(|range| range.to_str().ok()).and_then(|range| range.strip_prefix("bytes="));
    match asked.map(|asked| byte_range(asked, total)) {
        None => (StatusCode::OK, [plain, accepts], bytes).into_response(),
        Some(Some((start, end))) => {
            let part = (header::CONTENT_RANGE, format!("bytes {start}-{}/{total}", end - 1));
            (StatusCode::PARTIAL_CONTENT, [plain, accepts, part], bytes[start..end].to_vec()).into_response()
        }
        Some(None) => {
            let part = [(header::CONTENT_RANGE, format!("bytes */{total}"))];
            (StatusCode::RANGE_NOT_SATISFIABLE, part).into_response()
        }
    }
}

/// Parses a single range `a-b`, `a-` or `-n` to start and end.
fn byte_range(asked: &str, total: usize) -> Option<(usize, usize)> {
    let (start, end) = asked.trim().split_once('-')?;
    let (start, end) = match (start, end) {
        ("", last) => (total.saturating_sub(last.parse().ok()?), total),
        (start, "") => (start.parse().ok()?, total),
        (start, end) => (start.parse().ok()?, end.parse::<usize>().ok()?.saturating_add(1).min(total)),
    };
    (start < end && start < total).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::byte_range;

    #[test]
    fn ranges_follow_the_standard() {
        for (asked, expected) in [
            ("0-9", Some((0, 10))),
            ("90-", Some((90, 100))),
            ("-10", Some((90, 100))),
            ("-1000", Some((0, 100))),
            ("95-1000", Some((95, 100))),
            ("100-", None),
            ("9-2", None),
            ("-0", None),
            ("a-b", None),
            ("0-1,5-6", None),
            ("", None),
        ] {
            assert_eq!(byte_range(asked, 100), expected, "{asked}");
        }
    }
}
