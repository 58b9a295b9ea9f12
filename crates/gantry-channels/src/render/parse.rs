//! Parses Markdown into [`Block`]s. Tags of HTML and pictures become text and links.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::{Block, Rich, Span, Style};

/// Lists and quotes that are nested deeper are flattened, because every later step is recursive.
const MAX_DEPTH: usize = 8;

/// Parses a document.
pub(crate) fn blocks(markdown: &str) -> Vec<Block> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut builder = Builder::default();
    for event in Parser::new_ext(markdown, options) {
        builder.take(event);
    }
    builder.flush();
    while !builder.open.is_empty() {
        builder.close();
    }
    builder.root
}

#[derive(Default)]
struct Builder {
    root: Vec<Block>,
    open: Vec<Container>,
    /// Whether each nested list, item and quote has a container, innermost last.
    opened: Vec<bool>,
    inline: Rich,
    /// Styles that have begun, with the position. `None` stands for one that has no effect.
    styles: Vec<(usize, Option<Style>)>,
    code: Option<(String, String)>,
    table: Vec<Vec<Rich>>,
    row: Vec<Rich>,
}

enum Container {
    Quote(Vec<Block>),
    List(Option<u64>, Vec<Vec<Block>>),
    Item(Vec<Block>),
}

impl Builder {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => self.inline.text.push_str(&text),
            },
            Event::Code(code) => {
                let start = self.inline.text.len();
                self.inline.text.push_str(&code);
                self.inline.style_from(start, Style::Code);
            }
            Event::Html(text)
            | Event::InlineHtml(text)
            | Event::FootnoteReference(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text) => self.inline.text.push_str(&text),
            Event::SoftBreak | Event::HardBreak => self.inline.text.push('\n'),
            Event::Rule => {
                self.flush();
                self.push(Block::Rule);
            }
            Event::TaskListMarker(done) => self.inline.text.push_str(if done { "☑ " } else { "☐ " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Emphasis => self.begin(Style::Italic),
            Tag::Strong => self.begin(Style::Bold),
            Tag::Strikethrough => self.begin(Style::Strike),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.begin(Style::Link(dest_url.into_string()));
            }
            Tag::BlockQuote(_) => self.open(Container::Quote(Vec::new())),
            Tag::List(start) => self.open(Container::List(start, Vec::new())),
            Tag::Item => self.open(Container::Item(Vec::new())),
            Tag::CodeBlock(kind) => {
                self.flush();
                let language = match &kind {
                    CodeBlockKind::Fenced(info) => language(info),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::TableCell | Tag::TableRow | Tag::TableHead => {}
            _ => self.flush(),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough | TagEnd::Link | TagEnd::Image => {
                self.finish_style();
            }
            TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item => {
                self.flush();
                if self.opened.pop() == Some(true) {
                    self.close();
                }
            }
            TagEnd::Heading(level) => {
                let text = self.inline();
                if !text.text.is_empty() {
                    self.push(Block::Heading { level: number(level), text });
                }
            }
            TagEnd::CodeBlock => {
                if let Some((language, mut text)) = self.code.take() {
                    text.truncate(text.strip_suffix('\n').map_or(text.len(), str::len));
                    if !text.trim().is_empty() {
                        self.push(Block::Code { language, text });
                    }
                }
            }
            TagEnd::TableCell => {
                let cell = self.inline();
                self.row.push(cell);
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                let row = std::mem::take(&mut self.row);
                self.table.push(row);
            }
            TagEnd::Table => {
                let mut rows = std::mem::take(&mut self.table);
                if !rows.is_empty() {
                    let header = rows.remove(0);
                    self.push(Block::Table { header, rows });
                }
            }
            _ => self.flush(),
        }
    }

    fn begin(&mut self, style: Style) {
        let kind = std::mem::discriminant(&style);
        let is_new = !self
            .styles
            .iter()
            .filter_map(|(_, style)| style.as_ref())
            .any(|style| std::mem::discriminant(style) == kind);
        self.styles.push((self.inline.text.len(), is_new.then_some(style)));
    }

    fn finish_style(&mut self) {
        let Some((start, Some(style))) = self.styles.pop() else { return };
        if let (Style::Link(url), true) = (&style, start == self.inline.text.len()) {
            // A link or a picture without a text shows its address.
            self.inline.text.push_str(url);
        }
        self.inline.style_from(start, style);
    }

    fn open(&mut self, container: Container) {
        self.flush();
        let has_room = self.open.len() < 2 * MAX_DEPTH;
        // An item of a list without a container has none either.
        let belongs = !matches!(container, Container::Item(_)) || self.opened.last() == Some(&true);
        self.opened.push(has_room && belongs);
        if has_room && belongs {
            self.open.push(container);
        }
    }

    fn close(&mut self) {
        match self.open.pop() {
            Some(Container::Quote(blocks)) if !blocks.is_empty() => self.push(Block::Quote(blocks)),
            Some(Container::List(start, items)) if !items.is_empty() => {
                self.push(Block::List { start, items });
            }
            Some(Container::Item(blocks)) => match self.open.last_mut() {
                Some(Container::List(_, items)) => items.push(blocks),
                _ => blocks.into_iter().for_each(|block| self.push(block)),
            },
            _ => {}
        }
    }

    fn push(&mut self, block: Block) {
        match self.open.last_mut() {
            Some(Container::Quote(blocks) | Container::Item(blocks)) => blocks.push(block),
            Some(Container::List(_, items)) => items.push(vec![block]),
            None => self.root.push(block),
        }
    }

    /// Takes the text so far.
    fn inline(&mut self) -> Rich {
        self.styles.clear();
        let mut text = std::mem::take(&mut self.inline);
        text.sort();
        text.trimmed()
    }

    /// Ends a paragraph. Items of tight lists have paragraphs without an event.
    fn flush(&mut self) {
        let text = self.inline();
        if !text.text.is_empty() {
            self.push(Block::Paragraph(text));
        }
    }
}

fn number(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

/// The language of a fence. Anything but a plain name is dropped.
fn language(info: &str) -> String {
    let word = info.split([' ', ',', '{']).next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '_' | '#' | '.');
    if word.len() <= 40 && word.chars().all(is_name) { word.to_owned() } else { String::new() }
}

/// Whether two texts differ only in white space.
pub(super) fn same_text(one: &str, other: &str) -> bool {
    let visible = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    visible(one) == visible(other)
}

/// Returns the text and the spans of a document that is one paragraph.
pub(super) fn paragraph(markdown: &str) -> Option<(String, Vec<Span>)> {
    match <[Block; 1]>::try_from(blocks(markdown)) {
        Ok([Block::Paragraph(text)]) => Some((text.text, text.spans)),
        _ => None,
    }
}
