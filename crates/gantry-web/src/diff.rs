//! Differences as rows: of two texts, or of a patch.

use std::time::{Duration, Instant};

use gantry_protocol::{DiffParams, DiffRow, DiffRowKind, DiffRows};
use similar::{ChangeTag, TextDiff};

/// Rows of one answer.
const MAX_ROWS: usize = 2_000;
const CONTEXT: usize = 3;
const MAX_CONTEXT: usize = 1_000;

/// After this time the rest is shown as replaced, which is correct and longer.
const TIME_LIMIT: Duration = Duration::from_millis(500);

/// What is wrong with the parameters.
pub(crate) struct Invalid(pub(crate) &'static str);

pub(crate) fn rows(params: &DiffParams) -> Result<DiffRows, Invalid> {
    let all = match (&params.before, &params.after, &params.patch) {
        (before, after, None) if before.is_some() || after.is_some() => of_texts(
            before.as_deref().unwrap_or_default(),
            after.as_deref().unwrap_or_default(),
            params.context.unwrap_or(CONTEXT).min(MAX_CONTEXT),
        ),
        (None, None, Some(patch)) => of_patch(patch),
        _ => return Err(Invalid("diff.render takes \"before\" and \"after\", or \"patch\"")),
    };
    let count = |kind| all.iter().filter(|row| row.kind == kind).count();
    let (total, added, removed) = (all.len(), count(DiffRowKind::Added), count(DiffRowKind::Removed));
    let rows: Vec<DiffRow> = all.into_iter().skip(params.offset).take(MAX_ROWS).collect();
    let end = params.offset.saturating_add(rows.len());
    Ok(DiffRows { rows, total, added, removed, next_offset: (end < total).then_some(end) })
}

fn of_texts(before: &str, after: &str, context: usize) -> Vec<DiffRow> {
    let diff = TextDiff::configure().deadline(Instant::now() + TIME_LIMIT).diff_lines(before, after);
    let mut rows = Vec::new();
    let mut shown = 0;
    for group in diff.grouped_ops(context) {
        let start = group.first().map_or(0, |op| op.old_range().start);
        if start > shown {
            rows.push(gap(start - shown));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let number = |index: Option<usize>| index.map(|index| index + 1);
            let (kind, before, after) = match change.tag() {
                ChangeTag::Equal => (DiffRowKind::Same, change.old_index(), change.new_index()),
                ChangeTag::Delete => (DiffRowKind::Removed, change.old_index(), None),
                ChangeTag::Insert => (DiffRowKind::Added, None, change.new_index()),
            };
            rows.push(DiffRow {
                kind,
                before: number(before),
                after: number(after),
                text: line(change.value()),
            });
        }
        shown = group.last().map_or(shown, |op| op.old_range().end);
    }
    let left = before.lines().count().saturating_sub(shown);
    if left > 0 && !rows.is_empty() {
        rows.push(gap(left));
    }
    rows
}

fn gap(lines: usize) -> DiffRow {
    let text = if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
    DiffRow { kind: DiffRowKind::Gap, before: None, after: None, text }
}

fn line(text: &str) -> String {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text).to_owned()
}

/// The rows of a unified diff, with the numbers that its hunks name.
fn of_patch(patch: &str) -> Vec<DiffRow> {
    let (mut before, mut after) = (0, 0);
    // Lines of the hunk that are left. Outside of one, `---` and `+++` are names of files.
    let (mut old_left, mut new_left) = (0, 0);
    let mut rows = Vec::new();
    for text in patch.lines() {
        let row = |kind, before, after, text: &str| DiffRow { kind, before, after, text: line(text) };
        let in_hunk = old_left > 0 || new_left > 0;
        match text.as_bytes().first() {
            Some(b'@') if !in_hunk || text.starts_with("@@ ") => {
                let [old, new] = hunk(text);
                (before, old_left) = old;
                (after, new_left) = new;
                rows.push(row(DiffRowKind::Gap, None, None, text));
            }
            Some(b'+') if in_hunk => {
                rows.push(row(DiffRowKind::Added, None, Some(after), &text[1..]));
                after += 1;
                new_left = new_left.saturating_sub(1);
            }
            Some(b'-') if in_hunk => {
                rows.push(row(DiffRowKind::Removed, Some(before), None, &text[1..]));
                before += 1;
                old_left = old_left.saturating_sub(1);
            }
            Some(b' ') | None if in_hunk => {
                rows.push(row(
                    DiffRowKind::Same,
                    Some(before),
                    Some(after),
                    text.get(1..).unwrap_or_default(),
                ));
                (before, after) = (before + 1, after + 1);
                (old_left, new_left) = (old_left.saturating_sub(1), new_left.saturating_sub(1));
            }
            _ => {
                let name = text.strip_prefix("+++ ").or_else(|| text.strip_prefix("--- "));
                let name = name.map(|name| name.split('\t').next().unwrap_or(name));
                if let Some(name) = name.filter(|name| *name != "/dev/null") {
                    let name = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/")).unwrap_or(name);
                    let is_new = !rows
                        .last()
                        .is_some_and(|last: &DiffRow| last.kind == DiffRowKind::File && last.text == name);
                    if is_new {
                        rows.push(row(DiffRowKind::File, None, None, name));
                    }
                }
            }
        }
    }
    rows
}

