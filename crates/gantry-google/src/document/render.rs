//! Blocks to Markdown. What is rendered parses to the same blocks; emphasis that Markdown cannot express is left out.

use super::LINE_BREAK;
use super::block::{Block, Span, trimmed};
use super::parse::parse;

/// Renders blocks, separated by empty lines.
pub(crate) fn render(blocks: &[Block]) -> String {
    let mut markdown = String::new();
    // How many items each open list has.
    let mut counts: Vec<(bool, usize)> = Vec::new();
    let mut was_item = false;
    for block in blocks {
        let text = match block {
            Block::ListItem { spans, level, is_ordered } => {
                // An item cannot be deeper than one level below the item before it.
                let level = usize::from(*level).min(counts.len());
                counts.truncate(level + 1);
                match counts.get_mut(level) {
                    Some((kind, count)) if *kind == *is_ordered => *count += 1,
                    Some(kind) => *kind = (*is_ordered, 1),
                    None => counts.push((*is_ordered, 1)),
                }
                item(&counts, level, spans)
            }
            _ => {
                counts.clear();
                paragraph(block)
            }
        };
        let is_item = matches!(block, Block::ListItem { .. });
        if !markdown.is_empty() {
            markdown.push_str(if is_item && was_item { "\n" } else { "\n\n" });
        }
        markdown.push_str(&text);
        was_item = is_item;
    }
    if !markdown.is_empty() {
        markdown.push('\n');
    }
    markdown
}

fn item(counts: &[(bool, usize)], level: usize, spans: &[Span]) -> String {
    let marker = |(is_ordered, count): &(bool, usize)| match is_ordered {
        true => format!("{count}. "),
        false => "- ".to_owned(),
    };
    // An item is indented by the markers of the lists around it.
    let width: usize = counts.iter().take(level).map(|list| marker(list).len()).sum();
    let own = counts.get(level).map(marker).unwrap_or_default();
    let indent = " ".repeat(width + own.len());
    format!("{}{own}{}", " ".repeat(width), inline(spans, Place::Text).replace('\n', &format!("\n{indent}")))
}

fn paragraph(block: &Block) -> String {
    match block {
        Block::Paragraph { spans, heading: level @ 1.., .. } => {
            let marks = "#".repeat(usize::from(*level).min(6));
            format!("{marks} {}", inline(spans, Place::Line))
        }
        Block::Paragraph { spans, is_quote: true, .. } => {
            format!("> {}", inline(spans, Place::Text).replace('\n', "\n> "))
        }
        Block::Paragraph { spans, .. } => inline(spans, Place::Text),
        Block::ListItem { spans, .. } => inline(spans, Place::Text),
        Block::Code(code) => {
            let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest.max(2) + 1);
            format!("{fence}\n{code}\n{fence}")
        }
        Block::Rule => "---".to_owned(),
        Block::Table(rows) => table(rows),
        Block::Footnote { label, spans } => format!("[^{label}]: {}", inline(spans, Place::Line)),
    }
}

