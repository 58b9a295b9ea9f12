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
#[path = "../../../gantry-store/tests/it/s3_server.rs"]
#[allow(dead_code, reason = "not everything is asked for here")]
mod s3_server;
#[path = "../../../gantry-store/tests/it/s3_wire.rs"]
mod s3_wire;
mod store_faults;
mod transfer_faults;
mod transfer_rules;
mod transfers;
