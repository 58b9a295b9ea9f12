//! One binary for all integration tests of this crate.

mod glob;
mod patch;
mod patch_oracle;
mod random;
mod search;
mod tree;
