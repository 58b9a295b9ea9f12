//! The guarded client and the egress proxy against servers with arbitrary answers, on loopback and on a private
//! internet.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests start their own servers and fail by panicking"
)]

mod answers;
mod classifier;
mod egress;
mod egress_attacks;
mod egress_clients;
mod egress_limits;
mod egress_rules;
mod hostile;
mod internet;
mod proxy;
mod streams;
mod websockets;
