//! Literal find and replace in many files. Every file is read and checked before the first one is
//! written.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use gantry_files::edit::{EditError, Occurrences, edit};
use gantry_files::text::{Ending, decode, with_ending};
use gantry_files::{FileError, FoundFiles, Scope, UpdateOptions, diff};
use gantry_tool::ToolError;

use super::report::{files, left_out, shown};

const MAX_BYTES: u64 = 10 * 1024 * 1024;
/// A dry run shows diffs up to this size in all, then only file names.
const MAX_DIFF_BYTES: usize = 1024 * 1024;
const CONTEXT_LINES: usize = 3;

pub(super) struct Texts<'a> {
    pub(super) find: &'a str,
    pub(super) replace: &'a str,
}

/// `Examined` is the result of reading all files before the first change.
#[derive(Default)]
struct Examined {
    changes: Vec<Change>,
    unchanged: usize,
    large: usize,
    binary: usize,
    /// Diffs, for a dry run.
    diffs: String,
    /// The number of changes whose diffs are not in `diffs`.
    diffs_left_out: usize,
}

struct Change {
    path: PathBuf,
    replacements: usize,
}

pub(super) fn run(
    scope: &Scope,
    found: &FoundFiles,
    texts: &Texts<'_>,
    dry_run: bool,
    cancelled: &AtomicBool,
) -> Result<String, ToolError> {
    let examined = examine(scope, found, texts, dry_run, cancelled)?;
    if !dry_run {
        apply(scope, found, texts, &examined.changes, cancelled)?;
    }
    Ok(report(found, &examined, dry_run))
}

fn examine(
    scope: &Scope,
    found: &FoundFiles,
    texts: &Texts<'_>,
    dry_run: bool,
    cancelled: &AtomicBool,
) -> Result<Examined, ToolError> {
    let mut examined = Examined::default();
    for file in &found.files {
        if cancelled.load(Ordering::Relaxed) {
            return Err(ToolError::Cancelled);
        }
        let read = scope.open(&file.path).and_then(|file| file.read_all(MAX_BYTES));
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(FileError::TooLarge { .. }) => {
                examined.large += 1;
                continue;
            }
            Err(err) => return Err(ToolError::failed(format!("nothing was changed: {err}"))),
        };
        let Ok(old) = decode(&bytes) else {
            examined.binary += 1;
            continue;
        };
        let Some((replacements, new)) = replaced(&bytes, &old.text, texts)? else {
            examined.unchanged += 1;
            continue;
        };
        if dry_run {
            let new = decode(&new).map_err(|err| ToolError::internal(err.to_string()))?;
            let path = shown(&found.directory, &file.path);
            examined.add_diff(&diff::unified(&old.text, &new.text, &path, CONTEXT_LINES));
        }
        examined.changes.push(Change { path: file.path.clone(), replacements });
    }
    Ok(examined)
}

impl Examined {
    fn add_diff(&mut self, diff: &str) {
        if self.diffs_left_out > 0 || self.diffs.len() + diff.len() > MAX_DIFF_BYTES {
            self.diffs_left_out += 1;
        } else {
            self.diffs.push_str(diff);
        }
    }
}

/// Returns the number of replacements in a file and its new content; `None` if the text does not
/// occur.
fn replaced(bytes: &[u8], text: &str, texts: &Texts<'_>) -> Result<Option<(usize, Vec<u8>)>, ToolError> {
    if !contains(text, texts.find) {
        return Ok(None);
    }
    match edit(bytes, texts.find, texts.replace, Occurrences::All) {
        Ok(edited) => Ok(Some((edited.replacements, edited.parts.concat()))),
        Err(EditError::NotFound { .. }) => Ok(None),
        Err(err) => Err(ToolError::input(format!("nothing was changed: {err}"))),
    }
}

/// Whether an edit would find the text. Checked first, because an edit that finds nothing searches
/// for similar text.
fn contains(text: &str, find: &str) -> bool {
    let plain = |text| with_ending(text, Some(Ending::Lf));
    if find.contains(['\n', '\r']) { plain(text).contains(&*plain(find)) } else { text.contains(find) }
}

