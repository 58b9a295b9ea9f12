//! Finds the place of a hunk. Places are tried in the order of GNU `patch`: first the line in the
//! header, shifted by the offset of earlier hunks. The search then moves outward, trying a line
//! below before the line above at the same distance.

use super::{
    lines::{Ending, Lines},
    parse::{Hunk, HunkLine, LineRole},
};

/// How many line comparisons one patch may cost: about a second. Five hundred hunks that are each
/// searched in all of a 10 MiB file stay below it.
const MAX_COMPARISONS: u64 = 100_000_000;
/// How many places the error names when a hunk without line numbers fits several.
const MAX_NAMED_PLACES: usize = 5;

/// `Placed` is a hunk's place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    /// The line, from 0, that the hunk's first old line matches.
    pub(super) line: usize,
    pub(super) offset: i64,
    pub(super) fuzz: u8,
    pub(super) adapted: bool,
    /// Whether it matched only when line endings were ignored.
    pub(super) adapted_endings: bool,
    /// Whether hunk and file agree on a final newline, if the hunk reaches the end.
    pub(super) final_newline_agrees: bool,
}

#[derive(Debug)]
pub(super) enum Placement {
    Here(Placed),
    Nowhere,
    /// The hunk fits only where an earlier hunk was applied.
    Frozen,
    /// The hunk fits at these lines, counted from 1, with nothing to choose between them.
    Several(Vec<usize>),
    NoHint,
    TooCostly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Exactly,
    WithoutEndings,
}

/// `Search` places the hunks of a patch one after the other.
pub(super) struct Search<'a> {
    lines: &'a Lines<'a>,
    /// How many lines at the beginning earlier hunks have fixed.
    frozen: i64,
    /// How far the last hunk was from the line in its header.
    drift: i64,
    comparisons: u64,
}

/// `HunkPattern` is what a hunk searches for. Line numbers count from 1 and may leave the file while
/// searching.
struct HunkPattern<'h, 'p> {
    old: Vec<&'h HunkLine<'p>>,
    prefix: i64,
    suffix: i64,
}

impl<'a> Search<'a> {
    pub(super) fn new(lines: &'a Lines<'a>) -> Self {
        Self { lines, frozen: 0, drift: 0, comparisons: 0 }
    }

    pub(super) fn place(&mut self, hunk: &Hunk<'_>, fuzz: u8) -> Placement {
        let pattern = HunkPattern::of(hunk);
        let found = self.find(hunk, &pattern, fuzz);
        if self.comparisons > MAX_COMPARISONS {
            return Placement::TooCostly;
        }
        let Placement::Here(placed) = found else { return found };
        if hunk.first_line().is_some() {
            self.drift += placed.offset;
        }
        self.frozen = placed.line as i64 + settled_lines(hunk);
        Placement::Here(placed)
    }

    fn find(&mut self, hunk: &Hunk<'_>, pattern: &HunkPattern<'_, '_>, fuzz: u8) -> Placement {
        let guess = hunk.first_line().map(|line| line.saturating_add(self.drift));
        if pattern.old.is_empty() {
            return self.insertion(guess);
        }
        if let Some(guess) = guess {
            for compare in [Compare::Exactly, Compare::WithoutEndings] {
                for fuzz in 0..=i64::from(fuzz).min(pattern.prefix.max(pattern.suffix)) {
                    match self.around(hunk, pattern, guess, fuzz, compare) {
                        Some(line) if line <= self.frozen => return Placement::Frozen,
                        Some(line) => {
                            return Placement::Here(self.placed(pattern, line, guess, fuzz, compare));
                        }
                        None => {}
                    }
                }
            }
            if guess <= self.frozen {
                return Placement::Frozen;
            }
        }
        for compare in [Compare::Exactly, Compare::WithoutEndings] {
            let fits = self.all(pattern, compare);
            let certain = match (guess, fits.as_slice()) {
                (Some(guess), fits) if fits.contains(&guess) => Some(guess),
                (_, [only]) => Some(*only),
                (None, [_, _, ..]) => {
                    let named =
                        fits.iter().take(MAX_NAMED_PLACES).filter_map(|line| usize::try_from(*line).ok());
                    return Placement::Several(named.collect());
                }
                _ => None,
            };
            if let Some(line) = certain {
                let mut placed = self.placed(pattern, line, guess.unwrap_or(line), 0, compare);
                placed.adapted |= guess.is_some();
                return Placement::Here(placed);
            }
        }
        let fits_frozen = (1..=self.frozen).any(|line| self.fits(pattern, line, 0, 0, Compare::Exactly));
        if fits_frozen { Placement::Frozen } else { Placement::Nowhere }
    }

