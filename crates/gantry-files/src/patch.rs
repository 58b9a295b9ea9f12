//! Applies a unified diff to the bytes of one file. Every context line is verified. Hunks are
//! searched around the line in their header, as GNU `patch` does. Either all hunks apply or none.
//!
//! Four cases apply here but not in GNU `patch`, and none of them applies a hunk to text that it
//! does not describe:
//! - Wrong counts in a header are recounted.
//! - Line endings follow the file.
//! - A missing or spurious final newline follows the file.
//! - Context on one side only does not tie a hunk to the beginning or end of the file, if its place
//!   is certain otherwise.
//!
//! One case is refused here that GNU `patch` may accept: a hunk that names lines before the
//! previous hunk's change.

mod find_place;
mod lines;
mod parse;
mod pieces;

use std::borrow::Cow;
use std::fmt;

pub use self::{
    lines::Ending,
    parse::{FilePatch, Hunk, HunkLine, LineRole, PatchKind, Ranges, parse},
};

use self::{
    find_place::{Placed, Placement, Search},
    lines::Lines,
    pieces::Pieces,
};

/// The highest fuzz that a caller may request.
pub const MAX_FUZZ: u8 = 2;
/// How many lines of each side of a rejected hunk are shown, and how many characters of each line.
const REJECT_LINES: usize = 20;
const REJECT_CHARS: usize = 200;

/// `Patched` is a patched file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patched<'a> {
    /// The new content in pieces; none for [`PatchKind::Delete`].
    pub parts: Vec<Cow<'a, [u8]>>,
    pub kind: PatchKind,
    pub hunks: Vec<AppliedHunk>,
}

impl Patched<'_> {
    /// Returns the new content as one buffer.
    pub fn bytes(&self) -> Vec<u8> {
        self.parts.concat()
    }
}

/// `AppliedHunk` says how a hunk was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedHunk {
    /// How many lines are between the place in its header and the place where it was found, beyond
    /// what earlier hunks moved.
    pub offset: i64,
    /// How many context lines were ignored at each end.
    pub fuzz: u8,
    /// Whether line endings, the final newline or one-sided context were taken from the file
    /// instead of the patch.
    pub adapted: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    #[error("the patch has no hunk: send a unified diff with `@@ -line,count +line,count @@` headers")]
    NoHunks,
    #[error(
        "not a unified diff: lines must begin with ` `, `-` or `+` below a `@@ -line,count +line,count @@` header"
    )]
    OtherFormat,
    #[error("patch line {line}: {reason}")]
    Malformed { line: usize, reason: String },
    #[error("the patch is binary; only text can be patched")]
    Binary,
    #[error("the patch changes several files ({first} and {second}): send one file per call")]
    SeveralFiles { first: String, second: String },
    #[error("fuzz must be at most {MAX_FUZZ}")]
    Fuzz,
    #[error("{0}")]
    Rejected(Box<Rejected>),
    #[error("hunk {hunk} ({header}) changes lines that an earlier hunk already changed, or comes before it")]
    Overlapping { hunk: usize, header: String },
    #[error("hunk {hunk} ({header}) fits at lines {}: add context or a line number", list(.lines))]
    Ambiguous { hunk: usize, header: String, lines: Vec<usize> },
    #[error("hunk {hunk} ({header}) has neither context nor a line number, so its place is unknown")]
    NoPlace { hunk: usize, header: String },
    #[error("the patch is already applied: the file holds its new lines, not its old ones")]
    AlreadyApplied,
    #[error("the patch creates the file, but it exists and is not empty")]
    Exists,
    #[error("the patch deletes the file, but {lines} of its lines are not in the patch")]
    Remains { lines: usize },
    #[error("the patch is too costly to place: its hunks repeat lines that the file repeats too")]
    TooCostly,
}

/// `Rejected` describes a hunk that fits nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Counted from 1.
    pub hunk: usize,
    pub header: String,
    /// The lines that the hunk expects.
    pub expected: Vec<String>,
    /// The lines of the file at the most similar place.
    pub found: Vec<String>,
    /// The number of the first of those lines, counted from 1.
    pub found_at: usize,
    /// Whether `expected` and `found` are truncated.
    pub cut: bool,
}

