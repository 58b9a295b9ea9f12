//! The plan of a rename or move: the target of every file, each checked before anything changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use gantry_files::{FileError, FoundFile, FoundFiles, Scope};
use gantry_tool::ToolError;

use super::name_pattern::{NamePattern, NameTemplate};
use crate::machine::file_error;

/// The longest file name that common file systems take.
const MAX_NAME_BYTES: usize = 255;
/// The most problems to list; more are counted.
const MAX_PROBLEMS: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Files that are already in place.
    pub(super) unchanged: usize,
    /// A directory to create first.
    pub(super) destination: Option<PathBuf>,
}

/// One file's source and target, as real absolute paths.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
}

pub(super) fn renames(
    scope: &Scope,
    found: &FoundFiles,
    pattern: &NamePattern,
    template: &NameTemplate,
) -> Result<Plan, ToolError> {
    let target = |file: &FoundFile| {
        let captures = pattern.captures(&file.name).unwrap_or_default();
        let name = template.fill(&captures);
        match problem_with(&name) {
            None => Ok(file.path.with_file_name(name)),
            Some(problem) => Err(format!("{name:?} {problem}")),
        }
    };
    checked(scope, found, None, target)
}

pub(super) fn moves(scope: &Scope, found: &FoundFiles, destination: &Path) -> Result<Plan, ToolError> {
    let real = scope.resolve(destination).map_err(file_error)?;
    match scope.open_dir(&real) {
        Ok(_) | Err(FileError::NotFound { .. }) => {}
        Err(err) => return Err(file_error(err)),
    }
    checked(scope, found, Some(real.clone()), |file| Ok(real.join(&file.name)))
}

fn problem_with(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("is empty"),
        "." | ".." => Some("is not a file name"),
        name if name.contains('/') => Some("contains a slash"),
        name if name.contains('\0') => Some("contains a NUL character"),
        name if name.len() > MAX_NAME_BYTES => Some("is longer than 255 bytes"),
        _ => None,
    }
}

/// Assigns every file its target, and rejects the whole plan if one target cannot be used.
fn checked(
    scope: &Scope,
    found: &FoundFiles,
    destination: Option<PathBuf>,
    target: impl Fn(&FoundFile) -> Result<PathBuf, String>,
) -> Result<Plan, ToolError> {
    let mut plan = Plan { destination, ..Plan::default() };
    let mut taken: HashMap<PathBuf, &Path> = HashMap::new();
    let mut problems = Vec::new();
    for file in &found.files {
        let from = file.path.strip_prefix(&found.directory).unwrap_or(&file.path);
        let to = match target(file) {
            Ok(to) if to == file.path => {
                plan.unchanged += 1;
                continue;
            }
            Ok(to) => to,
            Err(problem) => {
                problems.push(format!("{}: the new name {problem}", from.display()));
                continue;
            }
        };
        match (taken.insert(to.clone(), from), scope.is_free(&to)) {
            (Some(other), _) => {
                problems.push(format!(
                    "{} and {} would both become {}",
                    other.display(),
                    from.display(),
                    to.display()
                ));
            }
            (None, Ok(true)) => {}
            (None, Ok(false)) => {
                problems.push(format!("{}: {} already exists", from.display(), to.display()));
            }
            (None, Err(err @ FileError::Closed { .. })) => return Err(file_error(err)),
            (None, Err(err)) => problems.push(format!("{}: {err}", from.display())),
        }
        plan.steps.push(Step { from: file.path.clone(), to });
    }
    if problems.is_empty() { Ok(plan) } else { Err(refused(&problems)) }
}

fn refused(problems: &[String]) -> ToolError {
    let mut text = String::from("nothing was changed, because not every target can be used:");
    for problem in problems.iter().take(MAX_PROBLEMS) {
        text.push_str(&format!("\n  {problem}"));
    }
    if let Some(more @ 1..) = problems.len().checked_sub(MAX_PROBLEMS) {
        text.push_str(&format!("\n  and {more} more"));
    }
    ToolError::failed(text)
}
