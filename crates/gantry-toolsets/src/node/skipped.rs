//! The report of skipped paths that `Glob` and `Grep` share.

use schemars::JsonSchema;
use serde::Serialize;

/// Paths that were not searched; absent if there are none.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Skipped {
    /// Files and directories that may hold keys or credentials; this caller would need approval.
    #[serde(skip_serializing_if = "is_zero")]
    sensitive: u64,
    /// Files and directories that could not be opened or read.
    #[serde(skip_serializing_if = "is_zero")]
    unreadable: u64,
    /// Lines too long to search (over 16 MB).
    #[serde(skip_serializing_if = "is_zero")]
    long_lines: u64,
    /// Directories with too many entries to search them all.
    #[serde(skip_serializing_if = "is_zero")]
    crowded_directories: u64,
    /// Links to directories that were not followed, because there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    links: u64,
    /// One path that could not be searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Skipped {
    pub(super) fn of(skipped: gantry_files::Skipped) -> Option<Skipped> {
        (!skipped.is_empty()).then(|| Skipped {
            sensitive: skipped.left_out,
            unreadable: skipped.unreadable,
            long_lines: skipped.long_lines,
            crowded_directories: skipped.crowded_directories,
            links: skipped.links,
            example: skipped.example.map(|path| path.to_string_lossy().into_owned()),
        })
    }
}