    /// A hunk that only adds lines and has no context goes where its header says.
    fn insertion(&self, guess: Option<i64>) -> Placement {
        let end = self.lines.len() as i64 + 1;
        let line = match guess {
            Some(guess) => guess.min(end),
            None if self.lines.len() == 0 => 1,
            None => return Placement::NoHint,
        };
        if line <= self.frozen {
            return Placement::Frozen;
        }
        Placement::Here(Placed {
            line: usize::try_from(line - 1).unwrap_or(0),
            offset: 0,
            fuzz: 0,
            adapted: false,
            adapted_endings: false,
            final_newline_agrees: true,
        })
    }

    /// Searches outward from `guess`. Less context on one side means that the file begins or ends
    /// there.
    fn around(
        &mut self,
        hunk: &Hunk<'_>,
        pattern: &HunkPattern<'_, '_>,
        guess: i64,
        fuzz: i64,
        compare: Compare,
    ) -> Option<i64> {
        let (file, old) = (self.lines.len() as i64, pattern.old.len() as i64);
        let context = pattern.prefix.max(pattern.suffix);
        let prefix_fuzz = fuzz + pattern.prefix - context;
        let suffix_fuzz = fuzz + pattern.suffix - context;
        let at_start = prefix_fuzz < 0 && hunk.first_line().is_some_and(|line| line <= 1);
        let at_end = suffix_fuzz < 0;
        let (first, last) = (self.frozen + 1, file - (old - suffix_fuzz) + 1);
        let skip_front = prefix_fuzz.max(0);
        if at_start {
            let whole = !at_end || old == file;
            let fits = whole
                && self.frozen <= pattern.prefix
                && self.fits(pattern, 1, 0, suffix_fuzz.max(0), compare);
            return fits.then_some(1);
        }
        if at_end {
            let line = file - old + 1;
            let fits = line >= first && self.fits(pattern, line, skip_front, 0, compare);
            return fits.then_some(line);
        }
        let places = outward(guess, first, last);
        for line in places {
            if self.comparisons > MAX_COMPARISONS {
                return None;
            }
            if self.fits(pattern, line, skip_front, suffix_fuzz, compare) {
                return Some(line);
            }
        }
        None
    }

    /// Returns every place where the whole pattern fits.
    fn all(&mut self, pattern: &HunkPattern<'_, '_>, compare: Compare) -> Vec<i64> {
        let last = self.lines.len() as i64 - pattern.old.len() as i64 + 1;
        let first = self.frozen + 1;
        let mut fits = Vec::new();
        for line in first..=last {
            if self.fits(pattern, line, 0, 0, compare) {
                fits.push(line);
            }
            if self.comparisons > MAX_COMPARISONS {
                break;
            }
        }
        fits
    }

    fn fits(
        &mut self,
        pattern: &HunkPattern<'_, '_>,
        line: i64,
        skip_front: i64,
        skip_back: i64,
        compare: Compare,
    ) -> bool {
        let (Ok(first), Ok(front)) = (usize::try_from(line - 1), usize::try_from(skip_front)) else {
            return false;
        };
        let end = pattern.old.len().saturating_sub(usize::try_from(skip_back).unwrap_or(0));
        let wanted = pattern.old.get(front..end).unwrap_or_default();
        for (index, wanted) in (first + front..).zip(wanted) {
            self.comparisons += 1;
            if index >= self.lines.len() || !same(self.lines, index, wanted, compare) {
                return false;
            }
        }
        true
    }

