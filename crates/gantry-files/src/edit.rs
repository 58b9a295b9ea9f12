//! Exact edits: replaces one passage, or every occurrence of it. These are pure functions on bytes.
//!
//! CRLF counts as LF in both the file and the passage. The replacement gets the file's line
//! endings. The result is slices of the old content and the new passages, so that nothing large is
//! copied.

use std::borrow::Cow;

use memchr::memmem;

use crate::similar_passages::{self, Passage};
use crate::text::{self, Ending, NotText};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrences {
    /// There must be exactly one occurrence.
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
    #[error("the passage was not found{}", similar_passages::describe(.closest))]
    NotFound { closest: Vec<Passage> },
    #[error("the passage was found {count} times (lines {})", join(.lines))]
    Ambiguous { count: usize, lines: Vec<u64> },
    #[error(transparent)]
    NotText(#[from] NotText),
}

/// How many line numbers the error for an ambiguous passage lists.
const MAX_REPORTED_LINES: usize = 10;

impl EditError {
    /// Suggests what to do next, where there is something to do.
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

/// `EditedText` is an edit of decoded text.
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
        return Err(EditError::NotFound { closest: similar_passages::passages(text, old) });
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
        // This is a copy, so that the result borrows from the file alone and can be passed to
        // `Scope::update`.
        parts.push(Cow::Owned(text::with_ending(new, own.filter(|_| main.is_some()).or(main)).into_owned()));
        done = end;
    }
    parts.push(Cow::Borrowed(&text[done..]));
    parts.retain(|part| !part.is_empty());
    let first_line = lines_of(text, std::iter::once(first)).first().copied().unwrap_or(1);
    Ok(EditedText { parts, replacements: matches.len(), first_line })
}