impl fmt::Display for Rejected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "hunk {} ({}) does not fit; nothing was changed\nexpected:",
            self.hunk, self.header
        )?;
        for line in &self.expected {
            write!(formatter, "\n  {line}")?;
        }
        if self.found.is_empty() {
            return write!(formatter, "\nfound: the file ends before line {}", self.found_at);
        }
        write!(formatter, "\nfound at line {}:", self.found_at)?;
        for line in &self.found {
            write!(formatter, "\n  {line}")?;
        }
        if self.cut {
            write!(formatter, "\n  …")?;
        }
        Ok(())
    }
}

fn list(lines: &[usize]) -> String {
    lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Applies a patch to a file's content. `fuzz` is how many context lines at each end may differ, 0
/// to 2.
pub fn apply<'a>(original: &'a [u8], patch: &str, fuzz: u8) -> Result<Patched<'a>, PatchError> {
    if fuzz > MAX_FUZZ {
        return Err(PatchError::Fuzz);
    }
    let mut patch = parse(patch)?;
    if patch.kind == PatchKind::Create && !original.is_empty() {
        return Err(PatchError::Exists);
    }
    let lines = Lines::of(original);
    let adapted = follow_endings(&mut patch, &lines);
    let placed = match place_all(&lines, &patch, fuzz) {
        Ok(placed) => placed,
        Err(PatchError::TooCostly) => return Err(PatchError::TooCostly),
        Err(error) if is_applied(&lines, &patch) => {
            drop(error);
            return Err(PatchError::AlreadyApplied);
        }
        Err(error) => return Err(error),
    };
    let endings = lines.endings();
    let follows_crlf =
        (adapted || placed.iter().any(|place| place.adapted_endings)) && endings.crlf && !endings.lf;
    let join = if follows_crlf { Ending::CrLf } else { Ending::Lf };
    let parts = rewrite(&lines, &patch, &placed, join).into_parts();
    if patch.kind == PatchKind::Delete && !parts.is_empty() {
        return Err(PatchError::Remains { lines: Lines::of(&parts.concat()).len() });
    }
    let applied = |placed: &Placed| AppliedHunk {
        offset: placed.offset,
        fuzz: placed.fuzz,
        adapted: adapted || placed.adapted,
    };
    Ok(Patched { parts, kind: patch.kind, hunks: placed.iter().map(applied).collect() })
}

/// Gives all lines of the patch the file's endings, if each has only one kind and they differ.
fn follow_endings(patch: &mut FilePatch<'_>, lines: &Lines<'_>) -> bool {
    let in_file = lines.endings();
    let body = || patch.hunks.iter().flat_map(|hunk| &hunk.lines);
    let in_patch = |ending| body().any(|line| line.ending == ending);
    let (from, to) = match (in_file.lf, in_file.crlf) {
        (false, true) if !in_patch(Ending::CrLf) => (Ending::Lf, Ending::CrLf),
        (true, false) if !in_patch(Ending::Lf) => (Ending::CrLf, Ending::Lf),
        _ => return false,
    };
    let mut changed = false;
    for line in patch.hunks.iter_mut().flat_map(|hunk| &mut hunk.lines).filter(|line| line.ending == from) {
        line.ending = to;
        changed = true;
    }
    changed
}

fn place_all(lines: &Lines<'_>, patch: &FilePatch<'_>, fuzz: u8) -> Result<Vec<Placed>, PatchError> {
    let mut search = Search::new(lines);
    let mut placed = Vec::with_capacity(patch.hunks.len());
    for (index, hunk) in patch.hunks.iter().enumerate() {
        let (number, header) = (index + 1, || hunk.header.to_owned());
        match search.place(hunk, fuzz) {
            Placement::Here(place) => placed.push(place),
            Placement::Nowhere => {
                return Err(PatchError::Rejected(Box::new(rejected(&search, lines, hunk, number))));
            }
            Placement::Frozen => return Err(PatchError::Overlapping { hunk: number, header: header() }),
            Placement::Several(lines) => {
                return Err(PatchError::Ambiguous { hunk: number, header: header(), lines });
            }
            Placement::NoHint => return Err(PatchError::NoPlace { hunk: number, header: header() }),
            Placement::TooCostly => return Err(PatchError::TooCostly),
        }
    }
    Ok(placed)
}

