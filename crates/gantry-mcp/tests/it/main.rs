//! The server against the protocol's own suite.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests set up their own world"
)]

mod conformance;
