//! Tests this crate against the real file system and real programs.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests prepare files, run the programs they compare with, and fail by panicking"
)]

mod closed;
mod containment;
mod crash;
mod glob;
mod part_records;
mod partial_file;
mod patch;
mod patch_oracle;
mod race;
mod refused;
mod scope;
mod search;
mod tree;
mod walk_race;
mod walking;
mod windows;
mod writing;
