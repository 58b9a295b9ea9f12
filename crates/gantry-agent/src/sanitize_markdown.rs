//! What a run says that holds both labels, so that no client fetches anything by showing it: an address in a picture carries
//! data out, and nobody is asked. `![` becomes `!\[`, a tag's `<` gets a space after it, and blocks that clients draw become
//! text; all of it stays to be read.
//!
//! Code is left as it is where every reader of Markdown sees code: fences at the beginning of a line, and spans within one
//! line of plain text. In doubt, text is not code. Works on text as it comes, and gives the same however it is cut.

/// In place of what was shown before.
const UNKNOWN: char = '\0';
/// Of code on one line that is held back until it is sure to be code.
const HELD_BYTES: usize = 256;
/// The longest name of a kind of block that is drawn.
const KIND_BYTES: usize = 40;
/// Kinds of blocks that clients draw or run, each in its own language, with what these fetch.
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
/// What may make something else of backticks that follow in the same paragraph.
const UNPLAIN: [char; 11] = ['\\', '<', '$', '|', '{', '[', '&', '~', '=', '%', '^'];
/// The same, within the backticks.
const UNPLAIN_WITHIN: [char; 3] = ['\\', '$', '|'];

/// A text that is there as a whole.
pub(crate) fn whole(text: &str, why: &str) -> String {
    let mut harmless = MarkdownSanitizer::new(true);
    harmless.feed(text) + &harmless.finish(why)
}

#[derive(Debug, Clone)]
pub(crate) struct MarkdownSanitizer {
    /// The length of the fence that surely is open.
    fence: Option<usize>,
    fence_line: FenceLine,
    /// What is a fence can be told, so far.
    is_sure: bool,
    /// What is a span can be told, so far in this paragraph.
    is_plain: bool,
    /// Length of the span that is open on this line.
    span: Option<usize>,
    /// Of the span, from where it would matter whether it is one: as it is, and harmless.
    held: Option<(String, String)>,
    /// Backticks or tildes in a row, and whether they begin the line.
    run: Option<Run>,
    opening: Option<Opening>,
    is_line_begin: bool,
    is_blank: bool,
    /// Characters of this line so far.
    column: usize,
    /// The last that can be seen, and how often in a row.
    before: char,
    repeated: usize,
    /// A carriage return that a line feed should follow.
    is_returned: bool,
    has_changed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    of: char,
    length: usize,
    begins_line: bool,
    /// Nothing, or a space, stood before it.
    is_apart: bool,
}

/// A line that may open a fence, after its run.
#[derive(Debug, Clone)]
struct Opening {
    length: usize,
    is_clean: bool,
    /// The first word after it, until it is whole.
    kind: Option<String>,
}

/// A line within a fence, which may close it.
#[derive(Debug, Clone, Copy, Default)]
struct FenceLine {
    indent: usize,
    ticks: usize,
    is_tail: bool,
    is_other: bool,
}

impl MarkdownSanitizer {
    /// Of text that begins where nothing was said before; else what is shown before it is not known.
    pub(crate) fn new(begins: bool) -> MarkdownSanitizer {
        MarkdownSanitizer {
            fence: None,
            fence_line: FenceLine::default(),
            is_sure: true,
            is_plain: begins,
            span: None,
            held: None,
            run: None,
            opening: None,
            // Who shows it may write something before the first line.
            is_line_begin: false,
            is_blank: begins,
            column: 0,
            before: if begins { '\n' } else { UNKNOWN },
            repeated: 0,
            is_returned: false,
            has_changed: false,
        }
    }

    /// What may be shown now.
    pub(crate) fn feed(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 8);
        text.chars().for_each(|c| self.take(c, &mut out));
        out
    }

    /// What is left, and once why something looks different, if it does.
    pub(crate) fn finish(&mut self, why: &str) -> String {
        let mut out = String::new();
        self.end_line(&mut out);
        if self.before == '<' {
            // A tag may not go on in what is said next.
            out.push(' ');
        }
        if self.has_changed {
            // What a step is called may be the words of others, too.
            let note = format!(
                "\n\n[pictures, and what else a client fetches by itself, stand here as text: {why}, and an \
                 address could carry it out]"
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

    /// Whether a carriage return alone ends a line depends on who reads it.
    fn doubt_lone_return(&mut self, c: char, out: &mut String) {
        if self.is_returned && c != '\n' {
            self.doubt(out);
        }
    }

    /// Nothing is a fence any more, nor a span in this paragraph.
    fn doubt(&mut self, out: &mut String) {
        (self.is_sure, self.fence) = (false, None);
        self.no_span(out);
    }

    fn no_span(&mut self, out: &mut String) {
        (self.is_plain, self.span) = (false, None);
        if let Some((_, harmless)) = self.held.take() {
            out.push_str(&harmless);
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
            self.no_span(out);
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

    /// A character within a line.
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

    /// Whether a character of a line in a fence belongs to it; one that may close it, or may not, makes a doubt.
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

    /// Backticks or tildes are over: what they mean is decided by how many there were, and where.
    fn end_run(&mut self, out: &mut String) {
        let Some(Run { of, length, begins_line, is_apart }) = self.run.take() else { return };
        if of == '`' && self.span == Some(length) {
            self.span = None;
            if let Some((raw, _)) = self.held.take() {
                out.push_str(&raw);
            }
        } else if self.opening.is_some() {
            // It is in the same line, and has its say there.
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

    /// The first word after a fence is held until it is known, since some kinds are drawn.
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
        // Readers of Markdown write out `&#109;` here too.
        if DRAWN.contains(&word) || kind.contains('&') {
            out.push_str("text ");
            self.has_changed = true;
        }
        kind.chars().for_each(|c| self.text(c, out));
    }

    /// A character where things could be fetched.
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
            self.no_span(out);
        }
        self.column = self.column.saturating_add(1);
        self.repeated = if self.before == c { self.repeated.saturating_add(1) } else { 1 };
        let begins_other = match c {
            '$' | '%' => self.repeated >= 2,
            // A line of its own that may begin or end something about the text.
            '-' | '+' => self.repeated >= 3 && self.repeated == self.column,
            ':' => self.repeated >= 3,
            '(' | '[' => self.before == '\\',
            // A footnote, which may take the lines after it with it.
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
            let (raw, harmless) = self.held.get_or_insert_default();
            raw.push(c);
            harmless.extend(apart);
            harmless.push(c);
            if raw.len() > HELD_BYTES {
                self.no_span(out);
            }
            return;
        }
        self.has_changed |= apart.is_some();
        out.extend(apart);
        out.push(c);
    }
}

/// What some clients take away before they read the rest.
fn is_invisible(c: char) -> bool {
    (c.is_control() && !matches!(c, '\t'))
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
