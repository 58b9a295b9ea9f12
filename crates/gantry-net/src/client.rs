//! The guarded HTTP client, for every request to an address that an agent, a page or a provider
//! named.

use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;
use url::Url;

use crate::body::{Body, Until, innermost};
use crate::connect::{ClosedNetwork, Connector, proxy_authorization};
use crate::decode::encodings;
use crate::guard::Guard;
use crate::policy::{HostPattern, NetworkPolicy};
use crate::redirect::{Hop, location, refused};
use crate::target::{Target, shown};
use crate::tls::Trust;

/// `ClientOptions` holds the operator's settings for every call.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// Hosts that may be reached whatever their addresses are. A metadata service must be named
    /// itself.
    pub allowed_hosts: Vec<HostPattern>,
    /// Like [`ClientOptions::allowed_hosts`], but a metadata service named here stays closed.
    pub private_hosts: Vec<HostPattern>,
    /// Addresses that count as public, except metadata services.
    pub allowed_ranges: Vec<ipnet::IpNet>,
    /// Never read from the environment.
    pub proxy: Option<Url>,
    pub trust: Trust,
}

/// `Client` is cheap to create and to clone. Clones share connections.
#[derive(Debug, Clone, Default)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    options: Arc<ClientOptions>,
    /// Created at the first request.
    wire: OnceLock<Wire>,
}

#[derive(Debug)]
struct Wire {
    guard: Arc<Guard>,
    connector: Connector,
    http: legacy::Client<Connector, Full<Bytes>>,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    /// Credentials. They are sent only to the origin of `url`, never across origins, and never
    /// shown.
    pub secret_headers: HeaderMap,
    pub body: Bytes,
    /// Which hosts the caller may reach. It is checked at each hop.
    pub policy: NetworkPolicy,
    pub redirects: Redirects,
    /// The limit for name lookup, connections, headers, redirects and the body together.
    pub deadline: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// Follows at most [`MAX_REDIRECTS`].
    Follow,
    /// Returns the redirect itself.
    Stop,
}

pub const MAX_REDIRECTS: usize = 5;

/// The limit for status line and headers together. The body is read in pieces of at most this size.
const MAX_HEADER_BYTES: usize = 64 * 1024;
const MAX_HEADERS: usize = 256;
const IDLE_LIMIT: Duration = Duration::from_secs(60);
const MAX_IDLE_PER_HOST: usize = 4;
pub(crate) const USER_AGENT: &str = concat!("gantry/", env!("CARGO_PKG_VERSION"));

/// Only the client sets these headers, which say how a message is framed. Two different statements
/// about that enable request smuggling.
const CLIENT_HEADERS: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reports whether only the client may set a header.
pub fn is_clients_own(header: &str) -> bool {
    CLIENT_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(header))
}

