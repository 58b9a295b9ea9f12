//! Writes [`Block`]s as Markdown again, for the parts of a long text. Reading the result gives the same text.

use std::ops::Range;

use super::parse::{paragraph, same_text};
use super::{Block, Rich, Style};

/// Writes a document.
pub(super) fn write(blocks: &[Block]) -> String {
    let mut out = String::new();
    let mut other_marker = false;
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            out.push_str("\n\n");
        }
        // Lists that follow each other need different markers, or they become one list.
        let follows_list = index > 0 && matches!(blocks[index - 1], Block::List { .. });
        other_marker = follows_list && !other_marker;
        out.push_str(&write_block(block, other_marker));
    }
    out
}

fn write_block(block: &Block, other_marker: bool) -> String {
    match block {
        Block::Paragraph(text) => inline(text, Place::Paragraph),
        Block::Heading { level, text } => {
            format!("{} {}", "#".repeat(usize::from(*level)), inline(text, Place::Heading))
        }
        Block::Code { language, text } => fenced(language, text),
        Block::Quote(blocks) => prefixed(&write(blocks), "> ", "> "),
        Block::List { start, items } => {
            let lines = items.iter().enumerate().map(|(index, item)| {
                let marker = match start {
                    Some(start) => {
                        let number = start.saturating_add(index as u64).min(999_999_999);
                        format!("{number}{} ", if other_marker { ')' } else { '.' })
                    }
                    None => (if other_marker { "* " } else { "- " }).to_owned(),
                };
                prefixed(&write(item), &marker, &" ".repeat(marker.len()))
            });
            lines.collect::<Vec<_>>().join("\n")
        }
        Block::Table { header, rows } => {
            let row = |cells: &[Rich]| {
                let cells: Vec<String> = cells.iter().map(|cell| inline(cell, Place::Cell)).collect();
                format!("| {} |", cells.join(" | "))
            };
            let rule = format!("|{}", " --- |".repeat(header.len()));
            let mut lines = vec![row(header), rule];
            lines.extend(rows.iter().map(|cells| row(cells)));
            lines.join("\n")
        }
        // Dashes and stars could be read as items of a list.
        Block::Rule => "___".to_owned(),
    }
}

fn fenced(language: &str, text: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    format!("{fence}{language}\n{text}\n{fence}")
}

/// The length of the longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

fn prefixed(text: &str, first: &str, rest: &str) -> String {
    let mut out = String::new();
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        out.push_str(if index == 0 { first } else { rest });
        out.push_str(line);
        out.truncate(if line.is_empty() { out.trim_end_matches(' ').len() } else { out.len() });
    }
    out
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Paragraph,
    Heading,
    Cell,
}

/// Writes a text with its styles. Styles that Markdown cannot express at this place are dropped, never characters.
fn inline(text: &Rich, place: Place) -> String {
    let is_harmless = |c: char| c.is_alphabetic() || matches!(c, ' ' | ',' | ';' | '.' | '?' | '\'');
    if text.spans.is_empty() && text.text.chars().all(is_harmless) {
        return text.text.clone();
    }
    let is_same = |written: &str| {
        let read = match place {
            Place::Paragraph => paragraph(written),
            Place::Heading | Place::Cell => paragraph(&written.replace("\\|", "|")),
        };
        read.is_some_and(|(read, spans)| same_text(&read, &text.text) && spans.len() >= links(text))
    };
    let styled = write_inline(text, 0..text.text.len(), 0, place);
    if is_same(&styled) {
        return styled;
    }
    let spans = text.spans.iter().filter(|span| matches!(span.style, Style::Link(_)));
    let only_links = Rich { text: text.text.clone(), spans: spans.cloned().collect() };
    let linked = write_inline(&only_links, 0..text.text.len(), 0, place);
    if is_same(&linked) {
        return linked;
    }
    let escaped =
        text.text.chars().flat_map(|c| c.is_ascii_punctuation().then_some('\\').into_iter().chain([c]));
    one_line(escaped.collect(), place)
}

fn links(text: &Rich) -> usize {
    text.spans.iter().filter(|span| matches!(span.style, Style::Link(_))).count()
}

