//! Reads a unified diff of one file. It accepts what programs write, and also what people and
//! models write: without file headers, with wrong counts, with bare `@@` headers, inside a code
//! fence.

use super::{PatchError, lines::Ending};

/// `FilePatch` is a patch for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch<'a> {
    /// Without `a/`; `None` if the header is missing or is `/dev/null`.
    pub old_path: Option<&'a str>,
    /// Without `b/`; `None` if the header is missing or is `/dev/null`.
    pub new_path: Option<&'a str>,
    pub kind: PatchKind,
    pub hunks: Vec<Hunk<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    Modify,
    Create,
    Delete,
}

/// `Hunk` is one change, with the lines around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk<'a> {
    /// The `@@` line.
    pub header: &'a str,
    /// The place in the header; `None` for a bare `@@`.
    pub ranges: Option<Ranges>,
    pub lines: Vec<HunkLine<'a>>,
}

/// `Ranges` holds the numbers of a hunk header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranges {
    pub old_start: u32,
    pub old_count: u32,
    pub new_start: u32,
    pub new_count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HunkLine<'a> {
    pub role: LineRole,
    pub content: &'a str,
    pub ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineRole {
    Context,
    Removed,
    Added,
}

impl Hunk<'_> {
    /// Returns the line, from 1, where the hunk's old lines begin according to the header, or where
    /// it inserts.
    pub(super) fn first_line(&self) -> Option<i64> {
        // An empty range names the line before it.
        self.ranges.map(|ranges| i64::from(ranges.old_start) + i64::from(ranges.old_count == 0))
    }

    /// Returns the hunk that undoes this one.
    pub(super) fn reversed(&self) -> Self {
        let mut reversed = self.clone();
        for line in &mut reversed.lines {
            line.role = match line.role {
                LineRole::Context => LineRole::Context,
                LineRole::Removed => LineRole::Added,
                LineRole::Added => LineRole::Removed,
            };
        }
        reversed.ranges = self.ranges.map(|ranges| Ranges {
            old_start: ranges.new_start,
            old_count: ranges.new_count,
            new_start: ranges.old_start,
            new_count: ranges.old_count,
        });
        reversed
    }
}

/// Parses a patch.
pub fn parse(patch: &str) -> Result<FilePatch<'_>, PatchError> {
    let mut reader = PatchReader { lines: unfenced(patch), next: 0, without_cr: false };
    let mut header = Header::default();
    let mut hunks = Vec::new();
    while let Some(line) = reader.peek(0) {
        if line.starts_with("@@") {
            if hunks.is_empty() {
                reader.without_cr = line.ends_with('\r');
            }
            hunks.push(reader.hunk()?);
            continue;
        }
        header.read(&reader, !hunks.is_empty())?;
        reader.next += if reader.is_file_header() { 2 } else { 1 };
    }
    header.finish(hunks)
}

/// Returns the lines of a patch, without the code fence around it.
fn unfenced(patch: &str) -> Vec<&str> {
    let lines: Vec<&str> =
        patch.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line)).collect();
    let is_fence = |line: &&str| line.starts_with("```");
    let begins =
        |line: &&str| is_fence(line) || ["@@", "--- ", "diff "].iter().any(|start| line.starts_with(start));
    let Some(start) = lines.iter().position(begins) else { return lines };
    let start = start + usize::from(lines.get(start).is_some_and(is_fence));
    // No line of a diff begins with a fence, because lines of a file have a sign in front.
    let rest = lines.get(start..).unwrap_or_default();
    rest.iter().take_while(|line| !is_fence(line)).copied().collect()
}

/// `Header` is what precedes the hunks.
#[derive(Default)]
struct Header<'a> {
    old: Option<&'a str>,
    new: Option<&'a str>,
    git: Option<&'a str>,
    creates: bool,
    deletes: bool,
    other_format: bool,
}

impl<'a> Header<'a> {
    fn read(&mut self, reader: &PatchReader<'a>, after_hunks: bool) -> Result<(), PatchError> {
        let line = reader.peek(0).unwrap_or_default().trim_end_matches('\r');
        if let Some(names) = line.strip_prefix("diff --git ") {
            if let Some(first) = self.git.or(self.new).or(self.old).or(after_hunks.then_some("the first")) {
                return Err(several(first, names));
            }
            self.git = Some(names);
        } else if line.starts_with("GIT binary patch")
            || (line.starts_with("Binary files ") && line.ends_with(" differ"))
        {
            return Err(PatchError::Binary);
        } else if reader.is_file_header() {
            let old = line.strip_prefix("--- ").map(path_of);
            let new = reader.peek(1).and_then(|line| line.strip_prefix("+++ ")).map(path_of);
            if after_hunks || self.old.is_some() {
                let first = self.new.or(self.old).unwrap_or("the first");
                return Err(several(first, new.or(old).unwrap_or_default()));
            }
            (self.old, self.new) = (old, new);
        } else if !after_hunks {
            self.creates |= line.starts_with("new file mode ");
            self.deletes |= line.starts_with("deleted file mode ");
            self.other_format |= line.starts_with("*** ");
        }
        Ok(())
    }

