//! The door to files against the real file system and real programs.
#![allow(clippy::disallowed_methods, reason = "tests look at the file system from outside")]

mod glob;
mod patch;
mod scope;
mod search;
mod skip;
