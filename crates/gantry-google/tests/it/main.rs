//! Google's own client libraries judge the server that the tests use in place of Google.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests start programs, open files and panic"
)]

mod judge;
mod libraries;
