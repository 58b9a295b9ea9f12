//! Decides where a redirect leads, and which parts of the request go there. It follows the Fetch
//! standard, with stricter rules for headers.

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Method, StatusCode};
use url::Url;

use crate::client::{NetError, Request};
use crate::target::shown;

/// Headers that reveal nothing about the sender, so another origin may receive them. All others are
/// dropped.
const FORWARDED_HEADERS: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-language",
    "content-type",
    "if-modified-since",
    "if-none-match",
    "pragma",
    "range",
    "user-agent",
];

/// Headers that are dropped together with the body.
const BODY_HEADERS: &[&str] = &["content-encoding", "content-language", "content-location", "content-type"];

/// `Hop` is what is sent at one hop.
#[derive(Debug, Clone)]
pub(crate) struct Hop {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// Empty after the first hop that left the origin.
    pub(crate) secret_headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Returns where an answer redirects the client, if it does.
pub(crate) fn location(status: StatusCode, headers: &HeaderMap, from: &Url) -> Result<Option<Url>, NetError> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = headers.get(header::LOCATION) else { return Ok(None) };
    let text = String::from_utf8_lossy(location.as_bytes());
    let mut to = from.join(&text).map_err(|err| NetError::Redirect {
        to: text.chars().take(200).collect(),
        reason: err.to_string(),
    })?;
    if to.fragment().is_none() {
        to.set_fragment(from.fragment());
    }
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(refused(&to, "it leads from https to http"));
    }
    Ok(Some(to))
}

pub(crate) fn refused(to: &Url, reason: &str) -> NetError {
    NetError::Redirect { to: shown(to), reason: reason.to_owned() }
}

impl Request {
    /// Returns the next request after this answer, for callers that decide about each hop; `None`
    /// at the end. The rules are those of followed redirects, except for the limit on their number.
    pub fn redirected(&self, status: StatusCode, headers: &HeaderMap) -> Result<Option<Request>, NetError> {
        let Some(to) = location(status, headers, &self.url)? else { return Ok(None) };
        let Request { method, url, headers, secret_headers, body, policy, redirects, deadline } =
            self.clone();
        let Hop { method, url, headers, secret_headers, body } =
            Hop { method, url, headers, secret_headers, body }.next(status, to);
        Ok(Some(Request { method, url, headers, secret_headers, body, policy, redirects, deadline }))
    }
}

impl Hop {
    pub(crate) fn next(mut self, status: StatusCode, to: Url) -> Hop {
        let becomes_get = match status.as_u16() {
            301 | 302 => self.method == Method::POST,
            303 => self.method != Method::GET && self.method != Method::HEAD,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body = Bytes::new();
            for name in BODY_HEADERS {
                self.headers.remove(*name);
            }
        }
        if self.url.origin() != to.origin() {
            self.secret_headers.clear();
            let mut kept = HeaderMap::new();
            for (name, value) in &self.headers {
                if FORWARDED_HEADERS.contains(&name.as_str()) {
                    kept.append(name, value.clone());
                }
            }
            self.headers = kept;
        }
        self.url = to;
        self
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn hop(method: Method) -> Hop {
        let mut headers = HeaderMap::new();
        for name in
            ["accept", "content-type", "content-encoding", "authorization", "cookie", "x-api-key", "origin"]
        {
            headers.insert(name, HeaderValue::from_static("v"));
        }
        let mut secret_headers = HeaderMap::new();
        secret_headers.insert("x-token", HeaderValue::from_static("s"));
        let url = "https://a.example/x#part".parse().unwrap();
        Hop { method, url, headers, secret_headers, body: Bytes::from_static(b"body") }
    }

    fn check(method: Method, status: u16, to: &str) -> String {
        let hop = hop(method).next(StatusCode::from_u16(status).unwrap(), to.parse().unwrap());
        let names = |headers: &HeaderMap| {
            let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
            names.sort_unstable();
            names.join(",")
        };
        format!("{} {} {} {}", hop.method, hop.body.len(), names(&hop.headers), names(&hop.secret_headers))
    }

    #[test]
    fn methods_and_bodies_follow_the_standard() {
        let all = "accept,authorization,content-encoding,content-type,cookie,origin,x-api-key x-token";
        let bare = "accept,authorization,cookie,origin,x-api-key x-token";
        let here = "https://a.example/y";
        for (method, status, expected) in [
            (Method::POST, 301, format!("GET 0 {bare}")),
            (Method::POST, 302, format!("GET 0 {bare}")),
            (Method::POST, 303, format!("GET 0 {bare}")),
            (Method::PUT, 303, format!("GET 0 {bare}")),
            (Method::HEAD, 303, format!("HEAD 4 {all}")),
            (Method::PUT, 301, format!("PUT 4 {all}")),
            (Method::DELETE, 302, format!("DELETE 4 {all}")),
            (Method::POST, 307, format!("POST 4 {all}")),
            (Method::POST, 308, format!("POST 4 {all}")),
        ] {
            assert_eq!(check(method, status, here), expected, "{status}");
        }
    }

    #[test]
    fn only_listed_headers_go_to_another_origin() {
        for elsewhere in ["https://b.example/", "http://a.example/", "https://a.example:8443/"] {
            assert_eq!(check(Method::POST, 307, elsewhere), "POST 4 accept,content-type ");
        }
        let back = hop(Method::GET)
            .next(StatusCode::FOUND, "https://b.example/".parse().unwrap())
            .next(StatusCode::FOUND, "https://a.example/".parse().unwrap());
        assert!(back.secret_headers.is_empty(), "credentials do not come back");
    }

    #[test]
    fn redirects_are_resolved_and_never_downgrade_to_http() {
        let from: Url = "https://a.example/x/y#part".parse().unwrap();
        let go = |text: &str| {
            let headers =
                HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_bytes(text.as_bytes()).unwrap())]);
            match location(StatusCode::FOUND, &headers, &from) {
                Ok(to) => to.map(String::from).unwrap_or_default(),
                Err(err) => err.to_string(),
            }
        };
        assert_eq!(go("z"), "https://a.example/x/z#part");
        assert_eq!(go("//b.example/z#other"), "https://b.example/z#other");
        assert_eq!(
            go("http://a.example/"),
            "the redirect to http://a.example/#part was not followed: it leads from https to http"
        );
        assert!(go("http://[").contains("was not followed"));
        assert_eq!(location(StatusCode::FOUND, &HeaderMap::new(), &from).unwrap(), None);
    }
}
