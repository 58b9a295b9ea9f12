//! The JSON of a document to blocks.

use super::LINE_BREAK;
use super::block::{Block, Span, push, trimmed};
use super::json::{Document, DocumentTab, Element, Paragraph, Piece, TabNode, TextStyle};

/// Deeper tabs are left out.
const MAX_TAB_DEPTH: usize = 10;
/// Less is the first-line indent of an ordinary paragraph.
const QUOTE_INDENT: f64 = 18.0;
const CODE_FONTS: &[&str] = &[
    "Courier New",
    "Courier",
    "Consolas",
    "Roboto Mono",
    "Source Code Pro",
    "Inconsolata",
    "Fira Code",
    "JetBrains Mono",
    "IBM Plex Mono",
    "Ubuntu Mono",
    "Cousine",
    "Google Sans Code",
];

/// A tab of a document. A document without tabs has one.
#[derive(Debug)]
pub(crate) struct Tab {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

/// All tabs of a document, each before its children.
pub(crate) fn tabs(document: &Document) -> Vec<Tab> {
    if document.tabs.is_empty() {
        let blocks = blocks(&document.content);
        return vec![Tab { id: String::new(), title: document.title.clone(), blocks }];
    }
    fn visit(nodes: &[TabNode], depth: usize, found: &mut Vec<Tab>) {
        for node in nodes {
            let properties = &node.tab_properties;
            found.push(Tab {
                id: properties.tab_id.clone(),
                title: properties.title.clone(),
                blocks: blocks(&node.document_tab),
            });
            if depth < MAX_TAB_DEPTH {
                visit(&node.child_tabs, depth + 1, found);
            }
        }
    }
    let mut found = Vec::new();
    visit(&document.tabs, 0, &mut found);
    found
}

impl Document {
    /// Where text can be added at the end of the body, and whether the last paragraph is empty.
    pub(crate) fn end(&self) -> (u64, bool) {
        let last = self.content.body.content.last();
        let end = last.map_or(2, |element| element.end_index.max(2));
        let start = last.map_or(1, |element| element.start_index);
        let is_empty =
            last.is_none_or(|element| element.paragraph.is_some() && element.end_index == start + 1);
        (end - 1, is_empty)
    }

    /// How often a text occurs in the document, in all places that Docs searches.
    pub(crate) fn occurrences(&self, wanted: &str) -> usize {
        fn in_tabs(nodes: &[TabNode], wanted: &str, depth: usize) -> usize {
            let deeper = |node: &TabNode| {
                if depth < MAX_TAB_DEPTH { in_tabs(&node.child_tabs, wanted, depth + 1) } else { 0 }
            };
            nodes.iter().map(|node| in_tab(&node.document_tab, wanted) + deeper(node)).sum()
        }
        in_tab(&self.content, wanted) + in_tabs(&self.tabs, wanted, 0)
    }
}

fn in_tab(tab: &DocumentTab, wanted: &str) -> usize {
    let segments = tab.footnotes.values().chain(tab.headers.values()).chain(tab.footers.values());
    segments.chain([&tab.body]).map(|segment| in_elements(&segment.content, wanted)).sum()
}

fn in_elements(elements: &[Element], wanted: &str) -> usize {
    let in_element = |element: &Element| {
        let in_paragraph = element.paragraph.as_ref().map_or(0, |paragraph| {
            let runs = paragraph
                .elements
                .iter()
                .map(|piece| piece.text_run.as_ref().map_or("\u{fffc}", |run| &run.content));
            runs.collect::<String>().matches(wanted).count()
        });
        let rows = element.table.iter().flat_map(|table| &table.table_rows);
        let in_cells: usize =
            rows.flat_map(|row| &row.table_cells).map(|cell| in_elements(&cell.content, wanted)).sum();
        in_paragraph + in_cells
    };
    elements.iter().map(in_element).sum()
}

fn blocks(tab: &DocumentTab) -> Vec<Block> {
    let mut reader = Reader { tab, footnotes: Vec::new() };
    let mut blocks: Vec<Block> =
        tab.body.content.iter().flat_map(|element| reader.element(element)).collect();
    let mut at = 0;
    // A footnote may refer to another one.
    while let Some((label, id)) = reader.footnotes.get(at).cloned() {
        let content = tab.footnotes.get(&id).map(|segment| segment.content.as_slice()).unwrap_or_default();
        let spans = reader.joined(content);
        blocks.push(Block::Footnote { label, spans });
        at += 1;
    }
    blocks
}

struct Reader<'a> {
    tab: &'a DocumentTab,
    /// Labels and ids of the footnotes in the order of their references.
    footnotes: Vec<(String, String)>,
}

