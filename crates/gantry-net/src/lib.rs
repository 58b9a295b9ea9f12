//! The door to the network. For now it dials gateways, whose addresses operators give; nothing here is for addresses
//! that an agent names.
#![expect(clippy::disallowed_methods, reason = "this crate is the door to the network")]

mod dial;
mod gateway_url;

pub use dial::{DialError, Stream, Trust, dial};
pub use gateway_url::{GatewayUrl, UrlError};
