//! The door to files: the only crate that opens paths an agent names.
//!
//! [`Files`] hands out scopes; a [`Scope`] opens, replaces, lists and moves by handle. Windows, edits and line writes
//! are engines on what was opened. Nothing here knows a tool, JSON or the environment; everything is synchronous.
#![expect(clippy::disallowed_methods, reason = "this crate is the door to files")]

mod attributes;
mod closed;
mod closest;
pub mod diff;
pub mod edit;
mod error;
mod files;
mod glob;
mod handle;
pub mod line_write;
mod list;
mod lock;
mod manifest;
pub mod media;
mod moving;
mod named;
mod partial;
mod parts;
pub mod patch;
mod pending;
mod place;
pub mod prefix;
mod replace;
mod scope;
mod search;
mod source;
pub mod tag;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod update;
mod walk;
pub mod window;

pub use closest::Passage;
pub use error::FileError;
pub use files::{Files, FilesOptions};
pub use glob::{GLOB_LIMIT, GlobError, Globbed};
pub use handle::FileId;
pub use list::{Entry, EntryKind, ListOptions, Listing, MAX_ENTRIES};
pub use manifest::{Manifest, ManifestEntry, ManifestKind};
pub use moving::Moved;
pub use named::{Named, NamedFile, NamedOptions};
pub use partial::Partial;
pub use parts::PartRecords;
pub use replace::{WriteOptions, Written};
pub use scope::{FileMeta, OpenDir, OpenFile, PathTest, Scope};
pub use search::{
    Found, LINE_CHARS, MATCH_LIMIT, MAX_DIRECTORY_ENTRIES, MAX_LINE_BYTES, Match, SearchBase, SearchError,
};
pub use source::Source;
pub use update::{MAX_UPDATE_BYTES, Update, UpdateOptions};
pub use walk::{MAX_LINKED_DIRECTORIES, Skipped, WalkOptions};
