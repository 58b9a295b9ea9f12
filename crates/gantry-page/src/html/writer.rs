//! Writes the text as it grows: white space, blank lines, indentation, and brackets around text
//! that was already written.

/// Deeper lists and quotes are written at this depth, so that the start of a line does not grow
/// with the page.
const MAX_INDENT: usize = 48;

#[derive(Debug, Default)]
pub(super) struct Writer {
    text: String,
    /// The start of each line: quotes and lists.
    prefix: String,
    /// How many line ends are due before the next word: 0, 1, or 2 for a blank line.
    breaks: usize,
    /// How much of `prefix` is also written on the blank line.
    shared_prefix: usize,
    /// Whether a space is due before the next word.
    space: bool,
    /// Whether this line has only a bullet or nothing, so that it needs no line end.
    fresh: bool,
    /// The open brackets, in the order of [`Mark`]: the position of the first word, or [`AHEAD`]
    /// before it is written.
    marks: [Option<usize>; 4],
    /// Whether some mark is [`AHEAD`].
    marks_ahead: bool,
    /// Whether blocks get no line of their own, as in a heading.
    one_line: bool,
}

const AHEAD: usize = usize::MAX;

/// `Mark` is a kind of text that is bracketed once it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Link,
    Code,
    Superscript,
    Struck,
}

/// `Marker` is a bullet or a heading's signs, to be removed if nothing follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marker {
    from: usize,
    to: usize,
    breaks: usize,
    fresh: bool,
}

impl Marker {
    pub(super) fn end(self) -> usize {
        self.to
    }
}

impl Writer {
    pub(super) fn new() -> Self {
        Writer { fresh: true, ..Writer::default() }
    }

    pub(super) fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Ends the line, or with 2 the paragraph.
    pub(super) fn break_line(&mut self, breaks: usize) {
        if self.one_line {
            self.space = true;
            return;
        }
        self.space = false;
        if self.fresh {
            return;
        }
        if self.breaks == 0 {
            self.shared_prefix = self.prefix.len();
        }
        self.breaks = self.breaks.max(breaks);
    }

    /// Puts the next word on the next line. Two calls in a row create a blank line.
    pub(super) fn new_line(&mut self) {
        self.break_line((self.breaks + 1).min(2));
    }

