//! Writes by line number: inserts before a line, or replaces a range of lines. These are pure
//! functions on text.
//!
//! The data gets the file's line endings. It gets a final line break if text follows, or if the
//! last line of the file has one. A line break at the end of the data is never removed.

use std::borrow::Cow;

use crate::text::{self, Ending};

/// If more lines are missing, nothing is padded and the data goes to the end.
pub const MAX_PADDING: u64 = 1000;

/// `LineWrite` is the new text in pieces, and what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineWrite<'a> {
    pub parts: Vec<Cow<'a, str>>,
    /// The line, counted from 1, at which the data now starts.
    pub inserted_at: u64,
    /// The number of lines in the data.
    pub lines_affected: u64,
    /// How many existing lines were replaced.
    pub lines_replaced: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineWriteError {
    #[error("end_line {end} comes before start_line {start}")]
    EndBeforeStart { start: u64, end: u64 },
}

/// Inserts `data` before a line, counted from 1; 0 counts as 1.
pub fn insert<'a>(text: &'a str, data: &'a str, line: u64) -> LineWrite<'a> {
    write(text, data, line.max(1), 0)
}

/// Replaces the lines `start` to `end` by `data`. Both are counted from 1 and inclusive.
pub fn replace<'a>(
    text: &'a str,
    data: &'a str,
    start: u64,
    end: u64,
) -> Result<LineWrite<'a>, LineWriteError> {
    let start = start.max(1);
    if end < start {
        return Err(LineWriteError::EndBeforeStart { start, end });
    }
    Ok(write(text, data, start, (end - start).saturating_add(1)))
}

fn write<'a>(text: &'a str, data: &'a str, line: u64, count: u64) -> LineWrite<'a> {
    let total = text::count_lines(text);
    let gap = line.saturating_sub(total + 1);
    let padding = if gap <= MAX_PADDING { gap } else { 0 };
    let inserted_at = line.min(total + 1) + padding;
    let start = line.min(total + 1) - 1;
    let replaced = count.min(total - start);
    let (from, to) = byte_range(text, start, replaced);
    let (mut before, after) = (&text[..from], &text[to..]);
    let ending = text::main_ending(text);
    let own = ending.unwrap_or(Ending::Lf).as_str();
    let final_break = text.ends_with('\n');
    let data_lines = text::count_lines(data);

    let mut parts = Vec::new();
    if data.is_empty() {
        // Lines were only removed, so the new last line ends as the old one did.
        if after.is_empty() && !final_break && padding == 0 && replaced > 0 {
            before = without_break(before);
        }
        parts.push(Cow::Borrowed(before));
        parts.push(Cow::Owned(own.repeat(padding as usize)));
        parts.push(Cow::Borrowed(after));
    } else {
        parts.push(Cow::Borrowed(before));
        if !before.is_empty() && !before.ends_with('\n') {
            parts.push(Cow::Borrowed(own));
        }
        parts.push(Cow::Owned(own.repeat(padding as usize)));
        parts.push(text::with_ending(data, ending));
        if !data.ends_with('\n') && (!after.is_empty() || final_break) {
            parts.push(Cow::Borrowed(own));
        }
        parts.push(Cow::Borrowed(after));
    }
    parts.retain(|part| !part.is_empty());
    LineWrite { parts, inserted_at, lines_affected: data_lines, lines_replaced: replaced }
}

/// Returns the bytes of `count` lines from line `start`, counted from 0.
fn byte_range(text: &str, start: u64, count: u64) -> (usize, usize) {
    let mut ends = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
    let mut nth_end = |lines: u64| match lines {
        0 => None,
        _ => Some(ends.nth(lines as usize - 1).unwrap_or(text.len())),
    };
    let from = nth_end(start).unwrap_or(0);
    let to = nth_end(count).unwrap_or(from);
    (from, to)
}

