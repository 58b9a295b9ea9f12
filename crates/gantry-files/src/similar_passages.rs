//! Finds the passages most similar to a text that was not found, so that the caller sees what to
//! correct.
//!
//! The work is bounded: it scores windows of lines in the first megabytes only, and compares a few
//! of them closely.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

const MAX_PASSAGES: usize = 3;
const MAX_SCANNED_BYTES: usize = 4 * 1024 * 1024;
const MAX_SCANNED_LINES: usize = 100_000;
const MAX_OLD_LINES: usize = 200;
/// Lines longer than this are compared and shown by their start.
const MAX_LINE_BYTES: usize = 200;
const MAX_SHOWN_LINES: usize = 8;
/// A passage that shares fewer of its character pairs is not shown.
const MIN_LIKENESS: f64 = 0.4;

/// `Passage` is a part of the file that resembles the text that was searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The number of the first line, counted from 1.
    pub line: u64,
    /// The lines. Long ones are shortened.
    pub lines: Vec<String>,
}

/// Returns the most similar passages, best first: at most three, and none if nothing is similar.
pub(crate) fn passages(text: &str, old: &str) -> Vec<Passage> {
    let wanted: Vec<&str> = old.lines().take(MAX_OLD_LINES).map(head).collect();
    let Some(anchor) = wanted.iter().position(|line| !line.trim().is_empty()) else { return Vec::new() };
    let scanned = &text[..floor(text, MAX_SCANNED_BYTES)];
    let lines: Vec<&str> = scanned.lines().take(MAX_SCANNED_LINES).map(head).collect();
    let mut starts = starts_by_equal_lines(&lines, &wanted);
    if starts.is_empty() {
        starts = starts_by_likeness(&lines, &wanted, anchor);
    }
    let mut scored: Vec<(f64, usize)> =
        starts.into_iter().map(|start| (likeness_of_window(&lines, &wanted, start), start)).collect();
    scored.retain(|(score, _)| *score >= MIN_LIKENESS);
    scored.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    let shown = wanted.len().min(MAX_SHOWN_LINES);
    let passage = |(_, start): &(f64, usize)| Passage {
        line: *start as u64 + 1,
        lines: lines[*start..].iter().take(shown).map(|line| (*line).to_owned()).collect(),
    };
    scored.iter().take(MAX_PASSAGES).map(passage).collect()
}

/// Formats the passages with line numbers, as the end of an error message.
pub(crate) fn describe(passages: &[Passage]) -> String {
    let mut text = String::new();
    for (index, passage) in passages.iter().enumerate() {
        text.push_str(if index == 0 { "; closest passages:" } else { "\n--" });
        for (line, content) in (passage.line..).zip(&passage.lines) {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{line}\t{content}");
        }
    }
    text
}

/// Returns windows in which most lines equal the wanted ones, apart from white space around them.
fn starts_by_equal_lines(lines: &[&str], wanted: &[&str]) -> Vec<usize> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in wanted.iter().enumerate() {
        if !line.trim().is_empty() {
            places.entry(line.trim()).or_default().push(index);
        }
    }
    // A line that occurs often in both texts would vote everywhere, so each line of the file has
    // few votes.
    const MAX_VOTES: usize = 4;
    let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
    for (number, line) in lines.iter().enumerate() {
        for &index in places.get(line.trim()).into_iter().flatten().take(MAX_VOTES) {
            if let Some(start) = number.checked_sub(index) {
                *votes.entry(start).or_default() += 1;
            }
        }
    }
    best(votes.into_iter().map(|(start, count)| (count as f64, start)))
}

/// Returns windows whose first line is similar to the first wanted line.
fn starts_by_likeness(lines: &[&str], wanted: &[&str], anchor: usize) -> Vec<usize> {
    let pairs = Pairs::of(wanted[anchor]);
    let scored =
        lines.iter().enumerate().skip(anchor).map(|(number, line)| (pairs.likeness(line), number - anchor));
    best(scored.filter(|(score, _)| *score >= MIN_LIKENESS))
}

/// Returns the best few, by score and then by position.
fn best(scored: impl Iterator<Item = (f64, usize)>) -> Vec<usize> {
    const KEPT: usize = 8;
    let mut kept: Vec<(f64, usize)> = Vec::with_capacity(KEPT + 1);
    for (score, start) in scored {
        let at = kept.partition_point(|(other, _)| *other >= score);
        if at < KEPT {
            kept.insert(at, (score, start));
            kept.truncate(KEPT);
        }
    }
    kept.into_iter().map(|(_, start)| start).collect()
}

fn likeness_of_window(lines: &[&str], wanted: &[&str], start: usize) -> f64 {
    let mut sum = 0.0;
    for (offset, line) in wanted.iter().enumerate() {
        let found = lines.get(start + offset).copied().unwrap_or("");
        sum += Pairs::of(line).likeness(found);
    }
    sum / wanted.len() as f64
}

/// `Pairs` holds the pairs of neighbouring bytes of a line, without the white space around it.
struct Pairs {
    line: Vec<u8>,
    pairs: HashSet<[u8; 2]>,
}

impl Pairs {
    fn of(line: &str) -> Pairs {
        let line = line.trim().as_bytes();
        Pairs { line: line.to_vec(), pairs: line.windows(2).map(|pair| [pair[0], pair[1]]).collect() }
    }

    /// Returns a value from 0 (nothing in common) to 1 (equal).
    fn likeness(&self, other: &str) -> f64 {
        let other = other.trim().as_bytes();
        if other == self.line {
            return 1.0;
        }
        // A line of a very different length cannot share most pairs. Returning early keeps long
        // scans cheap.
        if other.len() < 2
            || self.line.len() < 2
            || other.len() * 4 < self.line.len()
            || self.line.len() * 4 < other.len()
        {
            return 0.0;
        }
        let shared = other.windows(2).filter(|pair| self.pairs.contains(*pair)).count();
        (2 * shared) as f64 / (self.line.len() + other.len() - 2).max(1) as f64
    }
}

fn head(line: &str) -> &str {
    &line[..floor(line, MAX_LINE_BYTES)]
}

/// Returns the nearest character boundary at or below `at`.
fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at)
}