    fn placed(
        &self,
        pattern: &HunkPattern<'_, '_>,
        line: i64,
        guess: i64,
        fuzz: i64,
        compare: Compare,
    ) -> Placed {
        let first = usize::try_from(line - 1).unwrap_or(0);
        let adapted_endings = compare == Compare::WithoutEndings;
        let last_wanted = pattern.old.last().map(|line| line.ending == Ending::None);
        let reaches_end = first + pattern.old.len() >= self.lines.len();
        let ends_bare = self.lines.len() > 0 && self.lines.get(self.lines.len() - 1).ending == Ending::None;
        Placed {
            line: first,
            offset: line - guess,
            fuzz: u8::try_from(fuzz).unwrap_or(u8::MAX),
            adapted: adapted_endings,
            adapted_endings,
            final_newline_agrees: !reaches_end || last_wanted == Some(ends_bare),
        }
    }

    /// Returns the line, from 0, at which most of the hunk's old lines match; its own line if none
    /// do.
    pub(super) fn most_alike(&self, hunk: &Hunk<'_>) -> usize {
        let pattern = HunkPattern::of(hunk);
        let file = self.lines.len();
        let guess = hunk.first_line().unwrap_or(1).saturating_add(self.drift).max(1);
        let guess = usize::try_from(guess - 1).unwrap_or(0).min(file);
        if file.saturating_mul(pattern.old.len()) > 20_000_000 {
            return guess;
        }
        let alike = |at: usize| {
            let pairs = pattern.old.iter().zip(at..file);
            pairs.filter(|(wanted, index)| same(self.lines, *index, wanted, Compare::WithoutEndings)).count()
        };
        (0..file)
            .map(|at| (alike(at), std::cmp::Reverse(at.abs_diff(guess)), at))
            .max()
            .map_or(guess, |best| best.2)
    }
}

/// Returns the lines to try, from `guess` outward within `first..=last`. A guess among the fixed
/// lines is searched upward from well before it. A hunk that belongs there is then noticed, and not
/// applied to a similar passage further down.
fn outward(guess: i64, first: i64, last: i64) -> impl Iterator<Item = i64> {
    let misordered = guess < first;
    let nearest = (guess - last).max(0);
    let farthest = (last - guess).max(guess - first);
    let distances = (!misordered).then_some(nearest..=farthest).into_iter().flatten();
    let pairs = distances.flat_map(move |distance| {
        let below = Some(guess + distance);
        let above = (distance > 0).then_some(guess - distance);
        below.into_iter().chain(above).filter(move |line| (first..=last).contains(line))
    });
    let start = (2 * guess - first).max(1);
    let upward = misordered.then_some(start..=last).into_iter().flatten();
    pairs.chain(upward)
}

fn same(lines: &Lines<'_>, index: usize, wanted: &HunkLine<'_>, compare: Compare) -> bool {
    let line = lines.get(index);
    line.content == wanted.content.as_bytes()
        && (compare == Compare::WithoutEndings || line.ending == wanted.ending)
}

/// Counts the old lines of a hunk up to its last change. These may not be changed again; its
/// trailing context may.
fn settled_lines(hunk: &Hunk<'_>) -> i64 {
    let last_change = hunk.lines.iter().rposition(|line| line.role != LineRole::Context);
    let settled = hunk.lines.iter().take(last_change.map_or(0, |index| index + 1));
    settled.filter(|line| line.role != LineRole::Added).count() as i64
}

impl<'h, 'p> HunkPattern<'h, 'p> {
    fn of(hunk: &'h Hunk<'p>) -> Self {
        let is_context = |line: &&HunkLine<'_>| line.role == LineRole::Context;
        Self {
            old: hunk.lines.iter().filter(|line| line.role != LineRole::Added).collect(),
            prefix: hunk.lines.iter().take_while(is_context).count() as i64,
            suffix: hunk.lines.iter().rev().take_while(is_context).count() as i64,
        }
    }
}
