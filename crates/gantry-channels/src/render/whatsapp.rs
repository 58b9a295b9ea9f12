//! WhatsApp's own markup: `*bold*`, `_italic_`, `~strike~` and backticks. It has no escapes, so markers that WhatsApp would
//! not read as such are left out.

use super::flat::{Layout, Links, Quotes, Tables, flat};
use super::{Rich, Span, Style, blocks};

const LAYOUT: Layout = Layout { tables: Tables::Bullets, links: Links::Written, quotes: Quotes::Written };

/// Makes a literal marker harmless: it has no width, and separates the marker from the word behind it.
const WORD_JOINER: char = '\u{2060}';
const MARKERS: [char; 3] = ['*', '_', '~'];

/// Renders Markdown.
pub(crate) fn render(markdown: &str) -> String {
    let rich = flat(&blocks(markdown), LAYOUT);
    let spans: Vec<Span> = rich.spans.iter().flat_map(|span| by_line(&rich, span)).collect();
    let is_code = |at: usize| {
        rich.spans
            .iter()
            .any(|span| matches!(span.style, Style::Code | Style::Pre(_)) && span.range.contains(&at))
    };
    // What goes before each position: ends of inner spans first, then starts of outer ones.
    let mut marks: Vec<(usize, u8, usize, String)> = Vec::new();
    for span in spans.iter().filter(|span| is_visible(&rich.text, span)) {
        let marker = match &span.style {
            Style::Bold | Style::Italic | Style::Strike if is_code(span.range.start) => continue,
            Style::Bold => "*",
            Style::Italic => "_",
            Style::Strike => "~",
            Style::Code if rich.text[span.range.clone()].contains('`') => continue,
            Style::Code => "`",
            Style::Pre(_) if rich.text[span.range.clone()].contains("```") => continue,
            Style::Pre(_) => "```",
            Style::Link(_) | Style::Quote => continue,
        };
        marks.push((span.range.end, 0, usize::MAX - span.range.start, marker.to_owned()));
        marks.push((span.range.start, 1, usize::MAX - span.range.end, marker.to_owned()));
    }
    for at in literal_markers(&rich.text) {
        if !is_code(at) {
            marks.push((at + 1, 2, 0, WORD_JOINER.to_string()));
        }
    }
    marks.sort();
    let mut out = String::with_capacity(rich.text.len() + marks.len());
    let mut at = 0;
    for (position, _, _, mark) in marks {
        out.push_str(&rich.text[at..position]);
        out.push_str(&mark);
        at = position;
    }
    out.push_str(&rich.text[at..]);
    out
}

/// The length of rendered Markdown.
pub(crate) fn measure(markdown: &str) -> usize {
    render(markdown).chars().count()
}

/// A style ends at the end of a line, except in blocks of code.
fn by_line(rich: &Rich, span: &Span) -> Vec<Span> {
    if matches!(span.style, Style::Pre(_)) {
        return vec![span.clone()];
    }
    let mut parts = Vec::new();
    let mut at = span.range.start;
    for line in rich.text[span.range.clone()].split('\n') {
        let start = at + line.len() - line.trim_start().len();
        let end = start + line.trim().len();
        if start < end {
            parts.push(Span { range: start..end, style: span.style.clone() });
        }
        at += line.len() + 1;
    }
    parts
}

/// Whether WhatsApp reads markers around a part as such: only at the ends of words.
fn is_visible(text: &str, span: &Span) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || MARKERS.contains(&c));
    matches!(span.style, Style::Pre(_))
        || !is_word(text[..span.range.start].chars().next_back())
            && !is_word(text[span.range.end..].chars().next())
}

/// The positions of characters that WhatsApp would read as the start of a style.
fn literal_markers(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut line_start = 0;
    for line in text.split('\n') {
        let mut word_start = 0;
        for word in line.split(' ') {
            // Addresses keep every character.
            if !word.contains("://") {
                for (index, c) in word.char_indices().filter(|(_, c)| MARKERS.contains(c)) {
                    let at = word_start + index;
                    let before = line[..at].chars().next_back();
                    let after = &line[at + 1..];
                    let opens = !before.is_some_and(char::is_alphanumeric)
                        && after.chars().next().is_some_and(|next| !next.is_whitespace());
                    if opens && after.contains(c) {
                        found.push(line_start + at);
                    }
                }
            }
            word_start += word.len() + 1;
        }
        line_start += line.len() + 1;
    }
    found
}
