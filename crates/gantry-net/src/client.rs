//! The guarded HTTP client: everything that speaks HTTP to an address which an agent, a page or a provider named.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};
use tokio::time::Instant;
use url::Url;

use crate::policy::{HostPattern, NetworkPolicy};

/// What the operator has decided for every call.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// Reached whatever their addresses are, metadata services excepted.
    pub allowed_hosts: Vec<HostPattern>,
    /// Addresses that count as public, metadata services excepted.
    pub allowed_ranges: Vec<ipnet::IpNet>,
    /// Never taken from the environment.
    pub proxy: Option<Url>,
    /// Certificates believed beside the system's own, as PEM.
    pub extra_roots: Option<Vec<u8>>,
}

/// Cheap to clone; connections are shared between clones.
#[derive(Debug, Clone, Default)]
pub struct Client {
    options: std::sync::Arc<ClientOptions>,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    /// Sent to the origin of `url` alone, never shown, never across origins: credentials.
    pub secret_headers: HeaderMap,
    pub body: Bytes,
    /// Whom the caller may reach; asked again at each hop.
    pub policy: NetworkPolicy,
    pub redirects: Redirects,
    /// Over names, connections, headers, redirects and the body together.
    pub deadline: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// At most [`MAX_REDIRECTS`].
    Follow,
    /// The answer is the redirect itself.
    Stop,
}

pub const MAX_REDIRECTS: usize = 5;

#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    pub version: Version,
    /// As they came; `Content-Encoding` is named though the body below is decoded.
    pub headers: HeaderMap,
    /// Where the answer came from, after redirects.
    pub url: Url,
    pub hops: usize,
    pub body: Body,
}

/// Decoded bytes, as they come, until the request's deadline.
#[derive(Debug)]
pub struct Body {}

/// A body, as far as it was wanted.
#[derive(Debug)]
pub struct ReadBody {
    pub bytes: Vec<u8>,
    /// There was more.
    pub cut: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error("\"{url}\" cannot be reached: {reason}")]
    BadUrl { url: String, reason: &'static str },
    #[error("{host} is not on the list of hosts this agent may reach")]
    NotAllowed { host: String },
    #[error("{host} is at {address}, which is {why}; such addresses are closed to tools")]
    ForbiddenAddress { host: String, address: IpAddr, why: &'static str },
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
        Client { options: std::sync::Arc::new(options) }
    }

    pub async fn send(&self, request: Request) -> Result<Response, NetError> {
        let _ = (&self.options, request);
        Err(NetError::BadUrl { url: String::new(), reason: "the client is being written" })
    }
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

impl Body {
    /// The next decoded bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        Ok(None)
    }

    /// At most `limit` decoded bytes; the rest is left on the wire.
    pub async fn read(mut self, limit: usize) -> Result<ReadBody, NetError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            let room = limit - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                return Ok(ReadBody { bytes, cut: true });
            }
        }
        Ok(ReadBody { bytes, cut: false })
    }
}