impl Reader<'_> {
    fn element(&mut self, element: &Element) -> Vec<Block> {
        if let Some(paragraph) = &element.paragraph {
            return self.paragraph(paragraph);
        }
        let Some(table) = &element.table else { return Vec::new() };
        let mut rows = Vec::new();
        for row in &table.table_rows {
            rows.push(row.table_cells.iter().map(|cell| self.joined(&cell.content)).collect());
        }
        if rows.is_empty() { Vec::new() } else { vec![Block::Table(rows)] }
    }

    fn paragraph(&mut self, paragraph: &Paragraph) -> Vec<Block> {
        let mut blocks = Vec::new();
        if paragraph.elements.iter().any(|piece| piece.horizontal_rule.is_some()) {
            blocks.push(Block::Rule);
        }
        let spans = trimmed(self.spans(paragraph));
        let style = &paragraph.paragraph_style;
        if spans.is_empty() {
            let has_border = style.border_bottom.as_ref().and_then(|border| border.width.as_ref());
            if has_border.is_some_and(|width| width.magnitude > 0.0) {
                blocks.push(Block::Rule);
            }
            return blocks;
        }
        let is_shaded = style
            .shading
            .as_ref()
            .and_then(|shading| shading.background_color.as_ref())
            .is_some_and(|background| background.color.is_some());
        if is_shaded && spans.iter().all(|span| span.code) {
            let whole: String = self.spans(paragraph).iter().map(|span| span.text.as_str()).collect();
            blocks.push(Block::Code(whole.trim_end_matches('\n').replace(LINE_BREAK, "\n")));
            return blocks;
        }
        blocks.push(match &paragraph.bullet {
            Some(bullet) => {
                let levels =
                    self.tab.lists.get(&bullet.list_id).map(|list| &list.list_properties.nesting_levels);
                let level = levels.and_then(|levels| levels.get(usize::from(bullet.nesting_level)));
                let is_ordered = level.is_some_and(|level| is_ordered(&level.glyph_type));
                Block::ListItem { spans, level: bullet.nesting_level, is_ordered }
            }
            None => {
                let indent = style.indent_start.as_ref().map_or(0.0, |indent| indent.magnitude);
                let heading = heading(&style.named_style_type);
                Block::Paragraph { spans, heading, is_quote: heading == 0 && indent >= QUOTE_INDENT }
            }
        });
        blocks
    }

    /// The text of several paragraphs as one, for cells and footnotes.
    fn joined(&mut self, elements: &[Element]) -> Vec<Span> {
        let mut spans = Vec::new();
        for element in elements {
            let more = match (&element.paragraph, &element.table) {
                (Some(paragraph), _) => trimmed(self.spans(paragraph)),
                (None, Some(table)) => {
                    let cells = table.table_rows.iter().flat_map(|row| &row.table_cells);
                    let inner: Vec<Vec<Span>> = cells.map(|cell| self.joined(&cell.content)).collect();
                    inner.into_iter().flat_map(|cell| cell.into_iter().chain([Span::plain(" ")])).collect()
                }
                (None, None) => Vec::new(),
            };
            if !spans.is_empty() && !more.is_empty() {
                push(&mut spans, Span::plain(LINE_BREAK.to_string()));
            }
            more.into_iter().for_each(|span| push(&mut spans, span));
        }
        trimmed(spans)
    }

    fn spans(&mut self, paragraph: &Paragraph) -> Vec<Span> {
        let mut spans = Vec::new();
        for piece in &paragraph.elements {
            if let Some(span) = self.span(piece) {
                push(&mut spans, span);
            }
        }
        spans
    }

    fn span(&mut self, piece: &Piece) -> Option<Span> {
        if let Some(run) = &piece.text_run {
            // Docs marks its own elements with private characters.
            let is_shown = |c: &char| !('\u{e000}'..='\u{f8ff}').contains(c) && *c != '\n';
            return Some(styled(run.content.chars().filter(is_shown).collect(), &run.text_style));
        }
        if let Some(reference) = &piece.footnote_reference {
            let label = match reference.footnote_number.is_empty() {
                true => (self.footnotes.len() + 1).to_string(),
                false => reference.footnote_number.clone(),
            };
            if !self.footnotes.iter().any(|(_, id)| *id == reference.footnote_id) {
                self.footnotes.push((label.clone(), reference.footnote_id.clone()));
            }
            return Some(Span { footnote: Some(label), ..Span::default() });
        }
        if let Some(object) = &piece.inline_object_element {
            let found = self.tab.inline_objects.get(&object.inline_object_id);
            let embedded = found.map(|object| &object.inline_object_properties.embedded_object);
            let text = embedded
                .map(|object| [object.title.as_str(), &object.description].join(" "))
                .unwrap_or_default();
            let text = text.trim();
            return Some(Span::plain(if text.is_empty() {
                "(image)".to_owned()
            } else {
                format!("(image: {text})")
            }));
        }
        if let Some(rich) = &piece.rich_link {
            let properties = &rich.rich_link_properties;
            let link = Some(properties.uri.clone()).filter(|uri| super::block::is_allowed_link(uri));
            return Some(Span { link, ..Span::plain(properties.title.clone()) });
        }
        if let Some(person) = &piece.person {
            let properties = &person.person_properties;
            let text = match properties.name.is_empty() {
                true => properties.email.clone(),
                false => format!("{} <{}>", properties.name, properties.email),
            };
            return Some(Span::plain(text));
        }
        if let Some(date) = &piece.date_element {
            return Some(Span::plain(date.date_element_properties.display_text.clone()));
        }
        piece.equation.is_some().then(|| Span::plain("(equation)"))
    }
}

fn styled(text: String, style: &TextStyle) -> Span {
    let font = style.weighted_font_family.as_ref().map(|font| font.font_family.as_str());
    Span {
        text,
        bold: style.bold,
        italic: style.italic,
        strike: style.strikethrough,
        code: font.is_some_and(|font| CODE_FONTS.contains(&font)),
        link: style
            .link
            .as_ref()
            .and_then(|link| link.url.clone())
            .filter(|url| super::block::is_allowed_link(url)),
        footnote: None,
    }
}

fn is_ordered(glyph: &str) -> bool {
    !matches!(glyph, "" | "NONE" | "GLYPH_TYPE_UNSPECIFIED")
}

fn heading(style: &str) -> u8 {
    match style {
        "TITLE" => 1,
        _ => style
            .strip_prefix("HEADING_")
            .and_then(|level| level.parse().ok())
            .filter(|level| *level <= 6)
            .unwrap_or(0),
    }
}
