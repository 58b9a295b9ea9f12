//! A gateway and nodes in one process, over real sockets that can be cut.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests set up their own world"
)]

mod fleet;
mod leftovers;
mod liars;
mod rivals;
mod transfer_faults;
mod transfers;
