//! Promises that hold for every tool of every set, checked by walking the registry: a tool that arrives is covered, or
//! its absence from `probes.rs` is a failure.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests look at the file system from outside, and fail by panicking"
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
