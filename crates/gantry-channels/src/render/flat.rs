//! Lays [`Block`]s out as one text with styles, for services that have no lists, headings or tables.

use unicode_segmentation::UnicodeSegmentation;

use super::{Block, Rich, Span, Style, is_web_link, shows_itself};

/// How a service shows what it has no markup for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) tables: Tables,
    pub(super) links: Links,
    pub(super) quotes: Quotes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    /// Columns in a block of code.
    Columns,
    /// An item for each row.
    Bullets,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Styled,
    /// The address follows the text in parentheses.
    Written,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    Styled,
    /// Lines begin with `> `.
    Written,
}

/// Lays a document out.
pub(super) fn flat(blocks: &[Block], layout: Layout) -> Rich {
    let mut text = sequence(blocks, layout);
    text.sort();
    text.trimmed()
}

fn sequence(blocks: &[Block], layout: Layout) -> Rich {
    let mut out = Rich::default();
    for block in blocks {
        if !out.text.is_empty() {
            out.text.push_str("\n\n");
        }
        out.push(&one(block, layout));
    }
    out
}

fn one(block: &Block, layout: Layout) -> Rich {
    match block {
        Block::Paragraph(text) => with_links(text, layout.links),
        Block::Heading { text, .. } => {
            let mut text = with_links(text, layout.links);
            text.spans.retain(|span| span.style != Style::Bold);
            text.style_from(0, Style::Bold);
            text
        }
        Block::Code { language, text } => pre(language, text),
        Block::Quote(blocks) => {
            let mut text = sequence(blocks, layout);
            match layout.quotes {
                Quotes::Styled => text.style_from(0, Style::Quote),
                Quotes::Written => text = indented(&text, "> ", "> "),
            }
            text
        }
        Block::List { start, items } => {
            let mut out = Rich::default();
            for (index, item) in items.iter().enumerate() {
                let marker = match start {
                    Some(start) => format!("{}. ", start.saturating_add(index as u64)),
                    None => "• ".to_owned(),
                };
                if index > 0 {
                    out.text.push('\n');
                }
                out.push(&indented(&tight(item, layout), &marker, "  "));
            }
            out
        }
        Block::Table { header, rows } => match layout.tables {
            Tables::Columns => pre("", &columns(header, rows)),
            Tables::Bullets => bullets(header, rows, layout),
        },
        Block::Rule => Rich::plain("———"),
    }
}

/// Lays out an item: its blocks follow each other without empty lines.
fn tight(blocks: &[Block], layout: Layout) -> Rich {
    let mut out = Rich::default();
    for block in blocks {
        if !out.text.is_empty() {
            out.text.push('\n');
        }
        out.push(&one(block, layout));
    }
    out
}

fn pre(language: &str, text: &str) -> Rich {
    let mut out = Rich::plain(text);
    out.style_from(0, Style::Pre(language.to_owned()));
    out
}

/// Puts a prefix before each line. Code is indented but never changed otherwise.
fn indented(text: &Rich, first: &str, rest: &str) -> Rich {
    let mut out = Rich::default();
    let mut at = 0;
    // The position of each line in both texts.
    let mut lines = Vec::new();
    for (index, line) in text.text.split('\n').enumerate() {
        if index > 0 {
            out.text.push('\n');
        }
        out.text.push_str(if index == 0 { first } else { rest });
        lines.push((at, out.text.len()));
        out.text.push_str(line);
        at += line.len() + 1;
    }
    let moved = |position: usize| {
        let line = lines.partition_point(|(start, _)| *start <= position).saturating_sub(1);
        lines.get(line).map_or(position, |(from, to)| position - from + to)
    };
    out.spans = text
        .spans
        .iter()
        .map(|span| {
            // The end belongs to the line of the last character.
            let end = moved(span.range.end.saturating_sub(1)) + 1;
            Span { range: moved(span.range.start)..end, style: span.style.clone() }
        })
        .collect();
    out
}

/// Writes the addresses of links that cannot be styled.
fn with_links(text: &Rich, links: Links) -> Rich {
    let is_kept = |span: &Span| match &span.style {
        Style::Link(url) => links == Links::Styled && is_web_link(url),
        _ => true,
    };
    if text.spans.iter().all(is_kept) {
        return text.clone();
    }
    let mut out = text.clone();
    out.spans.retain(is_kept);
    let mut written: Vec<&Span> = text.spans.iter().filter(|span| !is_kept(span)).collect();
    written.sort_by_key(|span| std::cmp::Reverse(span.range.end));
    for span in written {
        let Style::Link(url) = &span.style else { continue };
        if shows_itself(&text.text[span.range.clone()], url) {
            continue;
        }
        let address = format!(" ({url})");
        let at = span.range.end;
        out.text.insert_str(at, &address);
        for other in &mut out.spans {
            if other.range.start >= at {
                other.range.start += address.len();
            }
            if other.range.end > at {
                other.range.end += address.len();
            }
        }
    }
    out
}

/// A table as lines with columns of equal width.
fn columns(header: &[Rich], rows: &[Vec<Rich>]) -> String {
    let cell = |cell: &Rich| with_links(cell, Links::Written).text.replace('\n', " ");
    let header: Vec<String> = header.iter().map(cell).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let width = |text: &String| text.graphemes(true).count();
    let count = header.len();
    let widths: Vec<usize> = (0..count)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column)).chain(header.get(column));
            cells.map(width).max().unwrap_or(0).min(40)
        })
        .collect();
    let line = |cells: &[String]| {
        let mut line = String::new();
        for (index, text) in cells.iter().enumerate() {
            line.push_str(if index > 0 { " | " } else { "" });
            line.push_str(text);
            if index + 1 < cells.len() {
                let room = widths.get(index).copied().unwrap_or(0);
                line.push_str(&" ".repeat(room.saturating_sub(width(text))));
            }
        }
        line.trim_end().to_owned()
    };
    let rule = widths.iter().map(|width| "-".repeat((*width).max(1))).collect::<Vec<_>>().join("-+-");
    let mut lines = vec![line(&header), rule];
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n")
}

/// A table as a list: `Name: Ada, Age: 36`.
fn bullets(header: &[Rich], rows: &[Vec<Rich>], layout: Layout) -> Rich {
    let mut out = Rich::default();
    if rows.is_empty() {
        for (index, cell) in header.iter().enumerate() {
            out.text.push_str(if index > 0 { ", " } else { "• " });
            out.push(&with_links(cell, layout.links));
        }
    }
    for row in rows {
        out.text.push_str(if out.text.is_empty() { "• " } else { "\n• " });
        let mut is_first = true;
        for (index, cell) in row.iter().enumerate().filter(|(_, cell)| !cell.text.is_empty()) {
            out.text.push_str(if is_first { "" } else { ", " });
            is_first = false;
            if let Some(name) = header.get(index).filter(|name| !name.text.is_empty()) {
                let start = out.text.len();
                out.text.push_str(&name.text.replace('\n', " "));
                out.style_from(start, Style::Bold);
                out.text.push_str(": ");
            }
            out.push(&with_links(cell, layout.links));
        }
    }
    out
}