    /// Writes words with the white space between them collapsed.
    pub(super) fn words(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let length = word_length(rest);
            if length > 0 {
                self.word(&rest[..length]);
                rest = &rest[length..];
            }
            let spaces = space_length(rest);
            if spaces > 0 {
                self.space = true;
                rest = &rest[spaces..];
            }
            if let Some(after) = rest.strip_prefix(SOFT_HYPHEN) {
                rest = after;
            }
        }
    }

    /// Writes `word` unchanged.
    pub(super) fn word(&mut self, word: &str) {
        self.due();
        if self.marks_ahead {
            self.marks_ahead = false;
            let at = self.text.len();
            self.marks.iter_mut().flatten().filter(|mark| **mark == AHEAD).for_each(|mark| *mark = at);
        }
        self.text.push_str(word);
        self.fresh = false;
    }

    /// Writes the line ends or the space that the next word needs.
    fn due(&mut self) {
        if self.breaks > 0 {
            for _ in 1..self.breaks {
                self.text.push('\n');
                self.text.push_str(self.prefix[..self.shared_prefix].trim_end());
            }
            self.text.push('\n');
            self.text.push_str(&self.prefix);
            self.breaks = 0;
        } else if self.text.is_empty() {
            self.text.push_str(&self.prefix);
        } else if self.space && !self.fresh {
            self.text.push(' ');
        }
        self.space = false;
    }

    /// Begins a line with a bullet or a heading's signs.
    pub(super) fn marker(&mut self, sign: &str) -> Marker {
        let Writer { breaks, fresh, .. } = *self;
        let from = self.text.len();
        self.due();
        self.text.push_str(sign);
        self.fresh = true;
        Marker { from, to: self.text.len(), breaks, fresh }
    }

    /// Removes the marker if nothing followed.
    pub(super) fn end_marker(&mut self, marker: Marker) {
        if self.text.len() == marker.to {
            self.text.truncate(marker.from);
            (self.breaks, self.fresh) = (marker.breaks, marker.fresh);
            self.shared_prefix = self.shared_prefix.min(self.prefix.len());
        }
    }

    /// Starts lines with `more` from now on. Returns what [`Writer::outdent`] needs.
    pub(super) fn indent(&mut self, more: &str) -> usize {
        let before = self.prefix.len();
        if before + more.len() <= MAX_INDENT {
            self.prefix.push_str(more);
        }
        before
    }

    pub(super) fn outdent(&mut self, before: usize) {
        self.prefix.truncate(before);
        self.shared_prefix = self.shared_prefix.min(self.prefix.len());
    }

    pub(super) fn set_one_line(&mut self, one_line: bool) {
        self.one_line = one_line;
    }

    /// Begins text that will be bracketed.
    pub(super) fn open(&mut self, mark: Mark) {
        self.marks[mark as usize] = Some(AHEAD);
        self.marks_ahead = true;
    }

    pub(super) fn is_open(&self, mark: Mark) -> bool {
        self.marks[mark as usize].is_some()
    }

    /// Returns the character right before the text since [`Writer::open`].
    pub(super) fn before(&self, mark: Mark) -> Option<char> {
        self.text.get(..self.marks[mark as usize]?)?.chars().next_back()
    }

    /// Writes a sign that belongs to the word before it.
    pub(super) fn closing_sign(&mut self, sign: &str) {
        let space = std::mem::take(&mut self.space);
        self.word(sign);
        self.space = space;
    }

    /// Forgets the open brackets, because their text is about to move.
    pub(super) fn drop_marks(&mut self) {
        self.marks = [None; 4];
    }

    /// Returns what was written since [`Writer::open`], if anything.
    pub(super) fn inside(&self, mark: Mark) -> Option<&str> {
        self.text.get(self.marks[mark as usize]?..)
    }

    /// Writes `before` and `after` around what was written since [`Writer::open`].
    pub(super) fn close(&mut self, mark: Mark, before: &str, after: &str) {
        let start = self.marks[mark as usize].take();
        let Some(start) = start.filter(|start| self.text.is_char_boundary(*start)) else { return };
        self.text.insert_str(start, before);
        for other in self.marks.iter_mut().flatten() {
            if *other != AHEAD && *other > start {
                *other += before.len();
            }
        }
        self.text.push_str(after);
    }

    /// Writes a fenced block with unchanged text.
    pub(super) fn code_block(&mut self, language: &str, code: &str) {
        self.break_line(2);
        let fence = "`".repeat(longest_run(code, '`').max(2) + 1);
        self.word(&fence);
        self.text.push_str(language);
        for line in code.strip_suffix('\n').unwrap_or(code).split('\n') {
            self.text.push('\n');
            self.text.push_str(if line.is_empty() { self.prefix.trim_end() } else { &self.prefix });
            self.text.push_str(line);
        }
        self.text.push('\n');
        self.text.push_str(&self.prefix);
        self.text.push_str(&fence);
        self.break_line(2);
    }

    /// Replaces everything from `from` on.
    pub(super) fn replace(&mut self, from: usize, text: &str) {
        self.text.truncate(from);
        self.text.push_str(text);
    }
}

pub(super) fn longest_run(text: &str, wanted: char) -> usize {
    text.split(|character| character != wanted).map(str::len).max().unwrap_or(0)
}

/// Marks where a word may be hyphenated. Readers do not see it.
const SOFT_HYPHEN: char = '\u{ad}';

/// Counts the bytes before the first white space or soft hyphen. A no-break space is white space
/// too.
fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let ends = bytes.iter().enumerate().position(|(at, byte)| match byte {
        b' ' | b'\n' | b'\t' | b'\r' | b'\x0c' => true,
        0xc2 => matches!(bytes.get(at + 1), Some(0xa0 | 0xad)),
        _ => false,
    });
    ends.unwrap_or(bytes.len())
}

fn space_length(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\n', '\t', '\r', '\x0c', '\u{a0}']).len()
}