/// The first lines and the lengths in `@@ -1,3 +1,4 @@`.
fn hunk(text: &str) -> [(usize, usize); 2] {
    let mut ranges = text.split(' ').filter(|part| part.starts_with(['-', '+'])).map(|part| {
        let (start, length) = part[1..].split_once(',').unwrap_or((&part[1..], "1"));
        (start.parse().unwrap_or(1), length.parse().unwrap_or(1))
    });
    // A hunk without numbers goes on to the next one.
    let open = (1, usize::MAX);
    [ranges.next().unwrap_or(open), ranges.next().unwrap_or(open)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(params: DiffParams) -> DiffRows {
        rows(&params).unwrap_or_else(|Invalid(reason)| panic!("{reason}"))
    }

    fn text(rows: &[DiffRow]) -> String {
        let line = |row: &DiffRow| {
            let number = |number: Option<usize>| number.map_or("-".to_owned(), |number| number.to_string());
            format!("{:?} {} {} {}\n", row.kind, number(row.before), number(row.after), row.text)
        };
        rows.iter().map(line).collect()
    }

    #[test]
    fn two_texts_give_numbered_rows_with_gaps() {
        let before: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        let after = before.replace("line 10\n", "line ten\n");
        let params = DiffParams {
            before: Some(before),
            after: Some(after),
            context: Some(1),
            ..DiffParams::default()
        };
        let shown = of(params);
        assert_eq!(
            text(&shown.rows),
            "Gap - - 8 lines\nSame 9 9 line 9\nRemoved 10 - line 10\nAdded - 10 line ten\nSame 11 11 line 11\nGap - - 9 lines\n"
        );
        assert_eq!((shown.added, shown.removed, shown.next_offset), (1, 1, None));
    }

    #[test]
    fn patch_gives_the_rows_of_its_files() {
        let patch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@ fn\n same\n--- old\n+++ new\n--- a/y\n+++ b/y\n@@ -0,0 +1 @@\n+first\n";
        let shown = of(DiffParams { patch: Some(patch.into()), ..DiffParams::default() });
        assert_eq!(
            text(&shown.rows),
            "File - - x\nGap - - @@ -3,2 +3,2 @@ fn\nSame 3 3 same\nRemoved 4 - -- old\nAdded - 4 ++ new\nFile - - y\n\
             Gap - - @@ -0,0 +1 @@\nAdded - 1 first\n"
        );
    }

    #[test]
    fn long_differences_have_pages() {
        let after: String = (0..4_500).map(|n| format!("{n}\n")).collect();
        let page = |offset| {
            of(DiffParams {
                before: Some(String::new()),
                after: Some(after.clone()),
                offset,
                ..DiffParams::default()
            })
        };
        assert_eq!((page(0).rows.len(), page(0).next_offset, page(0).total), (2_000, Some(2_000), 4_500));
        assert_eq!((page(4_000).rows.len(), page(4_000).next_offset), (500, None));
        assert!(page(usize::MAX).rows.is_empty());
    }

    #[test]
    fn parameters_name_one_kind_of_difference() {
        assert!(rows(&DiffParams::default()).is_err());
        let both = DiffParams { before: Some("a".into()), patch: Some("b".into()), ..DiffParams::default() };
        assert!(rows(&both).is_err());
    }

    proptest! {
        /// With all lines shown, the rows hold both texts.
        #[test]
        fn rows_hold_both_texts(before in "([ab]\n){0,20}", after in "([ab]\n){0,20}") {
            let shown = of(DiffParams { before: Some(before.clone()), after: Some(after.clone()), context: Some(100), ..DiffParams::default() });
            let side = |left_out| {
                let kept = shown.rows.iter().filter(|row| row.kind != left_out);
                kept.map(|row| format!("{}\n", row.text)).collect::<String>()
            };
            if before != after {
                prop_assert_eq!(side(DiffRowKind::Added), before);
                prop_assert_eq!(side(DiffRowKind::Removed), after);
            }
        }

        #[test]
        fn any_patch_is_read(patch in "(@@ -[0-9]{0,20},[0-9]{0,20} |@@|\\+|-|--- |a/| |\n){0,40}") {
            of(DiffParams { patch: Some(patch), ..DiffParams::default() });
        }
    }
}
