//! `batch_files` renames, moves or changes many files at once. It checks the whole plan before the
//! first change.

mod apply;
mod name_pattern;
mod plan;
mod report;
mod transform;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gantry_files::{FindByName, FoundFiles, Scope};
use gantry_protocol::{AskedAction, ChangeKind};
use gantry_tool::{AskedCall, Call, Capability, Label, Text, Tool, ToolError, Toolset, Touch};
use schemars::JsonSchema;
use serde::Deserialize;

use self::name_pattern::{NamePattern, NameTemplate};
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::{Ctx, Machine};

const MAX_DEPTH: usize = 10;
const LIMITS: Limits = Limits { files: 10_000, looked_at: 200_000 };

#[derive(Debug, Clone, Copy)]
struct Limits {
    /// The most files that may match.
    files: usize,
    /// The most files and directories that the walk visits, matching or not.
    looked_at: usize,
}

/// Rename, move or change many files at once. Works on the files in `directory` and its
/// subdirectories (at most 10 levels down) whose names match `pattern`. Symbolic links and `.git`
/// are skipped. At most 10,000 files may match, among at most 200,000 files and directories. All
/// targets are checked before the first change. A rename or move never overwrites a file: if a
/// target exists, or two files would get the same one, nothing changes. If a rename or move fails
/// half way, those already done are undone. Use `dry_run` first to see the changes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Matches whole file names: `*` is any characters or none, `?` exactly one. Case matters. It
    /// is compared with the name only, never with the path.
    #[schemars(length(min = 1, max = 255))]
    pattern: String,
    /// The directory; a relative path starts at the workspace.
    #[schemars(length(min = 1))]
    directory: String,
    /// `rename` needs `rename_to`, `move` needs `destination`, `transform` needs `find` and
    /// `replace`.
    operation: Operation,
    /// For `rename`: the new name, in the same directory. `$1` to `$9` are the matches of the
    /// wildcards in `pattern`, in order (each `*` matches as much as it can, from left to right);
    /// `$0` is the whole old name, `$$` a dollar sign. With pattern `*.txt`, `$1.md` turns
    /// `notes.txt` into `notes.md`.
    rename_to: Option<String>,
    /// For `move`: the directory that all files go to, directly, keeping their names. It is created
    /// if missing. A relative path starts at the workspace. It may be on another device.
    destination: Option<String>,
    /// For `transform`: the literal text to replace, everywhere. Line breaks match LF and CRLF.
    /// Files over 10 MB and binary files are skipped.
    find: Option<String>,
    /// For `transform`: the literal replacement; may be empty. Each file keeps its encoding and
    /// line endings.
    replace: Option<String>,
    /// Only report what would change, for `transform` as a unified diff (default false).
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Rename,
    Move,
    Transform,
}

/// The checked fields of one operation.
enum Task<'a> {
    Rename(NameTemplate),
    Move { destination: &'a Path },
    Transform { find: &'a str, replace: &'a str },
}

/// A task and the files that it applies to.
struct Batch<'a> {
    scope: Scope,
    pattern: NamePattern,
    task: Task<'a>,
    found: FoundFiles,
}

pub(super) const NAME: &str = "batch_files";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let (own, walking, describing) = (machine.clone(), machine.clone(), machine.clone());
    Tool::new(NAME, Toolset::Assistant, machine, run)
        .capabilities(&[Capability::FilesystemList, Capability::FilesystemEdit])
        .labels(&[Label::Private])
        .touches(move |call, input: Input| touches(&own, call, &input))
        .touches_by_walking(move |call, input: Input| touched_files(&walking, call, &input))
        .asks_as(move |asked, input| described(describing.clone(), asked, input))
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    blocking(&ctx, move |ctx, cancelled| perform(ctx, &input, input.dry_run, cancelled)).await
}

/// Changes the files, or returns what would change.
fn perform(ctx: &Ctx, input: &Input, dry_run: bool, cancelled: &AtomicBool) -> Result<Text, ToolError> {
    let skip = |path: &Path| ctx.call.avoid_sensitive && ctx.state.settings().sensitive.contains(path);
    let Batch { scope, pattern, task, found } =
        prepare(&ctx.state, &ctx.call, input, &skip, &|| cancelled.load(Ordering::Relaxed))?;
    let text = match task {
        Task::Transform { find, replace } => {
            transform::run(&scope, &found, &transform::Texts { find, replace }, dry_run, cancelled)?
        }
        Task::Rename(template) => {
            let plan = plan::renames(&scope, &found, &pattern, &template)?;
            moved(&scope, &found, plan, ["Renamed", "Would rename"], dry_run, cancelled)?
        }
        Task::Move { destination } => {
            let plan = plan::moves(&scope, &found, destination)?;
            moved(&scope, &found, plan, ["Moved", "Would move"], dry_run, cancelled)?
        }
    };
    Ok(Text(text))
}

/// Describes a batch by what a dry run reports. Other clients than own agents see no content of files.
async fn described(machine: Arc<Machine>, asked: AskedCall, input: Input) -> Option<AskedAction> {
    if asked.is_remote || !asked.call.principal.is_own_agent() {
        return None;
    }
    let call = Call { avoid_sensitive: true, ..(*asked.call).clone() };
    let ctx = Ctx { call: Arc::new(call), state: machine };
    let paths = vec![input.directory.clone()];
    let report = blocking(&ctx, move |ctx, cancelled| perform(ctx, &input, true, cancelled)).await.ok()?;
    let (machine, change) = (asked.machine, ChangeKind::Change);
    Some(AskedAction::FileChange { machine, paths, change, text: report.0, not_shown: 0 })
}