/// Returns where `old` occurs in `text`, without overlaps, as if both had LF endings only.
fn find(text: &str, old: &str) -> Vec<(usize, usize)> {
    let has_crlf = || memmem::find(text.as_bytes(), b"\r\n").is_some();
    if !old.contains(['\n', '\r']) || !(has_crlf() || old.contains("\r\n")) {
        let finder = memmem::Finder::new(old);
        return finder.find_iter(text.as_bytes()).map(|at| (at, at + old.len())).collect();
    }
    let old = text::with_ending(old, Some(Ending::Lf));
    let plain = text::with_ending(text, Some(Ending::Lf));
    // Each CRLF shortened to LF shifts what follows by one byte.
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

/// Returns the line numbers, from 1, of ascending byte positions.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, old: &str, new: &str, occurrences: Occurrences) -> String {
        match edit(text.as_bytes(), old, new, occurrences) {
            Ok(edited) => String::from_utf8(edited.parts.concat()).unwrap(),
            Err(err) => format!("error: {err}"),
        }
    }

    #[test]
    fn replaces_one_or_all() {
        assert_eq!(check("a b c\n", "b", "B", Occurrences::One), "a B c\n");
        assert_eq!(check("b b\nb", "b", "", Occurrences::All), " \n");
        assert_eq!(
            check("b\nx\nb", "b", "c", Occurrences::One),
            "error: the passage was found 2 times (lines 1, 3)"
        );
        assert_eq!(check("aaa", "aa", "b", Occurrences::All), "ba");
    }

    #[test]
    fn empty_and_equal_passages_are_rejected() {
        assert_eq!(check("a", "", "b", Occurrences::One), "error: the passage to replace is empty");
        assert_eq!(
            check("a", "a", "a", Occurrences::One),
            "error: the passage and its replacement are equal"
        );
        assert!(check("a\r\n", "a\n", "a\r\n", Occurrences::One).contains("equal"));
    }

    #[test]
    fn crlf_file_keeps_its_endings() {
        assert_eq!(
            check("one\r\ntwo\r\nend", "one\ntwo\n", "1\n2\n3\n", Occurrences::One),
            "1\r\n2\r\n3\r\nend"
        );
        assert_eq!(check("one\r\ntwo", "one", "1\n2", Occurrences::One), "1\r\n2\r\ntwo");
        assert_eq!(check("a\r\nb", "\n", "", Occurrences::One), "ab");
        assert_eq!(check("one\ntwo\n", "one\r\ntwo", "1\r\n2", Occurrences::One), "1\n2\n");
        // In a file with mixed endings, the passage's own ending is used.
        assert_eq!(check("a\nb\r\nc\r\n", "a\nb", "1\n2", Occurrences::One), "1\n2\r\nc\r\n");
        assert_eq!(check("a\nb\r\nc\r\nd\n", "a\nb", "1\n2", Occurrences::One), "1\n2\r\nc\r\nd\n");
        assert_eq!(check("no break", "no", "a\r\nb", Occurrences::One), "a\r\nb break");
    }

    #[test]
    fn other_encodings_are_preserved() {
        let marked = [UTF8_MARKED, b"one\ntwo"].concat();
        let edited = edit(&marked, "one", "1", Occurrences::One).unwrap();
        assert_eq!(edited.parts.concat(), [UTF8_MARKED, b"1\ntwo"].concat());
        let utf16 = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_be_bytes).collect() };
        let edited = utf16("\u{feff}one\r\nzwölf 𝄞\r\n");
        let edited = edit(&edited, "one\nzwölf", "1\n12", Occurrences::One).unwrap();
        assert_eq!(edited.parts.concat(), utf16("\u{feff}1\r\n12 𝄞\r\n"));
        assert!(matches!(edit(b"\xff\xfe\x00", "a", "b", Occurrences::One), Err(EditError::NotText(_))));
        assert!(matches!(edit(b"a\xff", "a", "b", Occurrences::One), Err(EditError::NotText(_))));
    }

    const UTF8_MARKED: &[u8] = b"\xef\xbb\xbf";

    #[test]
    fn error_shows_the_closest_passages() {
        let text = "fn main() {\n    let x = 1;\n    print(x);\n}\n\nfn other() {\n    let y = 22;\n}\n";
        let message = check(text, "  let x = 1;\n  print(y);\n", "", Occurrences::One);
        assert!(
            message.starts_with(
                "error: the passage was not found; closest passages:\n2\t    let x = 1;\n3\t    print(x);"
            ),
            "{message}"
        );
        let message = check(text, "let yy = 22;", "", Occurrences::One);
        assert!(message.contains("\n7\t    let y = 22;"), "{message}");
        assert_eq!(
            check(text, "something else entirely", "", Occurrences::One),
            "error: the passage was not found"
        );
        assert_eq!(check(text, "\n\n\n", "", Occurrences::One), "error: the passage was not found");
    }

    #[test]
    fn search_for_similar_passages_is_bounded() {
        let text = "the same line again and again\n".repeat(1_000_000);
        let old = "the same line again and agaim\n".repeat(1000);
        let began = std::time::Instant::now();
        assert!(edit(text.as_bytes(), &old, "x", Occurrences::One).is_err());
        // Without a bound this would take hours. A busy machine may take seconds.
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
    }

    /// Generates text in which short passages occur often, with one kind of ending or both.
    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![Just("a"), Just("b"), Just("é"), Just("\n"), Just("\r\n"), Just("\r")];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: gantry_testkit::scaled(20_000, 2_000), ..ProptestConfig::default() })]

        #[test]
        fn equals_the_naive_model(text in text(), old in "[abé\n]{1,3}", new in "[abé\n]{0,3}", crlf in any::<bool>()) {
            let plain = text.replace("\r\n", "\n");
            // In a file with one kind of ending, the model is a replacement in LF text, converted
            // back.
            let file = if crlf { plain.replace('\n', "\r\n") } else { plain.replace('\r', "") };
            let plain = file.replace("\r\n", "\n");
            let count = plain.matches(&old).count();
            match edit(file.as_bytes(), &old, &new, Occurrences::All) {
                Ok(edited) => {
                    let result = String::from_utf8(edited.parts.concat()).unwrap();
                    let model = plain.replace(&old, &new);
                    let has_break = file.contains('\n');
                    let model = if crlf && has_break { model.replace('\n', "\r\n") } else { model };
                    prop_assert_eq!(result, model);
                    prop_assert_eq!(edited.replacements, count);
                }
                Err(EditError::Same) => prop_assert_eq!(old, new),
                Err(err) => {
                    prop_assert_eq!(count, 0);
                    let not_found = matches!(err, EditError::NotFound { .. });
                    prop_assert!(not_found);
                }
            }
        }

        #[test]
        fn mixed_endings_outside_the_passage_survive(text in text(), old in "[abé\r\n]{1,3}", new in "[abé\n]{0,3}") {
            if let Ok(edited) = edit(text.as_bytes(), &old, &new, Occurrences::One) {
                let result = String::from_utf8(edited.parts.concat()).unwrap();
                let (plain, old) = (text.replace("\r\n", "\n"), old.replace("\r\n", "\n"));
                let at = plain.find(&old).unwrap();
                let (before, after) = (&plain[..at], &plain[at + old.len()..]);
                let lines_before = before.matches('\n').count();
                prop_assert_eq!(edited.first_line, lines_before as u64 + 1);
                // The bytes before and after the passage are those of the file.
                let tail = text.len() - skip_plain(&text, plain.len() - after.len());
                prop_assert!(result.ends_with(&text[text.len() - tail..]));
                prop_assert!(result.starts_with(&text[..skip_plain(&text, at)]));
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60), old in ".{0,4}", new in ".{0,4}") {
            let _ = edit(&bytes, &old, &new, Occurrences::All);
        }
    }

    /// Returns the byte in `text` that is at `at` once CRLF is LF. It never splits a line break.
    fn skip_plain(text: &str, at: usize) -> usize {
        let (mut plain, mut real) = (0, 0);
        while plain < at {
            real += if text[real..].starts_with("\r\n") {
                2
            } else {
                text[real..].chars().next().unwrap().len_utf8()
            };
            plain += if text[..real].ends_with("\r\n") {
                1
            } else {
                text[..real].chars().next_back().unwrap().len_utf8()
            };
        }
        real
    }
}
