//! The door to files.

#![expect(clippy::disallowed_methods, reason = "this crate is the door to files")]

pub mod diff;
mod glob;
pub mod patch;
mod search;
mod walk;

pub use glob::{GLOB_LIMIT, GlobError, Globbed, glob};
pub use search::{
    Found, LINE_CHARS, MATCH_LIMIT, MAX_DIRECTORY_ENTRIES, MAX_LINE_BYTES, Match, SearchError, search,
};
pub use walk::{MAX_LINKED_DIRECTORIES, Skipped, WalkOptions};
