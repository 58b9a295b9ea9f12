//! Markdown to blocks.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::LINE_BREAK;
use super::block::{Block, Span, is_allowed_link, push, trimmed};

/// Docs has this many levels of lists.
const MAX_LEVEL: u8 = 8;

/// Parses Markdown. HTML is kept as text, except for `<br>`.
pub(crate) fn parse(markdown: &str) -> Vec<Block> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_FOOTNOTES;
    let mut reader = Reader::default();
    for event in Parser::new_ext(markdown, options) {
        reader.event(event);
    }
    reader.end_paragraph();
    reader.blocks
}

#[derive(Default)]
struct Reader {
    blocks: Vec<Block>,
    spans: Vec<Span>,
    /// The style of text that follows.
    bold: usize,
    italic: usize,
    strike: usize,
    links: Vec<Option<String>>,
    heading: u8,
    quotes: usize,
    /// The open lists, outermost first: whether each is ordered.
    lists: Vec<bool>,
    /// The item of the innermost list has not been added yet.
    in_item: bool,
    code: Option<String>,
    table: Option<Vec<Vec<Vec<Span>>>>,
    footnote: Option<String>,
}

impl Reader {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(end),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.text(&text),
            },
            Event::Code(text) => {
                let span = Span { code: true, text: text.to_string(), ..self.styled("") };
                push(&mut self.spans, span);
            }
            Event::InlineHtml(html) | Event::Html(html) => {
                match html.trim().trim_end_matches(['/', '>']).trim().eq_ignore_ascii_case("<br") {
                    true => self.text(&LINE_BREAK.to_string()),
                    false => self.text(html.trim_end()),
                }
            }
            Event::SoftBreak => self.text(" "),
            Event::HardBreak => self.text(&LINE_BREAK.to_string()),
            Event::Rule => {
                self.end_paragraph();
                self.blocks.push(Block::Rule);
            }
            Event::FootnoteReference(label) => {
                self.spans.push(Span { footnote: Some(label.to_string()), ..Span::default() });
            }
            Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text),
            Event::TaskListMarker(_) => {}
        }
    }

    fn styled(&self, text: &str) -> Span {
        Span {
            text: text.to_owned(),
            bold: self.bold > 0,
            italic: self.italic > 0,
            strike: self.strike > 0,
            code: false,
            link: self.links.iter().rev().find_map(Clone::clone),
            footnote: None,
        }
    }

    fn text(&mut self, text: &str) {
        let span = self.styled(text);
        push(&mut self.spans, span);
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => {
                // A second paragraph of an item continues it after a line break.
                if !self.spans.is_empty() {
                    self.text(&LINE_BREAK.to_string());
                }
            }
            Tag::Heading { level, .. } => {
                self.end_paragraph();
                self.heading = match level {
                    HeadingLevel::H1 => 1,
                    HeadingLevel::H2 => 2,
                    HeadingLevel::H3 => 3,
                    HeadingLevel::H4 => 4,
                    HeadingLevel::H5 => 5,
                    HeadingLevel::H6 => 6,
                };
            }
            Tag::BlockQuote(_) => {
                self.end_paragraph();
                self.quotes += 1;
            }
            Tag::CodeBlock(CodeBlockKind::Indented | CodeBlockKind::Fenced(_)) => {
                self.end_paragraph();
                self.code = Some(String::new());
            }
            Tag::List(start) => {
                self.end_paragraph();
                self.lists.push(start.is_some());
            }
            Tag::Item => {
                self.end_paragraph();
                self.in_item = true;
            }
            Tag::FootnoteDefinition(label) => {
                self.end_paragraph();
                self.footnote = Some(label.to_string());
            }
            Tag::Table(_) => {
                self.end_paragraph();
                self.table = Some(Vec::new());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(rows) = &mut self.table {
                    rows.push(Vec::new());
                }
            }
            Tag::TableCell => self.spans.clear(),
            Tag::Emphasis => self.italic += 1,
            Tag::Strong => self.bold += 1,
            Tag::Strikethrough => self.strike += 1,
            // An image of the web would be fetched by Google, so it becomes a link.
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push(Some(dest_url.to_string()).filter(|url| is_allowed_link(url)));
            }
            Tag::HtmlBlock
            | Tag::MetadataBlock(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript => {}
        }
    }

    fn end(&mut self, end: TagEnd) {
        match end {
            TagEnd::Paragraph if self.in_item || self.footnote.is_some() => {}
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_paragraph(),
            TagEnd::Heading(_) => {
                self.end_paragraph();
                self.heading = 0;
            }
            TagEnd::BlockQuote(_) => {
                self.end_paragraph();
                self.quotes = self.quotes.saturating_sub(1);
            }
            TagEnd::CodeBlock => {
                let code = self.code.take().unwrap_or_default();
                self.blocks.push(Block::Code(code.strip_suffix('\n').unwrap_or(&code).to_owned()));
            }
            TagEnd::List(_) => {
                self.end_paragraph();
                self.lists.pop();
            }
            TagEnd::Item => {
                self.end_paragraph();
                self.in_item = false;
            }
            TagEnd::FootnoteDefinition => {
                self.end_paragraph();
                self.footnote = None;
            }
            TagEnd::Table => {
                if let Some(rows) = self.table.take().filter(|rows| !rows.is_empty()) {
                    self.blocks.push(Block::Table(rows));
                }
            }
            TagEnd::TableCell => {
                let cell = trimmed(std::mem::take(&mut self.spans));
                if let Some(row) = self.table.as_mut().and_then(|rows| rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Emphasis => self.italic = self.italic.saturating_sub(1),
            TagEnd::Strong => self.bold = self.bold.saturating_sub(1),
            TagEnd::Strikethrough => self.strike = self.strike.saturating_sub(1),
            TagEnd::Link | TagEnd::Image => {
                self.links.pop();
            }
            _ => {}
        }
    }

    /// Adds the text so far as a block of the kind that is open.
    fn end_paragraph(&mut self) {
        let spans = trimmed(std::mem::take(&mut self.spans));
        if spans.is_empty() {
            return;
        }
        let block = match (&self.footnote, self.lists.last()) {
            (Some(label), _) => Block::Footnote { label: label.clone(), spans },
            (None, Some(is_ordered)) if self.in_item => {
                let depth = u8::try_from(self.lists.len() - 1).unwrap_or(MAX_LEVEL).min(MAX_LEVEL);
                // The next paragraph of this item, such as one after code, is not an item again.
                self.in_item = false;
                Block::ListItem { spans, level: depth, is_ordered: *is_ordered }
            }
            _ => Block::Paragraph { spans, heading: self.heading, is_quote: self.quotes > 0 },
        };
        self.blocks.push(block);
    }
}
