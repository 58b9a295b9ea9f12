//! The result texts of `batch_files`.

use std::path::Path;

use gantry_files::FoundFiles;

use super::plan::Plan;

/// Returns `Renamed 2 files in /dir:`, the files, and the number of skipped ones.
pub(super) fn moves(verb: &str, found: &FoundFiles, plan: &Plan) -> String {
    let count = files(plan.steps.len());
    let mut text = match &plan.destination {
        Some(destination) => {
            format!("{verb} {count} from {} to {}", found.directory.display(), destination.display())
        }
        None => format!("{verb} {count} in {}", found.directory.display()),
    };
    if !plan.steps.is_empty() {
        text.push(':');
    }
    for step in &plan.steps {
        let (from, to) = (shown(&found.directory, &step.from), shown(&found.directory, &step.to));
        text.push_str(&format!("\n  {from} -> {to}"));
    }
    if plan.unchanged > 0 {
        text.push_str(&format!("\nAlready in place: {}", files(plan.unchanged)));
    }
    text.push_str(&left_out(found, &[]));
    text
}

/// A count of skipped entries, and their singular and plural name.
pub(super) type Count<'a> = (usize, &'a str, &'a str);

/// Returns a last line that counts the skipped entries; empty if there are none.
pub(super) fn left_out(found: &FoundFiles, more: &[Count<'_>]) -> String {
    let kinds = [
        (found.links, "symbolic link", "symbolic links"),
        (found.skipped, "sensitive path", "sensitive paths"),
        (found.odd_names, "name that is not UTF-8", "names that are not UTF-8"),
        (found.too_deep, "directory more than 10 levels down", "directories more than 10 levels down"),
        (found.unreadable, "unreadable directory", "unreadable directories"),
    ];
    let counted = kinds.iter().chain(more).filter(|(count, _, _)| *count > 0);
    let parts: Vec<String> = counted
        .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
        .collect();
    if parts.is_empty() { String::new() } else { format!("\nSkipped: {}", parts.join(", ")) }
}

pub(super) fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// Returns a path relative to the directory, or the whole path if it lies elsewhere.
pub(super) fn shown(directory: &Path, path: &Path) -> String {
    path.strip_prefix(directory).unwrap_or(path).display().to_string()
}
