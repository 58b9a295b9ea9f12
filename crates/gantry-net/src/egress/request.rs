//! One HTTP request: where it goes, checked against its Host header, and how it is forwarded.

use std::io::Write as _;

use super::framing::Framing;
use super::head::{Headers, RequestHead};
use super::place::{Place, Protocol, shown};
use super::refusal::Refusal;

const HTTP: u16 = 80;
const SCHEME: &str = "http://";

/// Headers that the proxy sets itself, or that concern only one connection. Without `Upgrade` the
/// server has no way to switch to another protocol.
const NOT_FORWARDED: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[derive(Debug)]
pub(super) struct PlainRequest {
    pub(super) method: String,
    pub(super) place: Place,
    pub(super) path: String,
    pub(super) framing: Framing,
    headers: Headers,
}

impl PlainRequest {
    /// Checks a request. `tunnel` is the place that the client connected to before, by CONNECT or
    /// SOCKS; without it the request itself names the place.
    pub(super) fn of(head: RequestHead, tunnel: Option<&Place>) -> Result<PlainRequest, Refusal> {
        if head.method == "CONNECT" {
            return Err(Refusal::invalid("CONNECT is not possible inside a tunnel"));
        }
        let (authority, path) = split_target(&head, tunnel.is_some())?;
        let named = authority.map(|text| Place::parse(text, Some(HTTP))).transpose()?;
        let place = match (tunnel, named) {
            (Some(tunnel), Some(named)) if *tunnel != named => return Err(mismatch(&named.host, tunnel)),
            (Some(tunnel), _) => tunnel.clone(),
            (None, Some(named)) => named,
            (None, None) => return Err(not_for_proxies()),
        };
        check_host(&head, &place, HTTP)?;
        if place.protocol()? == Protocol::Tls {
            return Err(Refusal::closed("port 443 is open for TLS only; use https and CONNECT"));
        }
        let framing = Framing::of(&head.headers, head.minor)?;
        Ok(PlainRequest { method: head.method, place, path, framing, headers: head.headers })
    }

    /// Returns the head for the server, or with `proxy` for the operator's proxy. The server closes
    /// the connection after its answer, so no second request can follow.
    pub(super) fn forwarded(&self, proxy: Option<&UpstreamProxy>) -> Vec<u8> {
        let host = self.place.host_header();
        let mut bytes = format!("{} ", self.method).into_bytes();
        if proxy.is_some() {
            bytes.extend(format!("{SCHEME}{host}").bytes());
        }
        let end = format!("{} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n", self.path);
        bytes.extend(end.bytes());
        if let Some(credentials) = proxy.and_then(|proxy| proxy.credentials.as_ref()) {
            bytes.extend(format!("Proxy-Authorization: {credentials}\r\n").bytes());
        }
        // Writing to a vector cannot fail.
        let _ = match self.framing {
            Framing::NoBody => Ok(()),
            Framing::Length(length) => write!(bytes, "Content-Length: {length}\r\n"),
            Framing::Chunked => write!(bytes, "Transfer-Encoding: chunked\r\n"),
        };
        write_headers(&mut bytes, &self.headers, NOT_FORWARDED);
        bytes.extend(b"\r\n");
        bytes
    }
}

/// `UpstreamProxy` is the operator's own proxy, which gets whole URLs.
#[derive(Debug)]
pub(super) struct UpstreamProxy {
    pub(super) credentials: Option<String>,
}

/// Writes headers except the given ones and those that `Connection` names.
pub(super) fn write_headers(bytes: &mut Vec<u8>, headers: &Headers, except: &[&str]) {
    let named = headers.named_by_connection();
    for header in &headers.0 {
        if except.contains(&header.name.as_str()) || named.contains(&header.name) {
            continue;
        }
        bytes.extend(header.name.bytes());
        bytes.extend(b": ");
        bytes.extend(&header.value);
        bytes.extend(b"\r\n");
    }
}

/// Checks that the Host header, if there is one, names the same place as the request itself.
pub(super) fn check_host(head: &RequestHead, place: &Place, default_port: u16) -> Result<(), Refusal> {
    match head.headers.single("host")? {
        Some(host) if Place::parse(host, Some(default_port))? != *place => Err(mismatch(host, place)),
        Some(_) => Ok(()),
        None if head.minor == 0 || head.method == "CONNECT" => Ok(()),
        None => Err(Refusal::invalid("the Host header is missing")),
    }
}

