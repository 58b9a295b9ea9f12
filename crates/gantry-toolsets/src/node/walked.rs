//! What `Glob` and `Grep` share: how a walk is set up for a call, and what is told of places it left out.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use gantry_files::{FileError, Scope, WalkOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Ctx;

/// The path of a call that `touches` asks for.
#[derive(Deserialize)]
pub(super) struct Touched {
    pub(super) path: Option<String>,
}

/// Places that were not looked at. Only present when there are any.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Skipped {
    /// Files and directories that may hold keys or credentials, left out because this caller would need approval.
    #[serde(skip_serializing_if = "is_zero")]
    sensitive: u64,
    /// Files and directories that could not be opened or read.
    #[serde(skip_serializing_if = "is_zero")]
    unreadable: u64,
    /// Lines too long to search (over 16 MB).
    #[serde(skip_serializing_if = "is_zero")]
    long_lines: u64,
    /// Directories with too many entries to look at all of them.
    #[serde(skip_serializing_if = "is_zero")]
    crowded_directories: u64,
    /// Links to directories that were not followed, because there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    links: u64,
    /// One path that could not be looked at.
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

/// Runs `work` with a walk that stays out of closed places, and out of sensitive ones if the gate said so.
pub(super) fn walk<T>(
    ctx: &Ctx,
    scope: &Scope,
    cancelled: &AtomicBool,
    work: impl FnOnce(&WalkOptions<'_>) -> T,
) -> T {
    let closed: Vec<_> = scope.files().closed_ids().iter().map(|id| (id.dev, id.ino)).collect();
    let sensitive = |path: &Path| ctx.state.sensitive().contains(path);
    let skip: Option<&(dyn Fn(&Path) -> bool + Sync)> =
        if ctx.call.avoid_sensitive { Some(&sensitive) } else { None };
    work(&WalkOptions { closed: &closed, threads: 0, cancelled, skip })
}

/// The real path of the directory to search in, or of the one file.
pub(super) fn base(scope: &Scope, path: &str) -> Result<std::path::PathBuf, FileError> {
    match scope.open_dir(path) {
        Err(FileError::NotADirectory { .. }) => scope.open(path).map(|file| file.path),
        opened => opened.map(|dir| dir.path),
    }
}