/// Policy and the run itself both call this, so policy decides about exactly the files that would
/// change.
fn prepare<'a>(
    machine: &Machine,
    call: &Call,
    input: &'a Input,
    skip: &dyn Fn(&Path) -> bool,
    stop: &dyn Fn() -> bool,
) -> Result<Batch<'a>, ToolError> {
    let pattern = NamePattern::parse(&input.pattern)?;
    let task = task(input, &pattern)?;
    let scope = machine.free(call)?;
    let found = find(&scope, &input.directory, &pattern, LIMITS, skip, stop)?;
    Ok(Batch { scope, pattern, task, found })
}

fn moved(
    scope: &Scope,
    found: &FoundFiles,
    plan: plan::Plan,
    [done, would]: [&str; 2],
    dry_run: bool,
    cancelled: &AtomicBool,
) -> Result<String, ToolError> {
    if dry_run {
        return Ok(report::moves(&format!("{would} (dry run)"), found, &plan));
    }
    apply::moves(scope, found, &plan, cancelled)?;
    Ok(report::moves(done, found, &plan))
}

/// Returns the fields of the chosen operation, or reports every missing and unexpected field at
/// once.
fn task<'a>(input: &'a Input, pattern: &NamePattern) -> Result<Task<'a>, ToolError> {
    let fields = [
        ("rename_to", &input.rename_to, Operation::Rename),
        ("destination", &input.destination, Operation::Move),
        ("find", &input.find, Operation::Transform),
        ("replace", &input.replace, Operation::Transform),
    ];
    let name = match input.operation {
        Operation::Rename => "rename",
        Operation::Move => "move",
        Operation::Transform => "transform",
    };
    let mut problems = Vec::new();
    for (field, value, operation) in fields {
        match (operation == input.operation, value) {
            (true, None) => problems.push(format!("{name} needs {field}")),
            (false, Some(_)) => problems.push(format!("{name} does not take {field}")),
            _ => {}
        }
    }
    if !problems.is_empty() {
        return Err(ToolError::input(problems.join("; ")));
    }
    let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
    match input.operation {
        Operation::Rename => Ok(Task::Rename(NameTemplate::parse(text(&input.rename_to), pattern)?)),
        Operation::Move if text(&input.destination).is_empty() => {
            Err(ToolError::input("destination must not be empty"))
        }
        Operation::Move => Ok(Task::Move { destination: Path::new(text(&input.destination)) }),
        Operation::Transform if text(&input.find).is_empty() => {
            Err(ToolError::input("find must not be empty"))
        }
        Operation::Transform if input.find == input.replace => {
            Err(ToolError::input("find and replace must differ"))
        }
        Operation::Transform => {
            Ok(Task::Transform { find: text(&input.find), replace: text(&input.replace) })
        }
    }
}

fn find(
    scope: &Scope,
    directory: &str,
    pattern: &NamePattern,
    limits: Limits,
    skip: &dyn Fn(&Path) -> bool,
    stop: &dyn Fn() -> bool,
) -> Result<FoundFiles, ToolError> {
    let (looked_at, cancelled) = (Cell::new(0), AtomicBool::new(false));
    let look = || {
        looked_at.set(looked_at.get() + 1);
        if looked_at.get() > limits.looked_at || stop() {
            cancelled.store(true, Ordering::Relaxed);
        }
    };
    // The walk calls `wanted` for files, then `skip` for the wanted files and for directories.
    let wanted = |name: &str| {
        let matches = pattern.matches(name);
        if !matches {
            look();
        }
        matches
    };
    let skip = |path: &Path| {
        look();
        skip(path)
    };
    let options = FindByName {
        wanted: &wanted,
        skip: &skip,
        depth: MAX_DEPTH,
        limit: limits.files,
        cancelled: &cancelled,
    };
    let found = scope.find_by_name(directory, options);
    if looked_at.get() <= limits.looked_at && !found.as_ref().is_ok_and(|found| found.truncated) {
        return found.map_err(file_error);
    }
    let directory = scope.resolve(directory).map_err(file_error)?;
    let Limits { files, looked_at } = limits;
    Err(ToolError::input(format!("too many files in {}; nothing was changed", directory.display()))
        .with_hint(format!(
            "at most {files} may match, among at most {looked_at}; narrow pattern or directory"
        )))
}

/// Declares the directory and the destination.
fn touches(machine: &Machine, call: &Call, input: &Input) -> Vec<Touch> {
    let workspace = machine.touched_free(call, ".");
    let touch = |path| match input.dry_run {
        true => Touch::read(path),
        false => Touch::write(path).judged_against(&workspace),
    };
    let destination = input.destination.as_deref().map(|path| machine.touched_free(call, path));
    let mut touches = vec![touch(machine.touched_free(call, &input.directory))];
    touches.extend(destination.map(touch));
    touches
}

/// Declares every file that matches now, and its new name.
fn touched_files(machine: &Machine, call: &Call, input: &Input) -> Vec<Touch> {
    let touch = if input.dry_run { Touch::read } else { Touch::write };
    let destination = input.destination.as_deref().map(|path| machine.touched_free(call, path));
    let mut touches = Vec::new();
    let prepared = prepare(machine, call, input, &|_| false, &|| call.cancel.is_cancelled());
    // A call that fails here changes nothing.
    let Ok(Batch { pattern, task, found, .. }) = prepared else { return touches };
    for file in found.files {
        let target = match (&task, &destination) {
            (Task::Rename(template), _) => {
                pattern.captures(&file.name).map(|parts| file.path.with_file_name(template.fill(&parts)))
            }
            (Task::Move { .. }, Some(destination)) => Some(destination.join(&file.name)),
            _ => None,
        };
        touches.push(touch(file.path));
        touches.extend(target.map(touch));
    }
    touches
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests inspect the file system directly")]
mod tests;