fn table(rows: &[Vec<Vec<Span>>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let line = |row: &Vec<Vec<Span>>| {
        let cell = |at: usize| row.get(at).map(|spans| inline(spans, Place::Cell)).unwrap_or_default();
        let cells: Vec<String> = (0..columns).map(cell).collect();
        format!("| {} |", cells.join(" | "))
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.insert(1.min(lines.len()), format!("|{}", " --- |".repeat(columns)));
    lines.join("\n")
}

/// Where inline text is: it decides how a line break is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    /// A heading or a footnote, which has one line.
    Line,
    Cell,
}

/// Renders spans. If they would parse differently, emphasis is left out, then everything but the text.
fn inline(spans: &[Span], place: Place) -> String {
    let spans = trimmed(normalized(spans, place));
    let without = |keeps_code: bool| {
        let plain = spans.iter().map(|span| Span {
            bold: false,
            italic: false,
            strike: false,
            code: span.code && keeps_code,
            ..span.clone()
        });
        joined(plain)
    };
    for candidate in [spans.clone(), without(true), without(false)] {
        let markdown = marked(&candidate, place);
        if reads_back(&markdown, &candidate, place) {
            return markdown;
        }
    }
    let text: String = spans.iter().map(|span| span.text.as_str()).collect();
    marked(&[Span::plain(text)], place)
}

/// Joins neighbours of the same style.
fn joined(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut joined = Vec::new();
    spans.for_each(|span| super::block::push(&mut joined, span));
    joined
}

/// Spaces at the ends of emphasis belong outside, and Markdown joins spaces.
fn normalized(spans: &[Span], place: Place) -> Vec<Span> {
    let mut normal: Vec<Span> = Vec::new();
    for (number, span) in spans.iter().enumerate() {
        if span.footnote.is_some() {
            normal.push(Span { footnote: span.footnote.clone(), ..Span::default() });
            continue;
        }
        let text: String = match place {
            Place::Line => span.text.replace(LINE_BREAK, " "),
            Place::Text | Place::Cell => span.text.clone(),
        };
        // A space at an end keeps the style that both sides have.
        let between = |other: Option<&Span>, text: &str| {
            let other = other.cloned().unwrap_or_default();
            Span {
                text: text.to_owned(),
                bold: span.bold && other.bold,
                italic: span.italic && other.italic,
                strike: span.strike && other.strike,
                code: false,
                link: span.link.clone().filter(|link| other.link.as_ref() == Some(link)),
                footnote: None,
            }
        };
        if span.code {
            super::block::push(&mut normal, Span { text: text.replace(LINE_BREAK, " "), ..span.clone() });
            continue;
        }
        let is_space = |c: char| c == ' ' || c == LINE_BREAK || c == '\u{a0}' || c == '\t';
        let inner = text.trim_matches(is_space);
        let start = text.len() - text.trim_start_matches(is_space).len();
        let (before, after) = match inner.is_empty() {
            true => (text.as_str(), ""),
            false => (&text[..start], &text[start + inner.len()..]),
        };
        super::block::push(&mut normal, between(number.checked_sub(1).and_then(|at| spans.get(at)), before));
        super::block::push(&mut normal, Span { text: inner.to_owned(), ..span.clone() });
        super::block::push(&mut normal, between(spans.get(number + 1), after));
    }
    // A line starts without spaces, and has none before a break.
    for span in &mut normal {
        if !span.code {
            let lines: Vec<String> = span.text.split(LINE_BREAK).map(single_spaced).collect();
            span.text = lines.join(&LINE_BREAK.to_string());
        }
    }
    normal
}

fn single_spaced(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if c == '\t' || c == '\n' || c == '\r' { ' ' } else { c };
        if !(c == ' ' && spaced.ends_with(' ')) {
            spaced.push(c);
        }
    }
    spaced
}

/// Writes spans with their marks, opened and closed as a stack.
fn marked(spans: &[Span], place: Place) -> String {
    let mut markdown = String::new();
    let mut open: Vec<&'static str> = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        let wanted: Vec<&'static str> = [("~~", span.strike), ("**", span.bold), ("*", span.italic)]
            .into_iter()
            .filter_map(|(mark, is_on)| is_on.then_some(mark))
            .collect();
        let in_link = |span: &Span| span.link.is_some();
        // A link is written whole, so no mark stays open across its ends.
        let keeps = match at.checked_sub(1).and_then(|before| spans.get(before)) {
            Some(before) if before.link == span.link && !in_link(span) => {
                open.iter().zip(&wanted).take_while(|(open, wanted)| open == wanted).count()
            }
            _ => 0,
        };
        close(&mut markdown, &mut open, keeps);
        if let Some(label) = &span.footnote {
            close(&mut markdown, &mut open, 0);
            markdown.push_str(&format!("[^{label}]"));
            continue;
        }
        let text =
            if span.code { code(&span.text, place) } else { escaped(&span.text, place, at_start(&markdown)) };
        match &span.link {
            Some(url) => {
                let marks: String = wanted.concat();
                let closing: String = wanted.iter().rev().copied().collect();
                // An exclamation mark before a link would make it an image.
                if markdown.ends_with('!') && !markdown.ends_with("\\!") {
                    markdown.pop();
                    markdown.push_str("\\!");
                }
                markdown.push_str(&format!("[{marks}{text}{closing}]({})", destination(url)));
            }
            None => {
                for mark in &wanted[keeps..] {
                    markdown.push_str(mark);
                    open.push(mark);
                }
                markdown.push_str(&text);
            }
        }
    }
    close(&mut markdown, &mut open, 0);
    markdown
}