fn mismatch(named: &str, place: &Place) -> Refusal {
    Refusal::closed(format!("the request names the host {}, not {}", shown(named), place.host_header()))
}

/// Returns the host of a whole URL, and the path.
fn split_target(head: &RequestHead, in_tunnel: bool) -> Result<(Option<&str>, String), Refusal> {
    let target = head.target.as_str();
    if target.contains(['#', '\\']) {
        return Err(Refusal::invalid("the URL contains a character that is not valid in a request"));
    }
    if in_tunnel && (target.starts_with('/') || target == "*" && head.method == "OPTIONS") {
        return Ok((None, target.to_owned()));
    }
    let whole = target.split_at_checked(SCHEME.len());
    let Some((_, rest)) = whole.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME)) else {
        return Err(not_for_proxies());
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok((Some(authority), format!("{slash}{path}")))
}

fn not_for_proxies() -> Refusal {
    Refusal::invalid("this is a proxy: it takes CONNECT HOST:443, http:// URLs, and SOCKS5")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tunnel: Option<&str>, text: &str) -> Result<String, String> {
        let reason = |refusal: Refusal| refusal.outcome.reason().to_owned();
        let tunnel = tunnel.map(|text| Place::parse(text, None).unwrap());
        let head = RequestHead::parse(text.as_bytes()).map_err(reason)?;
        let request = PlainRequest::of(head, tunnel.as_ref()).map_err(reason)?;
        Ok(String::from_utf8(request.forwarded(None)).unwrap())
    }

    #[test]
    fn only_headers_for_the_server_are_forwarded() {
        let text = "POST HTTP://A.example:80?q HTTP/1.1\r\nHOST: a.EXAMPLE\r\nProxy-Authorization: Basic x\r\n\
                    Proxy-Connection: keep-alive\r\nConnection: X-Hop, upgrade\r\nX-Hop: 1\r\nUpgrade: h2c\r\n\
                    HTTP2-Settings: x\r\nTE: trailers\r\nAccept: */*\r\nContent-Length: 007\r\n\r\n";
        assert_eq!(
            request(None, text).unwrap(),
            "POST /?q HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 7\r\naccept: */*\r\n\r\n"
        );
    }

    #[test]
    fn operators_proxy_gets_whole_urls_and_credentials() {
        let head = RequestHead::parse(b"GET http://a.example/x HTTP/1.0\r\n\r\n").unwrap();
        let proxy = UpstreamProxy { credentials: Some("Basic eA==".into()) };
        let bytes = PlainRequest::of(head, None).unwrap().forwarded(Some(&proxy));
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nProxy-Authorization: Basic eA==\r\n\r\n"
        );
    }

    #[test]
    fn request_for_another_host_is_refused() {
        let tunnel = Some("a.example:80");
        for (tunnel, text) in [
            (None, "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n"),
            (None, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n"),
            (None, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n"),
            (None, "GET http://a.example/ HTTP/1.1\r\nHost: a.example.\r\n\r\n"),
            (None, "GET http://a.example/ HTTP/1.1\r\nHost: a.example:81\r\n\r\n"),
            (None, "GET http://a.example/ HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n"),
            (None, "GET http://a.example/ HTTP/1.1\r\nHost:\r\n\r\n"),
            (None, "GET http://a.example/ HTTP/1.1\r\n\r\n"),
            (None, "GET http://u:p@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            (None, "GET http://a.example#@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            (None, "GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            (None, "GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            (None, "GET http://a.example:443/ HTTP/1.1\r\nHost: a.example:443\r\n\r\n"),
            (None, "GET http://a.example:8080/ HTTP/1.1\r\nHost: a.example:8080\r\n\r\n"),
            (None, "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            (None, "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            (None, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            (tunnel, "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n"),
            (tunnel, "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            (tunnel, "GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n"),
            (tunnel, "GET / HTTP/1.1\r\n\r\n"),
            (tunnel, "GET * HTTP/1.1\r\nHost: a.example\r\n\r\n"),
            (tunnel, "CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n"),
        ] {
            assert!(request(tunnel, text).is_err(), "{tunnel:?} {text:?}");
        }
        assert!(request(tunnel, "OPTIONS * HTTP/1.1\r\nHost: a.example:80\r\n\r\n").is_ok());
        let service =
            "GET http://host.gantry.internal:3000/ HTTP/1.1\r\nHost: host.gantry.internal:3000\r\n\r\n";
        assert!(request(None, service).unwrap().contains("Host: host.gantry.internal:3000\r\n"));
    }
}
