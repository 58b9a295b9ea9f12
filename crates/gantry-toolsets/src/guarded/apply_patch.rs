//! `tool::apply_patch` applies a unified diff to one file of the workspace, whole or not at all.

use std::borrow::Cow;
use std::sync::Arc;

use gantry_files::UpdateOptions;
use gantry_files::patch::{self, AppliedHunk, PatchError, PatchKind, Patched};
use gantry_files::text::{self, Encoding};
use gantry_protocol::{AskedAction, ChangeKind};
use gantry_tool::{AskedCall, Capability, Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked::{self, Shown};
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::{Ctx, Machine};

/// Apply a unified diff to a file in the workspace. Context and removed lines must match the file;
/// hunks are searched around the line in their header. Either all hunks apply or the file stays
/// unchanged. Line counts in hunk headers may be wrong and file headers may be missing. The file's
/// encoding and line endings are kept. The header `--- /dev/null` creates the file, `+++ /dev/null`
/// deletes it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Path of the file, relative to the workspace root. File names inside the patch are not used.
    path: String,
    /// The patch, in unified diff format, for this one file.
    patch: String,
    /// How many context lines at each end of a hunk may differ from the file: 0 (default), 1 or 2.
    #[serde(default)]
    #[schemars(range(max = 2))]
    fuzz: u8,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// Always true.
    patched: bool,
    /// The file's real absolute path.
    path: String,
    /// The patch created the file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    created: bool,
    /// The patch deleted the file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    /// Hunks that did not match exactly at the line in their header; check them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moved: Vec<MovedHunk>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct MovedHunk {
    /// The hunk's number, from 1.
    hunk: usize,
    /// How many lines further down (up, if negative) it matched.
    offset: i64,
    /// How many context lines at each end were ignored.
    fuzz: u8,
}

pub(super) const NAME: &str = "tool::apply_patch";

async fn described(machine: Arc<Machine>, asked: AskedCall, input: Input) -> Option<AskedAction> {
    let (shown, path) = (Shown::Diff(input.patch.clone()), input.path.clone());
    if patch::parse(&input.patch).ok()?.kind == PatchKind::Delete {
        let (machine, paths) = (asked.machine, vec![path]);
        let (change, text) = (ChangeKind::Delete, input.patch);
        return Some(AskedAction::FileChange { machine, paths, change, text, not_shown: 0 });
    }
    let content = move |present: &[u8]| asked::joined(&patched(present, &input).ok()?.parts);
    asked::file_change(&machine, asked, path, shown, Machine::contained, content).await
}

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let own = machine.clone();
    Tool::new(NAME, Toolset::Guarded, machine, run)
        .capabilities(&[Capability::FilesystemEdit])
        .labels(&[Label::Private])
        .writes_path("path", machine.contained_paths())
        .asks_as(move |asked, input| described(own.clone(), asked, input))
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    blocking(&ctx, move |ctx, _| {
        let kind = patch::parse(&input.patch).map_err(patch_error)?.kind;
        let scope = ctx.state.contained(&ctx.call)?;
        let makes = kind == PatchKind::Create;
        let options = UpdateOptions { create: makes, make_parents: makes, ..UpdateOptions::default() };
        let update = scope.update(&input.path, options).map_err(file_error)?;
        let NewContent { parts, hunks } = patched(update.bytes(), &input).map_err(patch_error)?;
        let deleted = kind == PatchKind::Delete;
        if deleted {
            update.remove().map_err(file_error)?;
        } else {
            update.write(&parts).map_err(file_error)?;
        }
        Ok(Output {
            patched: true,
            path: update.path().to_string_lossy().into_owned(),
            created: !update.exists(),
            deleted,
            moved: moved(&hunks),
        })
    })
    .await
}

struct NewContent<'a> {
    parts: Vec<Cow<'a, [u8]>>,
    hunks: Vec<AppliedHunk>,
}

/// Returns the new content, in the encoding of the old.
fn patched<'a>(bytes: &'a [u8], input: &Input) -> Result<NewContent<'a>, PatchError> {
    // In plain UTF-8 and old 8-bit encodings, lines outside the hunks keep every byte.
    let marked = Encoding::of(bytes) != Encoding::Utf8;
    let Some(text) = marked.then(|| text::decode(bytes).ok()).flatten() else {
        let Patched { parts, hunks, .. } = patch::apply(bytes, &input.patch, input.fuzz)?;
        return Ok(NewContent { parts, hunks });
    };
    let patched = patch::apply(text.text.as_bytes(), &input.patch, input.fuzz)?;
    // Both parts are text, so the result is valid UTF-8.
    let new_text = String::from_utf8_lossy(&patched.bytes()).into_owned();
    Ok(NewContent { parts: text::encode(text.encoding, vec![Cow::Owned(new_text)]), hunks: patched.hunks })
}

fn moved(hunks: &[AppliedHunk]) -> Vec<MovedHunk> {
    let numbered = hunks.iter().enumerate().filter(|(_, hunk)| hunk.offset != 0 || hunk.fuzz != 0);
    numbered.map(|(at, hunk)| MovedHunk { hunk: at + 1, offset: hunk.offset, fuzz: hunk.fuzz }).collect()
}

fn patch_error(err: PatchError) -> ToolError {
    let hint = match &err {
        PatchError::Rejected(_) => "read the file again and make the patch from its current content",
        PatchError::Exists => "send a patch against the current content",
        _ => return ToolError::input(err.to_string()),
    };
    ToolError::failed(err.to_string()).with_hint(hint)
}

#[cfg(test)]
mod tests;
