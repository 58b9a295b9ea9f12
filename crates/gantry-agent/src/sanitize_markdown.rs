//! [`MarkdownSanitizer`] changes Markdown so that no client fetches anything when it shows the text. An image's address can
//! carry data out without an approval, so output of a run that holds both labels is sanitized.
//!
//! `![` becomes `!\[`, a tag's `<` gets a space after it, and blocks that clients draw become text. The text stays readable.
//!
//! Code stays unchanged where every Markdown parser sees code: fences at the beginning of a line, and spans within one line
//! of plain text. In doubt, text is not code. The sanitizer works on a stream, and its output does not depend on how the
//! stream is split.

/// The unknown character before the first one.
const UNKNOWN: char = '\0';
/// The highest number of bytes of a code span that are held back until the span is closed.
const HELD_BYTES: usize = 256;
/// The longest info word of a fence that is held back.
const KIND_BYTES: usize = 40;
/// The languages of blocks that clients draw or run. They can fetch resources.
const DRAWN: [&str; 34] = [
    "abc",
    "artifact",
    "chart",
    "css",
    "d2",
    "dot",
    "echarts",
    "geojson",
    "graphviz",
    "htm",
    "html",
    "infographic",
    "jsx",
    "katex",
    "latex",
    "markdown",
    "math",
    "md",
    "mdx",
    "mermaid",
    "plantuml",
    "plotly",
    "puml",
    "react",
    "stl",
    "svelte",
    "svg",
    "tex",
    "topojson",
    "tsx",
    "vega",
    "vue",
    "xhtml",
    "xml",
];
/// Characters that can change the meaning of later backticks in the same paragraph.
const UNPLAIN: [char; 11] = ['\\', '<', '$', '|', '{', '[', '&', '~', '=', '%', '^'];
/// Characters that can change the meaning of a code span they are in.
const UNPLAIN_WITHIN: [char; 3] = ['\\', '$', '|'];

/// Sanitizes a whole text. `why` is the reason in the note.
pub(crate) fn whole(text: &str, why: &str) -> String {
    let mut sanitizer = MarkdownSanitizer::new(true);
    sanitizer.feed(text) + &sanitizer.finish(why)
}

#[derive(Debug, Clone)]
pub(crate) struct MarkdownSanitizer {
    /// The length of the open fence.
    fence: Option<usize>,
    fence_line: FenceLine,
    /// Fences are unambiguous so far.
    is_sure: bool,
    /// Code spans are unambiguous so far in this paragraph.
    is_plain: bool,
    /// The length of the open code span on this line.
    span: Option<usize>,
    /// The held part of the span: unchanged, and sanitized.
    held: Option<(String, String)>,
    /// The current run of backticks or tildes.
    run: Option<Run>,
    opening: Option<Opening>,
    is_line_begin: bool,
    is_blank: bool,
    /// The number of characters in this line so far.
    column: usize,
    /// The last visible character, and how often it was repeated.
    before: char,
    repeated: usize,
    /// The last character was a carriage return.
    is_returned: bool,
    has_changed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    of: char,
    length: usize,
    begins_line: bool,
    /// The run follows a space or starts the text.
    is_apart: bool,
}

/// A line that may open a fence, after its backticks.
#[derive(Debug, Clone)]
struct Opening {
    length: usize,
    is_clean: bool,
    /// The info word, until it is complete.
    kind: Option<String>,
}

/// A line within a fence, which may close the fence.
#[derive(Debug, Clone, Copy, Default)]
struct FenceLine {
    indent: usize,
    ticks: usize,
    is_tail: bool,
    is_other: bool,
}

impl MarkdownSanitizer {
    /// `is_first` says that no text comes before. Otherwise the text before is unknown.
    pub(crate) fn new(is_first: bool) -> MarkdownSanitizer {
        MarkdownSanitizer {
            fence: None,
            fence_line: FenceLine::default(),
            is_sure: true,
            is_plain: is_first,
            span: None,
            held: None,
            run: None,
            opening: None,
            // A client may show something before the first line.
            is_line_begin: false,
            is_blank: is_first,
            column: 0,
            before: if is_first { '\n' } else { UNKNOWN },
            repeated: 0,
            is_returned: false,
            has_changed: false,
        }
    }