fn apply(
    scope: &Scope,
    found: &FoundFiles,
    texts: &Texts<'_>,
    changes: &[Change],
    cancelled: &AtomicBool,
) -> Result<(), ToolError> {
    for (done, change) in changes.iter().enumerate() {
        let result = if cancelled.load(Ordering::Relaxed) {
            Err("cancelled".to_owned())
        } else {
            apply_one(scope, texts, change)
        };
        if let Err(problem) = result {
            return Err(failure(found, changes, done, &problem));
        }
    }
    Ok(())
}

fn apply_one(scope: &Scope, texts: &Texts<'_>, change: &Change) -> Result<(), String> {
    let update = scope.update(&change.path, UpdateOptions::default()).map_err(|err| err.to_string())?;
    let edited =
        edit(update.bytes(), texts.find, texts.replace, Occurrences::All).map_err(|err| err.to_string())?;
    update.write(&edited.parts).map_err(|err| err.to_string())?;
    Ok(())
}

fn failure(found: &FoundFiles, changes: &[Change], done: usize, problem: &str) -> ToolError {
    let list = |changes: &[Change]| -> String {
        changes.iter().map(|change| format!("\n  {}", shown(&found.directory, &change.path))).collect()
    };
    let (changed, left) = changes.split_at(done);
    let stopped_at = left.first().map(|change| shown(&found.directory, &change.path)).unwrap_or_default();
    let mut text = format!("stopped at {stopped_at}: {problem}");
    text.push_str(&format!("\nchanged: {}{}", files(done), list(changed)));
    text.push_str(&format!("\nnot changed: {}{}", files(left.len()), list(left)));
    ToolError::failed(text)
}

fn report(found: &FoundFiles, examined: &Examined, dry_run: bool) -> String {
    let total: usize = examined.changes.iter().map(|change| change.replacements).sum();
    let verb = if dry_run { "Would change (dry run)" } else { "Changed" };
    let times = if total == 1 { "1 replacement".to_owned() } else { format!("{total} replacements") };
    let directory = found.directory.display();
    let mut text = format!("{verb} {} in {directory} ({times})", files(examined.changes.len()));
    if !examined.changes.is_empty() {
        text.push(':');
    }
    for change in &examined.changes {
        text.push_str(&format!("\n  {}: {}", shown(&found.directory, &change.path), change.replacements));
    }
    if examined.unchanged > 0 {
        text.push_str(&format!("\nWithout the text: {}", files(examined.unchanged)));
    }
    let skipped = [
        (examined.large, "file over 10 MB", "files over 10 MB"),
        (examined.binary, "binary file", "binary files"),
    ];
    text.push_str(&left_out(found, &skipped));
    if !examined.diffs.is_empty() {
        text.push_str(&format!("\n\n{}", examined.diffs));
    }
    if examined.diffs_left_out > 0 {
        let count = files(examined.diffs_left_out);
        text.push_str(&format!("\n(the diffs of {count} are left out: together they exceed 1 MiB)"));
    }
    text
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests inspect the file system directly")]
mod tests {
    use gantry_files::{Files, FilesOptions};

    use super::*;

    #[test]
    fn failure_half_way_lists_changed_and_unchanged_files() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().canonicalize().unwrap();
        for name in ["a", "c"] {
            std::fs::write(directory.join(name), "one").unwrap();
        }
        let scope = Files::new(FilesOptions::default()).unwrap().free(&directory).unwrap();
        let change = |name: &str| Change { path: directory.join(name), replacements: 1 };
        let changes = [change("a"), change("gone"), change("c")];
        let found = FoundFiles { directory: directory.clone(), ..FoundFiles::default() };
        let texts = Texts { find: "one", replace: "two" };
        let error = apply(&scope, &found, &texts, &changes, &AtomicBool::new(false)).unwrap_err().to_string();
        let expected = format!(
            "stopped at gone: no such file or directory: {}\nchanged: 1 file\n  a\nnot changed: 2 files\n  gone\n  c",
            directory.join("gone").display()
        );
        assert_eq!(error, expected);
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!((read("a"), read("c")), ("two".into(), "one".into()));
    }
}
