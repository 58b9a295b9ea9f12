//! A gateway and nodes in one process, over real sockets that can be cut.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests set up their own world"
)]

mod duplicate_node;
mod fleet;
mod lying_peers;
mod orphan_parts;
mod store_faults;
mod transfer_faults;
mod transfer_rules;
mod transfers;