fn without_break(text: &str) -> &str {
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the new text, where the data starts, its lines and the lines it replaced.
    fn shown(write: &LineWrite<'_>) -> (String, u64, u64, u64) {
        (write.parts.concat(), write.inserted_at, write.lines_affected, write.lines_replaced)
    }

    #[test]
    fn inserts_before_a_line_at_the_end_and_beyond() {
        let check = |text, data, line, expected: &str, at| {
            let write = insert(text, data, line);
            assert_eq!(
                (write.parts.concat().as_str(), write.inserted_at),
                (expected, at),
                "{text:?} {data:?} {line}"
            );
        };
        check("a\nb\n", "x\n", 1, "x\na\nb\n", 1);
        check("a\nb\n", "x\n", 0, "x\na\nb\n", 1);
        check("a\nb\n", "x", 2, "a\nx\nb\n", 2);
        check("a\nb\n", "x\n", 3, "a\nb\nx\n", 3);
        check("a\nb", "x", 3, "a\nb\nx", 3);
        check("a\nb\n", "x", 3, "a\nb\nx\n", 3);
        check("a\n", "x\n", 4, "a\n\n\nx\n", 4);
        check("a", "x\n", 4, "a\n\n\nx\n", 4);
        check("", "x", 1, "x", 1);
        check("", "x", 3, "\n\nx", 3);
        check("a\n", "x\n", 999_999, "a\nx\n", 2);
        check("a\r\nb\r\n", "x\ny", 2, "a\r\nx\r\ny\r\nb\r\n", 2);
        check("a\nb\n", "", 1, "a\nb\n", 1);
        let edge = insert("a\n", "x\n", 2 + MAX_PADDING);
        assert_eq!(edge.inserted_at, 2 + MAX_PADDING);
        assert_eq!(insert("a\n", "x\n", 3 + MAX_PADDING).inserted_at, 2);
        assert_eq!(insert("a\n", "x\n", u64::MAX).inserted_at, 2);
    }

    #[test]
    fn only_existing_lines_are_replaced() {
        let check = |text, data, start, end, expected: (&str, u64, u64, u64)| {
            let (text, at, affected, replaced) = shown(&replace(text, data, start, end).unwrap());
            assert_eq!((text.as_str(), at, affected, replaced), expected);
        };
        check("a\nb\nc\n", "x\ny\n", 2, 2, ("a\nx\ny\nc\n", 2, 2, 1));
        check("a\nb\nc\n", "x", 2, 99, ("a\nx\n", 2, 1, 2));
        check("a\nb\nc", "x", 2, 3, ("a\nx", 2, 1, 2));
        check("a\nb\nc", "", 2, 3, ("a", 2, 0, 2));
        check("a\nb\nc\n", "", 2, 3, ("a\n", 2, 0, 2));
        check("a\nb\nc\n", "", 1, 1, ("b\nc\n", 1, 0, 1));
        check("a\n", "x\n", 3, 9, ("a\n\nx\n", 3, 1, 0));
        check("a\nb\n", "x", 0, u64::MAX, ("x\n", 1, 1, 2));
        assert!(replace("a", "x", 3, 2).is_err());
    }

    /// Does the same with lists of lines, for text with LF only.
    fn model(text: &str, data: &str, line: u64, count: u64) -> String {
        let lines: Vec<&str> = text.lines().collect();
        let total = lines.len() as u64;
        let start = line.min(total + 1) - 1;
        let gap = line.saturating_sub(total + 1);
        let end = (start + count).min(total);
        let mut result: Vec<&str> = lines[..start as usize].to_vec();
        if gap <= MAX_PADDING {
            result.extend(std::iter::repeat_n("", gap as usize));
        }
        result.extend(data.lines());
        result.extend(&lines[end as usize..]);
        let mut joined = result.join("\n");
        // The final line break is the file's own, or that of the data if it comes last.
        let data_last = end == total && !data.is_empty();
        let changed = !data.is_empty() || gap > 0;
        let ends = if data_last {
            data.ends_with('\n') || text.ends_with('\n')
        } else if text.is_empty() || (end == total && gap > 0 && gap <= MAX_PADDING) {
            changed && gap > 0 && gap <= MAX_PADDING
        } else {
            text.ends_with('\n')
        };
        if ends && !result.is_empty() {
            joined.push('\n');
        }
        joined
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: gantry_testkit::scaled(20_000, 2_000), ..ProptestConfig::default() })]

        #[test]
        fn equals_the_naive_model(text in "([ab]{0,2}\n){0,5}[ab]{0,2}", data in "([xy]{0,2}\n){0,3}[xy]{0,2}", line in 1u64..9, count in 0u64..9, crlf in any::<bool>()) {
            // Padding without data is a separate case above.
            prop_assume!(!(data.is_empty() && line > text.lines().count() as u64 + 1));
            let expected = model(&text, &data, line, count);
            let crlf = crlf && text.contains('\n');
            let file = if crlf { text.replace('\n', "\r\n") } else { text };
            let expected = if crlf { expected.replace('\n', "\r\n") } else { expected };
            prop_assert_eq!(write(&file, &data, line, count).parts.concat(), expected);
        }
    }
}
