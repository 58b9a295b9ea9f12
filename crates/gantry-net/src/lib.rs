//! Connects to the network. [`Client`] is for addresses that an agent, a page or a provider names,
//! and guards each of them. [`egress`] does the same for the connections of sandboxed commands.
//! [`dial`] is for gateways, whose addresses come from operators.
#![expect(clippy::disallowed_methods, reason = "this crate connects to the network")]

mod addresses;
mod body;
mod browser_login;
mod client;
mod connect;
mod decode;
mod dial;
pub mod egress;
mod gateway_request;
mod gateway_url;
mod guard;
mod join_code;
mod key_announcement;
mod key_pin;
mod lan_addresses;
mod policy;
mod redirect;
mod stream;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod websocket;

pub use addresses::why_closed;
pub use body::{Body, ReadBody};
pub use browser_login::{LoginPage, LoginPageError, LoginSecrets, Returned};
pub use client::{
    Client, ClientOptions, MAX_REDIRECTS, NetError, Redirects, Request, Response, is_clients_own,
};
pub use dial::{DialError, Stream, dial};
pub use egress::{
    ConnectionRecord, EgressDecision, EgressJudge, EgressLimits, EgressOptions, EgressOutcome, EgressProxy,
    LOOPBACK_SERVICE, PresetKind, Wanted, WantedKind, preset, proxy_environment,
};
pub use gateway_request::{GatewayRequestError, post_to_gateway};
pub use gateway_url::{GatewayUrl, UrlError};
pub use guard::names_metadata;
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
pub use ipnet::IpNet;
pub use join_code::{JOIN_TOKEN_BYTES, JoinAddress, JoinCode, JoinCodeError, MAX_JOIN_ADDRESSES, Proof};
pub use key_announcement::{AnnouncementError, KeyAnnouncement};
pub use key_pin::{KeyPin, KnownKeys};
pub use lan_addresses::lan_addresses;
pub use policy::{HostPattern, HostPatternError, NetworkPolicy};
pub use stream::{GuardedStream, Security};
pub use target::check_address;
pub use tls::Trust;
pub use url::Url;
pub use websocket::{MAX_WEBSOCKET_MESSAGE, WebSocket};
