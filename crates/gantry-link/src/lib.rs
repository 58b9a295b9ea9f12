//! One connection that speaks the protocol: a handshake, then requests in both directions, cancellation, events and
//! streams. Knows WebSockets and nothing of gateways, nodes or tools; dialling is `gantry-net`'s.

mod aside;
mod handshake;
mod intake;
mod link;
mod pool;
mod serve;
mod socket;

pub use aside::aside;
pub use handshake::{ConnectRequest, HandshakeError, connect, receive_connect};
pub use intake::Metered;
pub use link::{Closed, Link, LinkError, LinkOptions};
pub use pool::{Account, FREE_BYTES, POOL_BYTES, Pool, ROOM_WAIT, Share, WEIGHT};
pub use serve::{Event, Request, ServeFuture, Service};
pub use socket::{Socket, accepted, upgrade};