    fn finish(self, hunks: Vec<Hunk<'a>>) -> Result<FilePatch<'a>, PatchError> {
        let nothing = |path: Option<&str>| path == Some("/dev/null");
        let kind = match (self.creates || nothing(self.old), self.deletes || nothing(self.new)) {
            (true, false) => PatchKind::Create,
            (false, true) => PatchKind::Delete,
            _ => PatchKind::Modify,
        };
        if hunks.is_empty() && kind == PatchKind::Modify {
            return Err(if self.other_format { PatchError::OtherFormat } else { PatchError::NoHunks });
        }
        let bare = |path: Option<&'a str>, prefix: &str| {
            let path = path.filter(|path| *path != "/dev/null")?;
            Some(path.strip_prefix(prefix).unwrap_or(path))
        };
        Ok(FilePatch { old_path: bare(self.old, "a/"), new_path: bare(self.new, "b/"), kind, hunks })
    }
}

fn several(first: &str, second: &str) -> PatchError {
    PatchError::SeveralFiles { first: first.to_owned(), second: second.to_owned() }
}

/// Returns the path of a `---` or `+++` line, without the time that some programs add.
fn path_of(rest: &str) -> &str {
    rest.split('\t').next().unwrap_or(rest).trim_end()
}

struct PatchReader<'a> {
    lines: Vec<&'a str>,
    next: usize,
    /// Whether the whole patch, headers included, has CRLF, so that the CR does not belong to the
    /// file.
    without_cr: bool,
}

