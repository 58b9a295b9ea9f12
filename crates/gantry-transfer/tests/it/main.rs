//! Two services on two folders, connected by a wire that a test can cut and tamper with.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests set up their own world"
)]

mod abandoned;
mod read_only;
mod streams;
mod wire;
