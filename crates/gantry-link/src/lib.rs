//! One connection that speaks the protocol: a handshake, then requests in both directions, cancellation,
//! events and streams. The crate knows WebSockets, but no gateways, nodes or tools. `gantry-net` dials.

mod handshake;
mod intake;
mod link;
mod offload;
mod pool;
mod serve;
mod socket;

pub use handshake::{ConnectRequest, HandshakeError, connect, receive_connect};
pub use intake::Metered;
pub use link::{Closed, Link, LinkError, LinkOptions};
pub use offload::offload_if_large;
pub use pool::{Account, FREE_BYTES, MEMORY_FACTOR, POOL_BYTES, Pool, RESERVE_TIMEOUT, Reservation};
pub use serve::{Event, Request, ServeFuture, Service};
pub use socket::{Socket, accepted, upgrade};