impl<'a> PatchReader<'a> {
    fn peek(&self, ahead: usize) -> Option<&'a str> {
        self.lines.get(self.next + ahead).copied()
    }

    fn is_file_header(&self) -> bool {
        self.is_file_header_at(self.next)
    }

    fn is_file_header_at(&self, index: usize) -> bool {
        let starts = |index: usize, start| self.lines.get(index).is_some_and(|line| line.starts_with(start));
        starts(index, "--- ") && starts(index + 1, "+++ ")
    }

    /// Reports whether the next file of a patch begins here. Its header looks like a removed and an
    /// added line, so only a hunk below it makes the difference.
    fn is_next_file(&self, index: usize) -> bool {
        self.is_file_header_at(index) && self.lines.get(index + 2).is_some_and(|line| line.starts_with("@@ "))
    }

    fn malformed(&self, index: usize, reason: &str) -> PatchError {
        PatchError::Malformed { line: index + 1, reason: reason.to_owned() }
    }

    fn hunk(&mut self) -> Result<Hunk<'a>, PatchError> {
        let at = self.next;
        let header = self.lines.get(at).copied().unwrap_or_default().trim_end_matches('\r');
        let ranges = ranges_of(header).map_err(|reason| self.malformed(at, reason))?;
        self.next += 1;
        let end = match ranges.and_then(|ranges| self.counted_end(ranges)) {
            Some(end) => end,
            None => self.recounted_end()?,
        };
        let mut lines: Vec<HunkLine<'a>> = Vec::with_capacity(end - self.next);
        for index in self.next..end {
            let line = self.lines.get(index).copied().unwrap_or_default();
            if line.starts_with('\\') {
                match lines.last_mut() {
                    Some(last) => drop_newline(
                        last,
                        self.lines.get(index - 1).copied().unwrap_or_default(),
                        self.without_cr,
                    ),
                    None => return Err(self.malformed(index, "the hunk begins with `\\`")),
                }
            } else {
                lines.push(self.body_line(line));
            }
        }
        if lines.iter().all(|line| line.role == LineRole::Context) {
            return Err(self.malformed(at, "the hunk adds and removes nothing"));
        }
        self.next = end;
        Ok(Hunk { header, ranges, lines })
    }

    /// Returns where the body ends by the header's counts, if they can be right.
    fn counted_end(&self, ranges: Ranges) -> Option<usize> {
        let (mut old, mut new) = (ranges.old_count, ranges.new_count);
        let mut index = self.next;
        while old > 0 || new > 0 {
            match self.lines.get(index)?.bytes().next() {
                None | Some(b' ' | b'\t' | b'\r') => {
                    old = old.checked_sub(1)?;
                    new = new.checked_sub(1)?;
                }
                Some(b'-') => old = old.checked_sub(1)?,
                Some(b'+') => new = new.checked_sub(1)?,
                Some(b'\\') => {}
                Some(_) => return None,
            }
            index += 1;
        }
        if self.lines.get(index).is_some_and(|line| line.starts_with('\\')) {
            index += 1;
        }
        let rest = self.lines.get(index..).unwrap_or_default();
        let next = rest.iter().find(|line| !line.trim().is_empty());
        let goes_on = next.is_some_and(|line| line.starts_with(['+', '-', ' ', '\t']))
            && rest.first().is_none_or(|line| line.trim_end() != "--")
            && !self.is_next_file(index);
        (!goes_on).then_some(index)
    }

    /// Returns where the body ends by the look of its lines.
    fn recounted_end(&self) -> Result<usize, PatchError> {
        let mut end = self.next;
        let mut changes = false;
        while let Some(line) = self.lines.get(end) {
            let signature = *line == "-- " && self.lines.len() - end <= 4;
            if line.starts_with("@@")
                || line.starts_with("diff --git ")
                || (changes && self.is_next_file(end))
                || signature
            {
                break;
            }
            if !line.trim_end_matches('\r').is_empty() && !line.starts_with([' ', '+', '-', '\t', '\\']) {
                let after_blank =
                    end > self.next && self.lines.get(end - 1).is_some_and(|line| line.trim().is_empty());
                if after_blank {
                    break;
                }
                return Err(self.malformed(end, "expected a line that begins with ` `, `-`, `+` or `@@`"));
            }
            changes |= line.starts_with(['+', '-']);
            end += 1;
        }
        // Blank lines at the end separate hunks or come from quoting. As context they would be a
        // guess.
        while end > self.next
            && self.lines.get(end - 1).is_some_and(|line| line.trim_end_matches('\r').is_empty())
        {
            end -= 1;
        }
        Ok(end)
    }

    fn body_line(&self, line: &'a str) -> HunkLine<'a> {
        let (role, content) = match line.as_bytes().first() {
            Some(b'-') => (LineRole::Removed, line.get(1..)),
            Some(b'+') => (LineRole::Added, line.get(1..)),
            Some(b' ') => (LineRole::Context, line.get(1..)),
            // An empty line, or one that begins with a tab, has lost its leading space.
            _ => (LineRole::Context, Some(line)),
        };
        let content = content.unwrap_or_default();
        match content.strip_suffix('\r') {
            Some(bare) if self.without_cr => HunkLine { role, content: bare, ending: Ending::Lf },
            Some(bare) => HunkLine { role, content: bare, ending: Ending::CrLf },
            None => HunkLine { role, content, ending: Ending::Lf },
        }
    }
}

/// Removes the newline of a line that `\ No newline at end of file` follows. A CR before it then
/// belongs to the line.
fn drop_newline<'a>(line: &mut HunkLine<'a>, raw: &'a str, without_cr: bool) {
    if line.ending == Ending::CrLf && !without_cr {
        line.content = raw.get(raw.len().saturating_sub(line.content.len() + 1)..).unwrap_or(line.content);
    }
    line.ending = Ending::None;
}

/// Parses `@@ -a,b +c,d @@`. Any other line that begins with `@@` names no place.
fn ranges_of(header: &str) -> Result<Option<Ranges>, &'static str> {
    let mut parts = header.trim_start_matches('@').split_whitespace();
    let (Some(old), Some(new)) = (parts.next(), parts.next()) else { return Ok(None) };
    let (Some(old), Some(new)) = (old.strip_prefix('-'), new.strip_prefix('+')) else { return Ok(None) };
    let range = |text: &str| {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(start) && digits(count)).then_some((start.parse::<u32>(), count.parse::<u32>()))
    };
    let new = new.trim_end_matches('@');
    let (Some(old), Some(new)) = (range(old), range(new)) else { return Ok(None) };
    match (old, new) {
        ((Ok(old_start), Ok(old_count)), (Ok(new_start), Ok(new_count))) => {
            Ok(Some(Ranges { old_start, old_count, new_start, new_count }))
        }
        _ => Err("the line numbers of the hunk header are too large"),
    }
}