    /// Returns the text that may be shown now.
    pub(crate) fn feed(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 8);
        text.chars().for_each(|c| self.take(c, &mut out));
        out
    }

    /// Returns the held text, and a note if something was changed.
    pub(crate) fn finish(&mut self, why: &str) -> String {
        let mut out = String::new();
        self.end_line(&mut out);
        if self.before == '<' {
            // A tag must not continue in the next text.
            out.push(' ');
        }
        if self.has_changed {
            // The names of steps may be untrusted, so the note is sanitized too.
            let note = format!(
                "\n\n[images and other content that a client would fetch are shown as text: {why}, and an address \
                 could leak it]"
            );
            let mut plain = MarkdownSanitizer::new(false);
            out += &plain.feed(&note);
            plain.end_line(&mut out);
        }
        out
    }

    fn take(&mut self, c: char, out: &mut String) {
        match c {
            '\n' if self.is_returned => out.push(c),
            '\n' | '\r' => {
                self.doubt_lone_return(c, out);
                self.end_line(out);
                out.push(c);
                self.begin_line();
            }
            _ => {
                self.doubt_lone_return(c, out);
                self.inside(c, out);
            }
        }
        self.is_returned = c == '\r';
    }

    /// Parsers differ in whether a lone carriage return ends a line.
    fn doubt_lone_return(&mut self, c: char, out: &mut String) {
        if self.is_returned && c != '\n' {
            self.doubt(out);
        }
    }

    /// From here on fences are ambiguous, and so are spans in this paragraph.
    fn doubt(&mut self, out: &mut String) {
        (self.is_sure, self.fence) = (false, None);
        self.drop_span(out);
    }

    fn drop_span(&mut self, out: &mut String) {
        (self.is_plain, self.span) = (false, None);
        if let Some((_, sanitized)) = self.held.take() {
            out.push_str(&sanitized);
            self.has_changed = true;
        }
    }

    fn begin_line(&mut self) {
        (self.is_line_begin, self.is_blank, self.column) = (true, true, 0);
        (self.before, self.repeated) = ('\n', 0);
        self.fence_line = FenceLine::default();
    }

    fn end_line(&mut self, out: &mut String) {
        if let Some(length) = self.fence {
            let line = self.fence_line;
            if !line.is_other && line.ticks >= length && line.indent <= 3 {
                (self.fence, self.is_plain) = (None, true);
            } else if !line.is_other && line.ticks >= 3 {
                self.doubt(out);
            }
            return;
        }
        self.end_run(out);
        self.end_kind(out);
        if self.span.is_some() {
            self.drop_span(out);
        }
        if let Some(opening) = self.opening.take() {
            if opening.is_clean && self.is_sure {
                self.fence = Some(opening.length);
            } else {
                self.doubt(out);
            }
        } else if self.is_blank {
            self.is_plain = true;
        }
    }

    /// Handles a character within a line.
    fn inside(&mut self, c: char, out: &mut String) {
        if is_invisible(c) {
            self.doubt(out);
        }
        if self.fence.is_some() {
            if self.stays_in_fence(c) {
                return out.push(c);
            }
            self.doubt(out);
        }
        if self.run.is_none_or(|run| run.of != c) {
            self.end_run(out);
            if matches!(c, '`' | '~') {
                let is_apart = self.before.is_whitespace();
                self.run = Some(Run { of: c, length: 0, begins_line: self.is_line_begin, is_apart });
            }
        }
        if let Some(run) = &mut self.run {
            run.length = run.length.saturating_add(1);
        }
        self.is_line_begin = false;
        self.is_blank &= matches!(c, ' ' | '\t');
        if self.waits_for_kind(c, out) {
            return;
        }
        self.text(c, out);
    }

    /// Whether a character belongs to the line in a fence. Returns false if it is ambiguous whether the line closes the fence.
    fn stays_in_fence(&mut self, c: char) -> bool {
        let line = &mut self.fence_line;
        match c {
            _ if line.is_other => {}
            '`' if !line.is_tail => line.ticks += 1,
            ' ' | '\t' if line.ticks > 0 => line.is_tail = true,
            ' ' => line.indent += 1,
            _ if line.ticks == 0 && c.is_whitespace() => line.indent += 4,
            _ if line.ticks >= 3 => return false,
            _ => line.is_other = true,
        }
        true
    }

    /// Ends a run of backticks or tildes. Its length and place decide its meaning.
    fn end_run(&mut self, out: &mut String) {
        let Some(Run { of, length, begins_line, is_apart }) = self.run.take() else { return };
        if of == '`' && self.span == Some(length) {
            self.span = None;
            if let Some((raw, _)) = self.held.take() {
                out.push_str(&raw);
            }
        } else if self.opening.is_some() {
            // The run is in the line of an opening fence, which handles it.
        } else if length >= 3 && self.span.is_none() {
            let is_clean = of == '`' && begins_line;
            self.opening = Some(Opening { length, is_clean, kind: Some(String::new()) });
            self.is_plain = false;
        } else if length >= 3 {
            self.is_sure = false;
        } else if of == '`' && self.span.is_none() {
            if self.is_plain && is_apart {
                self.span = Some(length);
            } else {
                self.is_plain = false;
            }
        }
    }

    /// Holds the info word of a fence back until it is complete, because clients draw some languages.
    fn waits_for_kind(&mut self, c: char, out: &mut String) -> bool {
        let Some(opening) = &mut self.opening else { return false };
        opening.is_clean &= c != '`';
        let Some(kind) = &mut opening.kind else { return false };
        if c.is_whitespace() {
            if !kind.is_empty() {
                self.end_kind(out);
            }
            return false;
        }
        kind.push(c);
        if kind.len() >= KIND_BYTES {
            self.end_kind(out);
        }
        true
    }

    fn end_kind(&mut self, out: &mut String) {
        let Some(kind) = self.opening.as_mut().and_then(|opening| opening.kind.take()) else { return };
        let word: String = kind.to_lowercase().chars().filter(|&c| !is_invisible(c)).collect();
        let word = word.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let word = word.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        // Parsers also decode `&#109;` here.
        if DRAWN.contains(&word) || kind.contains('&') {
            out.push_str("text ");
            self.has_changed = true;
        }
        kind.chars().for_each(|c| self.text(c, out));
    }

    /// Handles a character outside of fences.
    fn text(&mut self, c: char, out: &mut String) {
        if is_invisible(c) {
            return self.put(c, None, out);
        }
        let apart = match (self.before, c) {
            ('!' | UNKNOWN, '[') => Some('\\'),
            ('<', c) if c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?') => Some(' '),
            _ => None,
        };
        if self.span.is_none() && UNPLAIN.contains(&c) {
            self.is_plain = false;
        }
        if self.span.is_some() && UNPLAIN_WITHIN.contains(&c) {
            self.drop_span(out);
        }
        self.column = self.column.saturating_add(1);
        self.repeated = if self.before == c { self.repeated.saturating_add(1) } else { 1 };
        let begins_other = match c {
            '$' | '%' => self.repeated >= 2,
            // A line of these characters may delimit metadata.
            '-' | '+' => self.repeated >= 3 && self.repeated == self.column,
            ':' => self.repeated >= 3,
            '(' | '[' => self.before == '\\',
            // A footnote may include the following lines.
            '^' => self.before == '[',
            _ => false,
        };
        if begins_other {
            self.is_sure = false;
        }
        self.before = c;
        self.put(c, apart, out);
    }

    fn put(&mut self, c: char, apart: Option<char>, out: &mut String) {
        if self.span.is_some() && (apart.is_some() || self.held.is_some()) {
            let (raw, sanitized) = self.held.get_or_insert_default();
            raw.push(c);
            sanitized.extend(apart);
            sanitized.push(c);
            if raw.len() > HELD_BYTES {
                self.drop_span(out);
            }
            return;
        }
        self.has_changed |= apart.is_some();
        out.extend(apart);
        out.push(c);
    }
}

/// Whether some clients remove the character before they parse the text.
fn is_invisible(c: char) -> bool {
    (c.is_control() && !matches!(c, '\t'))
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
