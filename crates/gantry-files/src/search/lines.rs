//! Finds the matching lines in a stretch of text. A pattern sees one line at a time, without its
//! ending.

use grep_matcher::{LineMatchKind, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use memchr::{memchr, memchr_iter, memrchr};
use regex::bytes::Regex;

use super::{BEYOND_BYTES, LINE_CHARS, SearchError};

/// `MatchingLine` is a matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MatchingLine {
    pub(super) number: u64,
    pub(super) content: String,
    pub(super) beyond: String,
}

/// `LineMatcher` is a compiled pattern.
pub(super) enum LineMatcher {
    /// This runs over whole stretches of text and cannot match across lines.
    Stretch(RegexMatcher),
    /// The pattern mentions line ends or the ends of the text, so it must see each line alone.
    Alone(Regex),
}

impl LineMatcher {
    pub(super) fn new(pattern: &str) -> Result<Self, SearchError> {
        // The plain regular expression decides what is valid, because people know its messages.
        let alone = Regex::new(pattern).map_err(|error| SearchError::Pattern(error.to_string()))?;
        if pattern.contains("\\A") || pattern.contains("\\z") {
            return Ok(Self::Alone(alone));
        }
        match RegexMatcherBuilder::new().multi_line(true).crlf(true).build(pattern) {
            Ok(matcher) => Ok(Self::Stretch(matcher)),
            Err(_) => Ok(Self::Alone(alone)),
        }
    }

    /// Adds the matching lines of `text` until `lines` holds `wanted`. `text` is whole lines and
    /// begins with line `number`.
    pub(super) fn scan(&self, text: &[u8], number: &mut u64, lines: &mut Vec<MatchingLine>, wanted: usize) {
        // `number` includes everything before `counted`.
        let mut counted = 0;
        let mut position = 0;
        while position < text.len() && lines.len() < wanted {
            let Some((start, end)) = self.next_line(text, position) else { break };
            let bare = without_ending(text.get(start..end).unwrap_or_default());
            if self.matches(bare) {
                *number += memchr_iter(b'\n', text.get(counted..start).unwrap_or_default()).count() as u64;
                counted = start;
                let (content, beyond) = beginning(bare);
                lines.push(MatchingLine { number: *number, content, beyond });
            }
            position = end;
        }
        *number += memchr_iter(b'\n', text.get(counted..).unwrap_or_default()).count() as u64;
    }

    /// Returns the next line at or after `position` that may match, as a range up to the start of
    /// the following line. `position` is the start of a line.
    fn next_line(&self, text: &[u8], position: usize) -> Option<(usize, usize)> {
        let rest = text.get(position..)?;
        let inside = match self {
            Self::Alone(_) => 0,
            Self::Stretch(matcher) => match matcher.find_candidate_line(rest) {
                Ok(Some(LineMatchKind::Confirmed(inside) | LineMatchKind::Candidate(inside))) => inside,
                Ok(None) | Err(_) => return None,
            },
        };
        if inside == rest.len() && rest.ends_with(b"\n") {
            return None;
        }
        let start = memrchr(b'\n', rest.get(..inside)?).map_or(0, |newline| newline + 1);
        let end = memchr(b'\n', rest.get(inside..)?).map_or(rest.len(), |newline| inside + newline + 1);
        Some((position + start, position + end))
    }

    fn matches(&self, line: &[u8]) -> bool {
        match self {
            Self::Alone(regex) => regex.is_match(line),
            Self::Stretch(matcher) => matcher.is_match(line).unwrap_or(false),
        }
    }
}

fn without_ending(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns the first characters of a line, and what follows them.
fn beginning(line: &[u8]) -> (String, String) {
    // A character has at most four bytes, so bytes beyond this cannot be part of it.
    let head = line.get(..LINE_CHARS * 4 + 4 + BEYOND_BYTES).unwrap_or(line);
    let text = String::from_utf8_lossy(head);
    match text.char_indices().nth(LINE_CHARS) {
        Some((end, _)) => {
            let (content, beyond) = text.split_at(end);
            (content.to_owned(), beyond[..beyond.floor_char_boundary(BEYOND_BYTES)].to_owned())
        }
        None => (text.into_owned(), String::new()),
    }
}
