//! Serves the page's files.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gantry_domain::PublicRoute;
use gantry_domain::http::problem;

use crate::page_files::{INDEX, PageFile, content_type};
use crate::page_headers::protect;
use crate::web_domain::WebState;

/// The page's own paths. Each, and everything below it, shows the page, which reads the path.
const SCREENS: [(&str, &str); 14] = [
    ("/chat", "/chat/{*rest}"),
    ("/inbox", "/inbox/{*rest}"),
    ("/sessions", "/sessions/{*rest}"),
    ("/nodes", "/nodes/{*rest}"),
    ("/files", "/files/{*rest}"),
    ("/tools", "/tools/{*rest}"),
    ("/runs", "/runs/{*rest}"),
    ("/schedules", "/schedules/{*rest}"),
    ("/tasks", "/tasks/{*rest}"),
    ("/pipelines", "/pipelines/{*rest}"),
    ("/channels", "/channels/{*rest}"),
    ("/audit", "/audit/{*rest}"),
    ("/usage", "/usage/{*rest}"),
    ("/settings", "/settings/{*rest}"),
];

const MAX_BODY_BYTES: usize = 1024;
const PAGES_PER_MINUTE: u32 = 600;
const FILES_PER_MINUTE: u32 = 12_000;

const ONE_YEAR: &str = "public, max-age=31536000, immutable";

pub(crate) fn routes(state: &Arc<WebState>) -> Vec<PublicRoute> {
    let paths = std::iter::once("/").chain(SCREENS.into_iter().flat_map(|(path, below)| [path, below]));
    let page = |path| PublicRoute {
        path,
        handler: get(index).layer(Extension(state.clone())),
        max_body_bytes: MAX_BODY_BYTES,
        per_minute: PAGES_PER_MINUTE,
    };
    let files = PublicRoute {
        path: "/ui/{hash}/{*name}",
        handler: get(file).layer(Extension(state.clone())),
        max_body_bytes: MAX_BODY_BYTES,
        per_minute: FILES_PER_MINUTE,
    };
    paths.map(page).chain([files]).collect()
}

async fn index(Extension(state): Extension<Arc<WebState>>, headers: HeaderMap) -> Response {
    found(&state, INDEX, "no-cache", &headers)
}

async fn file(
    Extension(state): Extension<Arc<WebState>>,
    Path((hash, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    // The index has its own path, where it is not kept for a year.
    if hash != state.files.hash() || name == INDEX {
        return missing();
    }
    found(&state, &name, ONE_YEAR, &headers)
}

fn found(state: &WebState, name: &str, caching: &'static str, asked: &HeaderMap) -> Response {
    let Some(PageFile { bytes, gzip, etag }) = state.files.get(name) else { return missing() };
    let mut response = match gzip.filter(|_| accepts_gzip(asked)) {
        Some(gzip) => {
            ([(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))], Body::from(gzip)).into_response()
        }
        None => Body::from(bytes).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    let caching = if etag.is_some() { caching } else { "no-store" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    protect(headers);
    if let Some(etag) = etag {
        let known = asked.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
        let is_known = known.is_some_and(|known| known.split(',').any(|one| same_etag(one, &etag)));
        if let Ok(etag) = HeaderValue::from_str(&etag) {
            headers.insert(header::ETAG, etag);
        }
        if is_known {
            headers.remove(header::CONTENT_ENCODING);
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Body::empty();
        }
    }
    response
}

/// Proxies mark a tag as weak when they compress.
fn same_etag(given: &str, own: &str) -> bool {
    let given = given.trim();
    given == "*" || given.strip_prefix("W/").unwrap_or(given) == own
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let given = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|part| part.trim_start_matches("q=").parse::<f32>().is_ok_and(|q| q == 0.0))
    })
}

fn missing() -> Response {
    let hint = Some("reload the page: the gateway may have another version now");
    let mut response = problem(StatusCode::NOT_FOUND, "not_found", "the page has no such file", hint);
    protect(response.headers_mut());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_those_who_accept_it() {
        let accepts = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            accepts_gzip(&headers)
        };
        assert!(accepts("gzip, deflate, br") && accepts("br;q=1.0, GZIP;q=0.8"));
        assert!(!accepts("br") && !accepts("gzip;q=0") && !accepts("") && !accepts("xgzip"));
    }

    #[test]
    fn weak_tags_count() {
        assert!(same_etag("W/\"a\"", "\"a\"") && same_etag(" \"a\"", "\"a\"") && same_etag("*", "\"a\""));
        assert!(!same_etag("\"b\"", "\"a\""));
    }
}
