//! Creates unified diffs, as `diff -u` writes them. [`crate::patch::apply`] accepts every one of
//! them.

use std::{fmt::Write as _, time::Duration};

use similar::{DiffOp, TextDiff, TextDiffConfig};

/// How long to look for a short diff. After that a correct but longer one is created.
const SEARCH_TIME: Duration = Duration::from_secs(2);

/// Returns the difference between two texts with `context` lines around each change, or nothing if
/// they are equal.
pub fn unified(old: &str, new: &str, path: &str, context: usize) -> String {
    if old == new {
        return String::new();
    }
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let diff: TextDiff<'_, '_, str> = TextDiffConfig::default().timeout(SEARCH_TIME).diff_slices(&old, &new);
    let mut text = format!("--- a/{path}\n+++ b/{path}\n");
    for group in diff.grouped_ops(context) {
        write_hunk(&mut text, &group, &old, &new);
    }
    text
}

fn write_hunk(text: &mut String, group: &[DiffOp], old: &[&str], new: &[&str]) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let old_range = first.old_range().start..last.old_range().end;
    let new_range = first.new_range().start..last.new_range().end;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "@@ -{} +{} @@", range(&old_range), range(&new_range));
    for op in group {
        match op {
            DiffOp::Equal { .. } => write_lines(text, ' ', old.get(op.old_range())),
            DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => {
                write_lines(text, '-', old.get(op.old_range()));
                write_lines(text, '+', new.get(op.new_range()));
            }
        }
    }
}

/// Lines count from 1. An empty range names the line before it.
fn range(lines: &std::ops::Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

fn write_lines(text: &mut String, sign: char, lines: Option<&[&str]>) {
    for line in lines.unwrap_or_default() {
        text.push(sign);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}
