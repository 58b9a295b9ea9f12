//! Opens, reads and changes files. This is the only crate that opens paths which an agent names.
//!
//! [`Files`] hands out scopes. A [`Scope`] opens, replaces, lists and moves by handle. Windows,
//! edits and line writes work on what was opened. Nothing here knows tools, JSON or the
//! environment, and everything is synchronous.
#![expect(clippy::disallowed_methods, reason = "this crate opens and changes files for the others")]

mod attributes;
mod changed;
mod closed_paths;
pub mod diff;
pub mod edit;
mod error;
mod files;
mod find_by_name;
mod glob;
mod handle;
pub mod line_write;
mod list;
mod lock;
mod manifest;
pub mod media;
mod move_copy_remove;
mod part_records;
mod partial_file;
pub mod patch;
mod place;
pub mod prefix;
mod replace;
mod scope;
mod search;
mod similar_passages;
mod source;
pub mod tag;
mod temp_records;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod update;
mod walk;
pub mod window;

pub use changed::{Changed, ScanLimits, changed_since};
pub use error::FileError;
pub use files::{Files, FilesOptions};
pub use find_by_name::{FindByName, FoundFile, FoundFiles};
pub use glob::{GLOB_LIMIT, GlobError, GlobResult};
pub use handle::FileId;
pub use list::{Entry, EntryKind, ListOptions, Listing, MAX_ENTRIES};
pub use manifest::{Manifest, ManifestEntry, ManifestKind};
pub use move_copy_remove::Moved;
pub use part_records::PartRecords;
pub use partial_file::PartialFile;
pub use replace::{WriteOptions, Written};
pub use scope::{FileMeta, OpenDir, OpenFile, PathTest, Scope};
pub use search::{
    LINE_CHARS, MATCH_LIMIT, MAX_DIRECTORY_ENTRIES, MAX_LINE_BYTES, Match, SearchBase, SearchError,
    SearchResult,
};
pub use similar_passages::Passage;
pub use source::Source;
pub use update::{MAX_UPDATE_BYTES, Update, UpdateOptions};
pub use walk::{MAX_LINKED_DIRECTORIES, Skipped, WalkOptions};
