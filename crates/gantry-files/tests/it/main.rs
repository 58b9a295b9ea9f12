//! One binary for all integration tests of this crate.

mod glob;
mod patch;
mod search;