fn close(markdown: &mut String, open: &mut Vec<&'static str>, keeps: usize) {
    while open.len() > keeps {
        markdown.push_str(open.pop().unwrap_or_default());
    }
}

fn at_start(markdown: &str) -> bool {
    markdown.is_empty() || markdown.ends_with('\n')
}

fn code(text: &str, place: Place) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let needs_space = text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']);
    let pad = if needs_space { " " } else { "" };
    let text = if place == Place::Cell { text.replace('|', "\\|") } else { text.to_owned() };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// A link's address, in a form that cannot end early.
fn destination(url: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"()<>\\|".contains(c);
    url.chars()
        .map(|c| {
            if is_plain(c) {
                c.to_string()
            } else {
                percent_encoding::utf8_percent_encode(&c.to_string(), percent_encoding::NON_ALPHANUMERIC)
                    .to_string()
            }
        })
        .collect()
}

fn escaped(text: &str, place: Place, at_start: bool) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    let mut is_line_start = at_start;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == LINE_BREAK {
            escaped.push_str(match place {
                Place::Cell => "<br>",
                Place::Text | Place::Line => "\\\n",
            });
            is_line_start = place != Place::Cell;
            // Spaces at the start of a line mean nothing in Markdown.
            while chars.next_if(|c| *c == ' ').is_some() {}
            continue;
        }
        let needs = match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '~' | '&' => true,
            '|' => place == Place::Cell || is_line_start,
            // Hashes at the end of a heading would be dropped.
            '#' => is_line_start || place == Place::Line,
            '-' | '+' | '>' | '=' | ':' => is_line_start,
            _ => false,
        };
        if needs {
            escaped.push('\\');
        }
        escaped.push(c);
        if is_line_start && c.is_ascii_digit() {
            // `1.` would start a list.
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                escaped.push(digit);
            }
            if let Some(end) = chars.next_if(|c| matches!(c, '.' | ')')) {
                escaped.push('\\');
                escaped.push(end);
            }
        }
        is_line_start = false;
    }
    escaped
}

/// Whether the text parses to these spans again.
fn reads_back(markdown: &str, spans: &[Span], place: Place) -> bool {
    // References are read only if their footnotes exist.
    let notes: String = spans
        .iter()
        .filter_map(|span| span.footnote.as_ref())
        .map(|label| format!("\n\n[^{label}]: x"))
        .collect();
    let document = match place {
        Place::Text => format!("{markdown}{notes}\n"),
        Place::Line => format!("# {markdown}{notes}\n"),
        Place::Cell => format!("| {markdown} |\n| --- |{notes}\n"),
    };
    let blocks = parse(&document);
    let read: Option<&[Span]> = match blocks.first() {
        Some(Block::Paragraph { spans, .. }) if place != Place::Cell => Some(spans),
        Some(Block::Table(rows)) if place == Place::Cell && rows.len() == 1 => {
            rows[0].first().map(Vec::as_slice)
        }
        None if spans.is_empty() => Some(&[]),
        _ => None,
    };
    let count = blocks.iter().filter(|block| !matches!(block, Block::Footnote { .. })).count();
    count <= 1 && read.is_some_and(|read| read == spans)
}