fn one_line(text: String, place: Place) -> String {
    if place == Place::Paragraph { text } else { text.replace('\n', " ") }
}

/// Writes a part of a text with the spans from index `first` on that lie in it.
fn write_inline(text: &Rich, part: Range<usize>, first: usize, place: Place) -> String {
    let mut out = String::new();
    let mut at = part.start;
    let mut index = first;
    while let Some(span) = text.spans.get(index).filter(|span| span.range.start < part.end) {
        let after = text.spans[index..].iter().position(|next| next.range.start >= span.range.end);
        let next = after.map_or(text.spans.len(), |count| index + count);
        if span.range.start < at || span.range.end > part.end {
            index += 1;
            continue;
        }
        out.push_str(&escaped(&text.text, at..span.range.start, place));
        let inner = || write_inline(text, span.range.clone(), index + 1, place);
        match &span.style {
            Style::Bold => out.push_str(&format!("**{}**", inner())),
            Style::Italic => out.push_str(&format!("*{}*", inner())),
            Style::Strike => out.push_str(&format!("~~{}~~", inner())),
            Style::Code => out.push_str(&code(&text.text[span.range.clone()], place)),
            Style::Link(url) => out.push_str(&format!("[{}]({})", inner(), destination(url, place))),
            Style::Pre(_) | Style::Quote => out.push_str(&inner()),
        }
        at = span.range.end;
        index = next;
    }
    out.push_str(&escaped(&text.text, at..part.end, place));
    out
}

fn code(text: &str, place: Place) -> String {
    let ticks = "`".repeat(longest_run(text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') || text.trim() != text { " " } else { "" };
    let text = if place == Place::Cell { text.replace('|', "\\|") } else { text.to_owned() };
    format!("{ticks}{pad}{}{pad}{ticks}", text.replace('\n', " "))
}

fn destination(url: &str, place: Place) -> String {
    let mut out = String::from("<");
    for (index, c) in url.char_indices() {
        match c {
            '\n' | '\r' => out.push_str("%0A"),
            '<' | '>' | '\\' => out.extend(['\\', c]),
            '&' if is_entity(&url[index..]) => out.push_str("\\&"),
            '|' if place == Place::Cell => out.push_str("\\|"),
            c => out.push(c),
        }
    }
    out.push('>');
    let is_simple = !url.is_empty() && !url.contains(|c: char| c.is_whitespace() || "<>()".contains(c));
    if is_simple { out[1..out.len() - 1].to_owned() } else { out }
}

/// Whether a text that starts with `&` could be read as an entity.
fn is_entity(text: &str) -> bool {
    let name = text[1..].find(';').map(|end| &text[1..=end]);
    name.is_some_and(|name| name.len() < 40 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '#'))
}

/// Escapes what Markdown would read as markup.
fn escaped(whole: &str, part: Range<usize>, place: Place) -> String {
    let mut out = String::new();
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut digits = 0;
    let mut at_line_start = part.start == 0 || whole[..part.start].ends_with('\n');
    for (index, c) in whole[part.clone()].char_indices() {
        let index = part.start + index;
        let after = &whole[index + c.len_utf8()..];
        let needs_escape = match c {
            '\\' | '`' | '*' | '[' | ']' | '<' | '~' => true,
            '_' => !(is_word(whole[..index].chars().next_back()) && is_word(after.chars().next())),
            '|' => place == Place::Cell || whole.contains("--") || whole.contains(":-"),
            '&' => is_entity(&whole[index..]),
            '#' => at_line_start || place == Place::Heading,
            '>' | '+' | '-' | '=' => at_line_start,
            ':' => at_line_start && after.starts_with('-'),
            '.' | ')' => digits > 0 && digits < 10,
            _ => false,
        };
        if c.is_ascii_digit() && (at_line_start || digits > 0) {
            digits += 1;
        } else {
            digits = 0;
        }
        at_line_start = c == '\n' || (at_line_start && c.is_whitespace());
        if needs_escape {
            out.push('\\');
        }
        out.push(if c == '\n' && place != Place::Paragraph { ' ' } else { c });
    }
    out
}
