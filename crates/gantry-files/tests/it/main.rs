//! One binary for all integration tests of this crate.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests prepare files, run the programs they compare with, and fail by panicking"
)]

mod glob;
mod patch;
mod patch_oracle;
mod random;
mod search;
mod tree;
