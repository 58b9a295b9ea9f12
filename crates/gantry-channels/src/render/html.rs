//! The subset of HTML that Matrix clients and mail programs show. Every character of the text is escaped.

use super::{Block, Rich, Style, blocks, is_web_link, shows_itself};

/// Renders Markdown as HTML.
pub(crate) fn render(markdown: &str) -> String {
    let mut out = String::new();
    sequence(&blocks(markdown), &mut out);
    out
}

fn sequence(blocks: &[Block], out: &mut String) {
    blocks.iter().for_each(|block| one(block, out));
}

fn one(block: &Block, out: &mut String) {
    match block {
        Block::Paragraph(text) => out.push_str(&format!("<p>{}</p>", inline(text))),
        Block::Heading { level, text } => {
            out.push_str(&format!("<h{level}>{}</h{level}>", inline(text)));
        }
        Block::Code { language, text } => {
            let class = match language.as_str() {
                "" => String::new(),
                language => format!(" class=\"language-{}\"", escape(language)),
            };
            out.push_str(&format!("<pre><code{class}>{}\n</code></pre>", escape(text).replace("<br>", "\n")));
        }
        Block::Quote(blocks) => {
            out.push_str("<blockquote>");
            sequence(blocks, out);
            out.push_str("</blockquote>");
        }
        Block::List { start, items } => {
            let (open, close) = match start {
                Some(1) => ("<ol>".to_owned(), "</ol>"),
                Some(start) => (format!("<ol start=\"{start}\">"), "</ol>"),
                None => ("<ul>".to_owned(), "</ul>"),
            };
            out.push_str(&open);
            for item in items {
                out.push_str("<li>");
                match item.split_first() {
                    // The text of an item stands on the line of its marker.
                    Some((Block::Paragraph(text), rest)) => {
                        out.push_str(&inline(text));
                        sequence(rest, out);
                    }
                    _ => sequence(item, out),
                }
                out.push_str("</li>");
            }
            out.push_str(close);
        }
        Block::Table { header, rows } => {
            let row = |cells: &[Rich], tag: &str| {
                let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", inline(cell)));
                format!("<tr>{}</tr>", cells.collect::<String>())
            };
            let body: String = rows.iter().map(|cells| row(cells, "td")).collect();
            let head = row(header, "th");
            out.push_str(&format!("<table><thead>{head}</thead><tbody>{body}</tbody></table>"));
        }
        Block::Rule => out.push_str("<hr>"),
    }
}

fn inline(text: &Rich) -> String {
    part(text, 0..text.text.len(), 0)
}

/// Renders a part of a text with the spans from index `first` on that lie in it.
fn part(text: &Rich, range: std::ops::Range<usize>, first: usize) -> String {
    let mut out = String::new();
    let mut at = range.start;
    let mut index = first;
    while let Some(span) = text.spans.get(index).filter(|span| span.range.start < range.end) {
        if span.range.start < at || span.range.end > range.end {
            index += 1;
            continue;
        }
        out.push_str(&escape(&text.text[at..span.range.start]));
        let inner = part(text, span.range.clone(), index + 1);
        match &span.style {
            Style::Bold => out.push_str(&format!("<strong>{inner}</strong>")),
            Style::Italic => out.push_str(&format!("<em>{inner}</em>")),
            Style::Strike => out.push_str(&format!("<del>{inner}</del>")),
            Style::Code => out.push_str(&format!("<code>{inner}</code>")),
            Style::Link(url) if is_web_link(url) => {
                out.push_str(&format!("<a href=\"{}\">{inner}</a>", escape(url)));
            }
            // Clients do not open other addresses, so people see them.
            Style::Link(url) if !shows_itself(&text.text[span.range.clone()], url) => {
                out.push_str(&format!("{inner} ({})", escape(url)));
            }
            Style::Link(_) | Style::Pre(_) | Style::Quote => out.push_str(&inner),
        }
        at = span.range.end;
        let after = text.spans[index..].iter().position(|next| next.range.start >= span.range.end);
        index = after.map_or(text.spans.len(), |count| index + count);
    }
    out.push_str(&escape(&text.text[at..range.end]));
    out
}

/// Escapes a text for elements and attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push_str("<br>"),
            // Neither HTML nor XML has them.
            c if c.is_control() && c != '\t' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}
