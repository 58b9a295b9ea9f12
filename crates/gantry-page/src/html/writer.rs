//! The text as it grows: white space, blank lines, indentation, and brackets around what has already been written.

/// Deeper lists and quotes are written at this depth: a line's beginning must not grow with the page.
const MAX_INDENT: usize = 48;

#[derive(Debug, Default)]
pub(super) struct Writer {
    text: String,
    /// How each line begins: quotes and lists.
    prefix: String,
    /// Line ends that are due before the next word: 0, 1, or 2 for a blank line.
    breaks: usize,
    /// How much of `prefix` also stands on the blank line.
    shared_prefix: usize,
    /// A space is due before the next word.
    space: bool,
    /// Only a bullet, or nothing, stands on this line, so that it needs no end.
    fresh: bool,
    /// What is still open and will be bracketed, in the order of [`Mark`]: where its first word stands, [`AHEAD`] before that.
    marks: [Option<usize>; 4],
    /// Some mark is [`AHEAD`].
    marks_ahead: bool,
    /// Within a heading a block is no line of its own.
    one_line: bool,
}

const AHEAD: usize = usize::MAX;

/// What is bracketed once it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Link,
    Code,
    Superscript,
    Struck,
}

/// A bullet or a heading's signs, to take back if nothing follows.
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

    /// Puts the next word on the next line; the second in a row makes a blank one.
    pub(super) fn new_line(&mut self) {
        self.break_line((self.breaks + 1).min(2));
    }

    /// Words with the white space between them collapsed.
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

    /// `word` as it stands.
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

    /// Takes the marker back if nothing followed.
    pub(super) fn end_marker(&mut self, marker: Marker) {
        if self.text.len() == marker.to {
            self.text.truncate(marker.from);
            (self.breaks, self.fresh) = (marker.breaks, marker.fresh);
            self.shared_prefix = self.shared_prefix.min(self.prefix.len());
        }
    }

    /// Lines begin with `more` from now on. Returns what [`Writer::outdent`] takes.
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

    /// Begins what will be bracketed.
    pub(super) fn open(&mut self, mark: Mark) {
        self.marks[mark as usize] = Some(AHEAD);
        self.marks_ahead = true;
    }

    pub(super) fn is_open(&self, mark: Mark) -> bool {
        self.marks[mark as usize].is_some()
    }

    /// The character that stands right before what has been written since [`Writer::open`].
    pub(super) fn before(&self, mark: Mark) -> Option<char> {
        self.text.get(..self.marks[mark as usize]?)?.chars().next_back()
    }

    /// A sign that belongs to the word before it.
    pub(super) fn closing_sign(&mut self, sign: &str) {
        let space = std::mem::take(&mut self.space);
        self.word(sign);
        self.space = space;
    }

    /// Forgets the brackets that are open: what they hold would not stay where it is.
    pub(super) fn drop_marks(&mut self) {
        self.marks = [None; 4];
    }

    /// What has been written since [`Writer::open`], if anything.
    pub(super) fn inside(&self, mark: Mark) -> Option<&str> {
        self.text.get(self.marks[mark as usize]?..)
    }

    /// Writes `before` and `after` around what has been written since [`Writer::open`].
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

    /// A fenced block with the text as it stands.
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

/// A place where a word may be parted, which readers do not see.
const SOFT_HYPHEN: char = '\u{ad}';

/// Bytes before the first white space or soft hyphen. A no-break space is white space too.
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
