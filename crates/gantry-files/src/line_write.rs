//! Writing by line number: insert before a line, or replace a range of lines. Pure functions on text.
//!
//! The data takes the file's line endings. It gets a final one when text follows, or when the file's own last line
//! has one; what the data itself ends with is never taken away.

use std::borrow::Cow;

use crate::text::{self, Ending};

/// Beyond this many missing lines nothing is padded: the data goes to the end.
pub const MAX_PADDING: u64 = 1000;

/// New text in pieces, and what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineWrite<'a> {
    pub parts: Vec<Cow<'a, str>>,
    /// The line, counted from 1, at which the data starts now.
    pub inserted_at: u64,
    /// Lines of the data.
    pub lines_affected: u64,
    /// Lines that were really there and are gone.
    pub lines_replaced: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineWriteError {
    #[error("end_line {end} comes before start_line {start}")]
    EndBeforeStart { start: u64, end: u64 },
}

/// Puts `data` before a line, counted from 1; 0 counts as 1.
pub fn insert<'a>(text: &'a str, data: &'a str, line: u64) -> LineWrite<'a> {
    write(text, data, line.max(1), 0)
}

/// Puts `data` in the place of the lines `start` to `end`, both counted from 1 and inclusive.
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
        // Lines were only taken away: the new last line ends as the old one did.
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

/// The bytes of `count` lines from line `start`, counted from 0.
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
