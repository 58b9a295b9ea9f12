//! Exact edits: one passage replaced by another, or every one of them. Pure functions on bytes.
//!
//! A file with CRLF is matched as if its lines ended in LF, and so is the passage; what is written takes the file's
//! endings. The result is slices of the old content and the new passages, so that nothing large is copied.

use std::borrow::Cow;

use memchr::memmem;

use crate::closest::{self, Passage};
use crate::text::{self, Ending, NotText};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrences {
    /// There must be exactly one.
    One,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited<'a> {
    pub parts: Vec<Cow<'a, [u8]>>,
    pub replacements: usize,
    /// The line of the first replacement, counted from 1.
    pub first_line: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("the passage to replace is empty")]
    EmptyOld,
    #[error("the passage and its replacement are equal")]
    Same,
    #[error("the passage was not found{}", closest::describe(.closest))]
    NotFound { closest: Vec<Passage> },
    #[error("the passage was found {count} times (lines {})", join(.lines))]
    Ambiguous { count: usize, lines: Vec<u64> },
    #[error(transparent)]
    NotText(#[from] NotText),
}

/// An ambiguous passage is reported with so many of its lines.
const MAX_REPORTED_LINES: usize = 10;

impl EditError {
    /// What to do next, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            EditError::Ambiguous { .. } => {
                Some("add surrounding lines to make it unique, or pass replaceAll: true")
            }
            EditError::NotFound { .. } => {
                Some("read the file and copy the passage exactly, white space included")
            }
            _ => None,
        }
    }
}

/// Replaces `old` by `new` in a file's content.
pub fn edit<'a>(
    bytes: &'a [u8],
    old: &str,
    new: &str,
    occurrences: Occurrences,
) -> Result<Edited<'a>, EditError> {
    if old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    if text::with_ending(old, Some(Ending::Lf)) == text::with_ending(new, Some(Ending::Lf)) {
        return Err(EditError::Same);
    }
    let decoded = text::decode(bytes)?;
    let encoding = decoded.encoding;
    match decoded.text {
        Cow::Borrowed(text) => {
            let found = edit_text(text, old, new, occurrences)?;
            let parts = text::encode(encoding, found.parts);
            Ok(Edited { parts, replacements: found.replacements, first_line: found.first_line })
        }
        Cow::Owned(text) => {
            let found = edit_text(&text, old, new, occurrences)?;
            let owned = found.parts.iter().map(|part| Cow::Owned(part.to_string())).collect();
            let parts = text::encode(encoding, owned);
            Ok(Edited { parts, replacements: found.replacements, first_line: found.first_line })
        }
    }
}

/// An edit of decoded text.
struct EditedText<'a> {
    parts: Vec<Cow<'a, str>>,
    replacements: usize,
    first_line: u64,
}

fn edit_text<'a>(
    text: &'a str,
    old: &str,
    new: &str,
    occurrences: Occurrences,
) -> Result<EditedText<'a>, EditError> {
    let matches = find(text, old);
    let Some(&(first, _)) = matches.first() else {
        return Err(EditError::NotFound { closest: closest::passages(text, old) });
    };
    if occurrences == Occurrences::One && matches.len() > 1 {
        let lines = lines_of(text, matches.iter().take(MAX_REPORTED_LINES).map(|range| range.0));
        return Err(EditError::Ambiguous { count: matches.len(), lines });
    }
    let main = if new.contains('\n') { text::main_ending(text) } else { None };
    let mut parts = Vec::with_capacity(matches.len() * 2 + 1);
    let mut done = 0;
    for &(start, end) in &matches {
        parts.push(Cow::Borrowed(&text[done..start]));
        let own =
            text::lines(&text[start..end]).map(|(_, ending)| ending).find(|&ending| ending != Ending::None);
        // A copy, so that the result borrows from the file alone and can be handed to `Scope::update`.
        parts.push(Cow::Owned(text::with_ending(new, own.filter(|_| main.is_some()).or(main)).into_owned()));
        done = end;
    }
    parts.push(Cow::Borrowed(&text[done..]));
    parts.retain(|part| !part.is_empty());
    let first_line = lines_of(text, std::iter::once(first)).first().copied().unwrap_or(1);
    Ok(EditedText { parts, replacements: matches.len(), first_line })
}

/// Where `old` stands in `text`, without overlaps, as if both had LF endings only.
fn find(text: &str, old: &str) -> Vec<(usize, usize)> {
    let has_crlf = || memmem::find(text.as_bytes(), b"\r\n").is_some();
    if !old.contains(['\n', '\r']) || !(has_crlf() || old.contains("\r\n")) {
        let finder = memmem::Finder::new(old);
        return finder.find_iter(text.as_bytes()).map(|at| (at, at + old.len())).collect();
    }
    let old = text::with_ending(old, Some(Ending::Lf));
    let plain = text::with_ending(text, Some(Ending::Lf));
    // Each CRLF shortened to LF moves what follows by one byte.
    let mut removed = memmem::find_iter(text.as_bytes(), b"\r\n").enumerate().map(|(before, at)| at - before);
    let mut next = removed.next();
    let mut shift = 0;
    let mut original = |at: usize| {
        while next.is_some_and(|break_at| break_at < at) {
            shift += 1;
            next = removed.next();
        }
        at + shift
    };
    let finder = memmem::Finder::new(old.as_bytes());
    finder.find_iter(plain.as_bytes()).map(|at| (original(at), original(at + old.len()))).collect()
}

/// The line numbers, from 1, of ascending byte positions.
fn lines_of(text: &str, positions: impl Iterator<Item = usize>) -> Vec<u64> {
    let (mut line, mut counted) = (1, 0);
    let mut lines = Vec::new();
    for at in positions {
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[counted..at]).count() as u64;
        counted = at;
        lines.push(line);
    }
    lines
}

fn join(lines: &[u64]) -> String {
    let mut text = lines.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    if lines.len() == MAX_REPORTED_LINES {
        text.push_str(", …");
    }
    text
}