#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    pub version: Version,
    /// As received. `Content-Encoding` is still present although the body is decoded.
    pub headers: HeaderMap,
    /// Where the answer came from, after redirects.
    pub url: Url,
    pub hops: usize,
    /// The answer came from an address that is not public, which the operator opened.
    pub from_closed_network: bool,
    pub body: Body,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum NetError {
    #[error("\"{url}\" cannot be reached: {reason}")]
    BadUrl { url: String, reason: &'static str },
    /// `listed` means that there is a list of hosts, and this host is not on it.
    #[error("{host} {}", if *listed { "is not on the list of hosts this agent may reach" } else { "cannot be reached: this agent may not use the network" })]
    NotAllowed { host: String, listed: bool },
    #[error("{host} is at {address}, which is {why}; such addresses are closed to tools")]
    ForbiddenAddress { host: String, address: IpAddr, why: &'static str },
    #[error("{host} is {why}; such names are closed to tools")]
    ForbiddenName { host: String, why: &'static str },
    #[error("callers may not set the header {name}")]
    BadHeader { name: String },
    #[error("{host} cannot be found: {reason}")]
    Name { host: String, reason: String },
    #[error("cannot connect to {host}: {reason}")]
    Connect { host: String, reason: String },
    #[error("{host} answered with something that is not HTTP: {reason}")]
    Protocol { host: String, reason: String },
    #[error("the redirect to {to} was not followed: {reason}")]
    Redirect { to: String, reason: String },
    #[error("the body cannot be decoded: {0}")]
    Decoding(String),
    #[error("{host} did not finish its answer within {limit:?}")]
    TimedOut { host: String, limit: Duration },
}

impl Client {
    pub fn new(options: ClientOptions) -> Client {
        Client { shared: Arc::new(Shared { options: Arc::new(options), wire: OnceLock::new() }) }
    }

    /// Returns the host of a URL in the form in which it is judged, or why a request there would be
    /// refused. It looks nothing up.
    pub fn permitted_host(&self, url: &Url, policy: &NetworkPolicy) -> Result<String, NetError> {
        let target = Target::of(&mut url.clone())?;
        self.wire().guard.check(&target, policy)?;
        Ok(target.host)
    }

    /// Reports whether the operator named this host among those that may be reached.
    pub fn names_host(&self, host: &str) -> bool {
        self.shared.options.allowed_hosts.iter().any(|pattern| pattern.matches(host))
    }

    pub async fn send(&self, request: Request) -> Result<Response, NetError> {
        for name in request.headers.keys().chain(request.secret_headers.keys()) {
            if is_clients_own(name.as_str()) {
                return Err(NetError::BadHeader { name: name.to_string() });
            }
        }
        let until = Until {
            host: request.url.host_str().unwrap_or_default().to_owned(),
            deadline: request.deadline,
            limit: rounded(request.deadline.saturating_duration_since(Instant::now())),
        };
        match tokio::time::timeout_at(request.deadline, Box::pin(self.follow(request, until.clone()))).await {
            Ok(answer) => answer,
            Err(_) => Err(until.passed()),
        }
    }

    /// For each hop: check, send, and decide where to go next.
    async fn follow(&self, request: Request, until: Until) -> Result<Response, NetError> {
        let Request { method, url, headers, secret_headers, body, policy, redirects, .. } = request;
        let mut hop = Hop { method, url, headers, secret_headers, body };
        let mut hops = 0;
        loop {
            let target = Target::of(&mut hop.url)?;
            self.wire().guard.check(&target, &policy)?;
            let answer = self.exchange(&target, &hop).await?;
            let to = match redirects {
                Redirects::Follow => location(answer.status(), answer.headers(), &hop.url)?,
                Redirects::Stop => None,
            };
            let Some(to) = to else {
                let (parts, wire) = answer.into_parts();
                let until = Until { host: target.host, ..until };
                let encodings =
                    if has_body(&hop.method, parts.status) { encodings(&parts.headers) } else { Ok(vec![]) };
                return Ok(Response {
                    status: parts.status,
                    version: parts.version,
                    headers: parts.headers,
                    url: hop.url,
                    hops,
                    from_closed_network: parts.extensions.get::<ClosedNetwork>().is_some(),
                    body: Body::new(wire, encodings, until),
                });
            };
            if hops == MAX_REDIRECTS {
                return Err(refused(&to, "there were too many redirects"));
            }
            hops += 1;
            hop = hop.next(answer.status(), to);
        }
    }

    async fn exchange(&self, target: &Target, hop: &Hop) -> Result<http::Response<Incoming>, NetError> {
        let bad = || NetError::BadUrl {
            url: shown(&hop.url),
            reason: "it contains characters that are invalid in a request",
        };
        let path = &hop.url[url::Position::BeforePath..url::Position::AfterQuery];
        let uri = Uri::builder()
            .scheme(if target.secure { "https" } else { "http" })
            .authority(target.authority())
            .path_and_query(path)
            .build()
            .map_err(|_| bad())?;
        let mut message = http::Request::new(Full::new(hop.body.clone()));
        *message.method_mut() = hop.method.clone();
        *message.uri_mut() = uri;
        *message.headers_mut() = self.headers(target, hop);
        let answer = self.wire().http.request(message).await.map_err(|err| to_net_error(target, &err))?;
        match has_known_end(answer.headers()) {
            true => Ok(answer),
            false => Err(NetError::Protocol {
                host: target.host.clone(),
                reason: "its transfer encoding is not chunked, so its end is unknown".into(),
            }),
        }
    }

    fn headers(&self, target: &Target, hop: &Hop) -> HeaderMap {
        let mut headers = hop.headers.clone();
        for (name, value) in [
            (header::ACCEPT, "*/*"),
            (header::ACCEPT_ENCODING, "gzip, deflate, br, zstd"),
            (header::USER_AGENT, USER_AGENT),
        ] {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
        if hop.body.is_empty() && matches!(hop.method, Method::POST | Method::PUT | Method::PATCH) {
            // Some servers wait for a body unless the request says that there is none.
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        for name in hop.secret_headers.keys() {
            headers.remove(name);
        }
        for (name, value) in &hop.secret_headers {
            let mut value = value.clone();
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let proxy = self.shared.options.proxy.as_ref().filter(|_| !target.secure);
        let credentials =
            proxy.and_then(proxy_authorization).and_then(|text| HeaderValue::try_from(text).ok());
        if let Some(mut credentials) = credentials {
            credentials.set_sensitive(true);
            headers.insert(header::PROXY_AUTHORIZATION, credentials);
        }
        headers
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.wire().guard
    }

    pub(crate) fn connector(&self) -> Connector {
        self.wire().connector.clone()
    }

    fn wire(&self) -> &Wire {
        self.shared.wire.get_or_init(|| {
            let guard = Arc::new(Guard::new(Arc::clone(&self.shared.options)));
            let connector = Connector::new(Arc::clone(&self.shared.options), Arc::clone(&guard));
            let http = legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_LIMIT)
                .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
                .http1_max_buf_size(MAX_HEADER_BYTES)
                .http1_max_headers(MAX_HEADERS)
                .build(connector.clone());
            Wire { guard, connector, http }
        })
    }
}

/// Rounds to milliseconds, for display.
fn rounded(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from((time.as_micros() + 500) / 1000).unwrap_or(u64::MAX))
}

/// Reports whether a body that may need decoding follows the headers.
fn has_body(method: &Method, status: StatusCode) -> bool {
    *method != Method::HEAD && status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED
}

/// Reports whether the answer's length is known. An answer in an unknown transfer encoding would be
/// read until the server hangs up.
fn has_known_end(headers: &HeaderMap) -> bool {
    let Some(last) = headers.get_all(header::TRANSFER_ENCODING).iter().next_back() else { return true };
    let last = last.to_str().unwrap_or_default().rsplit(',').next().unwrap_or_default().trim();
    last.eq_ignore_ascii_case("chunked") || last.eq_ignore_ascii_case("identity")
}

/// Returns the guard's own error, if the guard refused the connection.
fn to_net_error(target: &Target, err: &legacy::Error) -> NetError {
    let mut source = err.source();
    while let Some(inner) = source {
        if let Some(ours) = inner.downcast_ref::<NetError>() {
            return ours.clone();
        }
        source = inner.source();
    }
    NetError::Protocol { host: target.host.clone(), reason: innermost(err) }
}

impl Request {
    pub fn get(url: Url, deadline: Instant) -> Request {
        Request {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            secret_headers: HeaderMap::new(),
            body: Bytes::new(),
            policy: NetworkPolicy::AllowAll,
            redirects: Redirects::Follow,
            deadline,
        }
    }
}
