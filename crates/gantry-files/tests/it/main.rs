//! The door to files against the real file system and real programs.
#![allow(clippy::disallowed_methods, reason = "tests look at the file system from outside")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests, outside of test functions")]

mod closed;
mod containment;
mod crash;
mod glob;
mod patch;
mod patch_oracle;
mod race;
mod random;
mod scope;
mod search;
mod tree;
mod windows;
mod writing;
