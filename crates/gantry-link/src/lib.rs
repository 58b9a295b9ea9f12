//! One connection that speaks the protocol: a handshake, then requests in both directions, cancellation, events and
//! streams. Knows WebSockets and nothing of gateways, nodes or tools; dialling is `gantry-net`'s.

mod handshake;
mod link;
mod serve;
mod socket;

pub use handshake::{ConnectRequest, HandshakeError, connect, receive_connect};
pub use link::{Link, LinkError, LinkOptions};
pub use serve::{Event, Request, ServeFuture, Service};
pub use socket::{Socket, accepted, upgrade};
