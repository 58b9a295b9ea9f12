//! Guarantees that hold for every tool of every toolset. The tests iterate over the registry, so a
//! new tool is covered, or fails the tests until `probes.rs` lists it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests inspect the file system directly, and fail by panicking"
)]

mod absent_fields;
mod containment;
mod denials;
mod descriptions;
mod encodings;
mod internet;
mod memory;
mod network;
mod numbers;
mod probes;
