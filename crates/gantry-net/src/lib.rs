//! The door to the network. [`Client`] is for addresses that an agent, a page or a provider names, and guards each of them;
//! [`dial`] is for gateways, whose addresses operators give.
#![expect(clippy::disallowed_methods, reason = "this crate is the door to the network")]

mod client;
mod dial;
mod gateway_url;
mod policy;

pub use client::{
    Body, Client, ClientOptions, MAX_REDIRECTS, NetError, ReadBody, Redirects, Request, Response,
};
pub use dial::{DialError, Stream, Trust, dial};
pub use gateway_url::{GatewayUrl, UrlError};
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
pub use ipnet::IpNet;
pub use policy::{HostPattern, HostPatternError, NetworkPolicy};
pub use url::Url;
