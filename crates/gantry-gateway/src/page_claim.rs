//! What a request of the web page shows for its session.
//!
//! A cookie is sent to every port of a host, so the cookie alone proves nothing: a page of another server on this
//! machine has it too. The key lies in the storage of the page's own origin.

use axum::http::{HeaderMap, header};
use gantry_domain::page_cookie_name;

/// The header with the key.
pub(crate) const KEY_HEADER: &str = "gantry-page-key";

/// A server on another port can add cookies of the same name. At most this many are tried.
const MAX_COOKIES: usize = 4;

/// The header with which a browser tells where a request comes from.
const FETCH_SITE: &str = "sec-fetch-site";

pub(crate) struct PageClaim<'a> {
    pub(crate) cookies: Vec<&'a str>,
    pub(crate) key: &'a str,
    /// Whether the gateway's own page sent the request.
    pub(crate) is_own_page: bool,
}

impl<'a> PageClaim<'a> {
    /// Reads the headers of a request. `Host` and `Origin` have been checked before.
    pub(crate) fn of(headers: &'a HeaderMap, key: &'a str) -> PageClaim<'a> {
        PageClaim { cookies: page_cookies(headers), key, is_own_page: is_own_page(headers) }
    }
}

pub(crate) fn page_cookies(headers: &HeaderMap) -> Vec<&str> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = page_cookie_name(host);
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(found, _)| *found == name).map(|(_, value)| value).take(MAX_COOKIES).collect()
}

/// Browsers send `Sec-Fetch-Site` on loopback and over TLS. Elsewhere `Origin` has to be there, and it was checked.
fn is_own_page(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(FETCH_SITE).into_iter();
    match (sites.next(), sites.next()) {
        (Some(site), None) => site == "same-origin",
        (None, _) => headers.contains_key(header::ORIGIN),
        (Some(_), Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn cookie_belongs_to_the_port() {
        let sent = "a=1; gantry-7770=one; gantry-7771=two; gantry-7770=three";
        let of = |host| page_cookies(&headers(&[("host", host), ("cookie", sent)])).join(",");
        assert_eq!(of("127.0.0.1:7770"), "one,three");
        assert_eq!(of("127.0.0.1:7771"), "two");
        assert_eq!(of("127.0.0.1"), "");
    }

    #[test]
    fn tried_cookies_are_bounded() {
        let many = "gantry-7770=x; ".repeat(50);
        let mut headers = headers(&[("host", "localhost:7770")]);
        headers.insert("cookie", HeaderValue::from_str(&many).unwrap());
        assert_eq!(page_cookies(&headers).len(), MAX_COOKIES);
    }

    #[test]
    fn only_requests_of_the_own_page_count() {
        let own = |pairs: &[(&'static str, &'static str)]| is_own_page(&headers(pairs));
        assert!(own(&[("sec-fetch-site", "same-origin")]));
        assert!(own(&[("origin", "http://localhost:7770")]));
        for site in ["same-site", "cross-site", "none", ""] {
            assert!(!own(&[("sec-fetch-site", site), ("origin", "http://localhost:7770")]), "{site}");
        }
        assert!(!own(&[]));
    }
}