/// Reports whether the reversed patch fits: then the patch is already applied.
fn is_applied(lines: &Lines<'_>, patch: &FilePatch<'_>) -> bool {
    let mut search = Search::new(lines);
    patch.hunks.iter().all(|hunk| {
        let reversed = hunk.reversed();
        reversed.lines.iter().any(|line| line.role != LineRole::Added)
            && matches!(search.place(&reversed, 0), Placement::Here(_))
    })
}

fn rejected(search: &Search<'_>, lines: &Lines<'_>, hunk: &Hunk<'_>, number: usize) -> Rejected {
    let old: Vec<&HunkLine<'_>> = hunk.lines.iter().filter(|line| line.role != LineRole::Added).collect();
    let at = search.most_alike(hunk);
    let shorten = |text: &str| text.chars().take(REJECT_CHARS).collect::<String>();
    let found = (at..lines.len().min(at + old.len().min(REJECT_LINES)))
        .map(|index| shorten(&String::from_utf8_lossy(lines.get(index).content)))
        .collect();
    Rejected {
        hunk: number,
        header: hunk.header.to_owned(),
        expected: old.iter().take(REJECT_LINES).map(|line| shorten(line.content)).collect(),
        found,
        found_at: at + 1,
        cut: old.len() > REJECT_LINES,
    }
}

/// Writes the new file. Lines that no hunk touches are copied in long stretches. `join` ends a last
/// line that is not the last any more.
fn rewrite<'a>(lines: &Lines<'a>, patch: &FilePatch<'_>, placed: &[Placed], join: Ending) -> Pieces<'a> {
    let mut output = Pieces::default();
    // The first line of the file that is not copied yet.
    let mut next = 0;
    for (hunk, place) in patch.hunks.iter().zip(placed) {
        let mut line_index = place.line;
        let mut like = Ending::None;
        for line in &hunk.lines {
            match line.role {
                LineRole::Context => line_index += 1,
                LineRole::Removed => {
                    copy(&mut output, lines, join, next, line_index);
                    like = if line_index < lines.len() { lines.get(line_index).ending } else { Ending::None };
                    line_index += 1;
                    next = line_index;
                }
                LineRole::Added => {
                    copy(&mut output, lines, join, next, line_index);
                    next = next.max(line_index.min(lines.len()));
                    let ending = if place.adapted_endings {
                        adapted_ending(lines, line, like, line_index)
                    } else {
                        line.ending
                    };
                    start_line(&mut output, join);
                    output.add(line.content.as_bytes());
                    output.add(ending.bytes());
                }
            }
        }
        let reaches_end = next >= lines.len() && !output.is_empty();
        if place.adapted_endings && reaches_end && !place.final_newline_agrees {
            keep_final_newline(&mut output, lines);
        }
    }
    copy(&mut output, lines, join, next, lines.len());
    output
}

/// Returns the ending for an added line in a file whose endings differ from the patch's: that of
/// the line it replaces, or else of a neighbour.
fn adapted_ending(lines: &Lines<'_>, line: &HunkLine<'_>, replaced: Ending, index: usize) -> Ending {
    if line.ending == Ending::None {
        return Ending::None;
    }
    let neighbours = [index.checked_sub(1), Some(index)];
    let near = neighbours.into_iter().flatten().filter(|index| *index < lines.len());
    std::iter::once(replaced)
        .chain(near.map(|index| lines.get(index).ending))
        .find(|ending| *ending != Ending::None)
        .unwrap_or(line.ending)
}

fn keep_final_newline(output: &mut Pieces<'_>, lines: &Lines<'_>) {
    let wanted = if lines.len() == 0 { Ending::None } else { lines.get(lines.len() - 1).ending };
    match wanted {
        Ending::None => output.strip_newline(),
        ending if !output.ends_with_newline() => output.add(ending.bytes()),
        _ => {}
    }
}

/// Copies the lines `from..to` of the file.
fn copy<'a>(output: &mut Pieces<'a>, lines: &Lines<'a>, join: Ending, from: usize, to: usize) {
    let to = to.min(lines.len());
    if from < to {
        start_line(output, join);
        output.borrow(lines.bytes(from, to));
    }
}

/// A line without a newline was the last of its file. If something follows it, it needs one.
fn start_line(output: &mut Pieces<'_>, ending: Ending) {
    if !output.is_empty() && !output.ends_with_newline() {
        output.add(ending.bytes());
    }
}
