//! A node against a small gateway in the test, over real sockets.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests set up their own world"
)]

mod calls;
mod connecting;
mod gateway;
mod world;
