//! The door to files against the real file system and real programs.
#![allow(clippy::disallowed_methods, reason = "tests look at the file system from outside")]

mod closed;
mod containment;
mod crash;
mod glob;
mod patch;
mod race;
mod scope;
mod search;
mod windows;
mod writing;
