//! Google's own client libraries judge the server that the tests use in place of Google.
#![allow(clippy::disallowed_methods, reason = "tests start programs and open files")]

mod judge;
mod libraries;
