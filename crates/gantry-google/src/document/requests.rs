//! Blocks to the requests of `documents.batchUpdate`.
//!
//! The blocks are inserted backwards, all at the same index, so that no request depends on the length of an earlier one.
//! Indexes count UTF-16 units.

use serde_json::{Value, json};

use super::block::{Block, Span};
use super::{CODE_FONT, LINE_BREAK};

/// Every field of a text style that a span sets. A span that does not set a field resets it.
const TEXT_FIELDS: &str = "bold,italic,strikethrough,link,weightedFontFamily";
const PARAGRAPH_FIELDS: &str = "namedStyleType,indentStart,indentFirstLine,shading,borderBottom";
const QUOTE_INDENT: u32 = 36;

/// The requests of a change.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) requests: Vec<Value>,
    /// Footnotes that are created: the index of the request, and the text, which needs the id in the answer.
    pub(crate) footnotes: Vec<(usize, Vec<Span>)>,
}

/// Plans to add blocks at the end of a body. `end` is the index before its last line break.
pub(crate) fn append_plan(blocks: &[Block], end: u64, is_last_empty: bool) -> Plan {
    let notes: Vec<(&str, &[Span])> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Footnote { label, spans } => Some((label.as_str(), spans.as_slice())),
            _ => None,
        })
        .collect();
    let groups = groups(blocks);
    let mut writer = Writer { plan: Plan::default(), notes };
    if groups.is_empty() {
        return writer.plan;
    }
    let mut at = end;
    if !is_last_empty {
        writer.insert(at, "\n");
        at += 1;
    }
    for (index, group) in groups.iter().enumerate().rev() {
        // The last group uses the line break that is there. So does one before a table, which brings its own.
        let ends_itself = !matches!(groups.get(index + 1), None | Some(Group::Table(_)));
        writer.group(group, at, ends_itself);
    }
    writer.plan
}

/// The requests that write the text of a footnote.
pub(crate) fn footnote_requests(id: &str, spans: &[Span]) -> Vec<Value> {
    let text: String = spans.iter().map(|span| clean(&span.text)).collect();
    // A new footnote contains a space and a line break.
    vec![json!({"insertText": {"location": {"segmentId": id, "index": 1}, "text": text}})]
}

/// Blocks that are inserted together.
enum Group<'a> {
    Paragraph {
        spans: &'a [Span],
        heading: u8,
        is_quote: bool,
    },
    /// Items of one kind: their levels and spans.
    List {
        is_ordered: bool,
        items: Vec<(u8, &'a [Span])>,
    },
    Code(&'a str),
    Rule,
    Table(&'a [Vec<Vec<Span>>]),
}

fn groups(blocks: &[Block]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for block in blocks {
        match block {
            Block::Paragraph { spans, heading, is_quote } => {
                groups.push(Group::Paragraph { spans, heading: *heading, is_quote: *is_quote });
            }
            Block::ListItem { spans, level, is_ordered } => match groups.last_mut() {
                Some(Group::List { is_ordered: kind, items }) if kind == is_ordered => {
                    items.push((*level, spans))
                }
                _ => groups.push(Group::List { is_ordered: *is_ordered, items: vec![(*level, spans)] }),
            },
            Block::Code(code) => groups.push(Group::Code(code)),
            Block::Rule => groups.push(Group::Rule),
            Block::Table(rows) if rows.iter().any(|row| !row.is_empty()) => groups.push(Group::Table(rows)),
            Block::Table(_) | Block::Footnote { .. } => {}
        }
    }
    groups
}

struct Writer<'a> {
    plan: Plan,
    notes: Vec<(&'a str, &'a [Span])>,
}

impl Writer<'_> {
    fn group(&mut self, group: &Group<'_>, at: u64, ends_itself: bool) {
        match group {
            Group::Paragraph { spans, heading, is_quote } => {
                let style = match (heading, is_quote) {
                    (0, false) => json!({"namedStyleType": "NORMAL_TEXT"}),
                    (0, true) => {
                        let indent = json!({"magnitude": QUOTE_INDENT, "unit": "PT"});
                        json!({"namedStyleType": "NORMAL_TEXT", "indentStart": indent, "indentFirstLine": indent})
                    }
                    (level, _) => json!({"namedStyleType": format!("HEADING_{level}")}),
                };
                self.paragraphs(&[(0, spans)], at, ends_itself, &style);
            }
            Group::List { is_ordered, items } => {
                let length =
                    self.paragraphs(items, at, ends_itself, &json!({"namedStyleType": "NORMAL_TEXT"}));
                let preset = match is_ordered {
                    true => "NUMBERED_DECIMAL_ALPHA_ROMAN",
                    false => "BULLET_DISC_CIRCLE_SQUARE",
                };
                // This request removes the tabs that are the levels, so it comes last.
                self.push(json!({"createParagraphBullets": {"range": range(at, at + length), "bulletPreset": preset}}));
            }
            Group::Code(code) => {
                let text = code.replace("\r\n", "\n").replace('\n', &LINE_BREAK.to_string());
                let spans = [Span { code: true, ..Span::plain(text) }];
                let grey = json!({"color": {"rgbColor": {"red": 0.95, "green": 0.95, "blue": 0.95}}});
                let style = json!({"namedStyleType": "NORMAL_TEXT", "shading": {"backgroundColor": grey}});
                self.paragraphs(&[(0, &spans)], at, ends_itself, &style);
            }
            Group::Rule => {
                let border = json!({
                    "width": {"magnitude": 1, "unit": "PT"},
                    "padding": {"magnitude": 1, "unit": "PT"},
                    "dashStyle": "SOLID",
                    "color": {"color": {"rgbColor": {"red": 0.6, "green": 0.6, "blue": 0.6}}},
                });
                let style = json!({"namedStyleType": "NORMAL_TEXT", "borderBottom": border});
                self.paragraphs(&[(0, &[])], at, ends_itself, &style);
            }
            Group::Table(rows) => self.table(rows, at),
        }
    }

    /// Inserts paragraphs and returns their length with the last line break.
    fn paragraphs(&mut self, items: &[(u8, &[Span])], at: u64, ends_itself: bool, style: &Value) -> u64 {
        let mut text = String::new();
        let mut styled = Vec::new();
        let mut references = Vec::new();
        for (number, (level, spans)) in items.iter().enumerate() {
            if number > 0 {
                text.push('\n');
            }
            text.push_str(&"\t".repeat(usize::from(*level)));
            for span in *spans {
                let start = at + units(&text);
                if let Some(label) = &span.footnote {
                    references.push((start, label.clone()));
                    continue;
                }
                text.push_str(&if span.code { without_dropped(&span.text) } else { clean(&span.text) });
                styled.push((start, at + units(&text), span));
            }
        }
        if ends_itself {
            text.push('\n');
        }
        let length = units(&text) + u64::from(!ends_itself);
        if !text.is_empty() {
            self.insert(at, &text);
        }
        let all = range(at, at + length);
        self.push(json!({"deleteParagraphBullets": {"range": all}}));
        self.push(json!({"updateParagraphStyle": {"range": all, "paragraphStyle": style, "fields": PARAGRAPH_FIELDS}}));
        self.text_styles(at, at + units(&text), styled);
        for (index, label) in references.into_iter().rev() {
            self.footnote(index, &label);
        }
        length
    }

    fn text_styles(&mut self, start: u64, end: u64, styled: Vec<(u64, u64, &Span)>) {
        if start == end {
            return;
        }
        // Inserted text has the style of its neighbours, so everything is reset first.
        self.push(
            json!({"updateTextStyle": {"range": range(start, end), "textStyle": {}, "fields": TEXT_FIELDS}}),
        );
        for (start, end, span) in styled.into_iter().filter(|(start, end, _)| start < end) {
            let mut style = json!({});
            for (name, is_on) in
                [("bold", span.bold), ("italic", span.italic), ("strikethrough", span.strike)]
            {
                if is_on {
                    style[name] = json!(true);
                }
            }
            if let Some(url) = &span.link {
                style["link"] = json!({"url": url});
            }
            if span.code {
                style["weightedFontFamily"] = json!({"fontFamily": CODE_FONT});
            }
            let fields: Vec<&str> =
                style.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let fields = fields.join(",");
            if !fields.is_empty() {
                let range = range(start, end);
                self.push(json!({"updateTextStyle": {"range": range, "textStyle": style, "fields": fields}}));
            }
        }
    }

    fn footnote(&mut self, at: u64, label: &str) {
        let text = self.notes.iter().find(|(known, _)| *known == label).map(|(_, spans)| spans.to_vec());
        self.plan.footnotes.push((self.plan.requests.len(), text.unwrap_or_default()));
        self.push(json!({"createFootnote": {"location": {"index": at}}}));
    }

    /// Docs puts a line break before a table. Then come the starts of the table, of its first row and of its first cell.
    fn table(&mut self, rows: &[Vec<Vec<Span>>], at: u64) {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        self.push(
            json!({"insertTable": {"rows": rows.len(), "columns": columns, "location": {"index": at}}}),
        );
        // The line break before the table has the style of the paragraph after it.
        let normal = json!({"namedStyleType": "NORMAL_TEXT"});
        self.paragraphs(&[(0, &[])], at, false, &normal);
        let (first, row_length) = (at + 4, columns as u64 * 2 + 1);
        for (row_number, row) in rows.iter().enumerate().rev() {
            for (column, spans) in row.iter().enumerate().rev() {
                let cell = first + row_number as u64 * row_length + column as u64 * 2;
                if !spans.is_empty() {
                    self.paragraphs(&[(0, spans)], cell, false, &normal);
                }
            }
        }
    }

    fn insert(&mut self, at: u64, text: &str) {
        self.push(json!({"insertText": {"location": {"index": at}, "text": text}}));
    }

    fn push(&mut self, request: Value) {
        self.plan.requests.push(request);
    }
}

fn range(start: u64, end: u64) -> Value {
    json!({"startIndex": start, "endIndex": end})
}

fn units(text: &str) -> u64 {
    text.encode_utf16().count() as u64
}

/// Text on one line. Line breaks and tabs would make paragraphs and levels.
fn clean(text: &str) -> String {
    without_dropped(&text.replace(['\t', '\n', '\r'], " "))
}

/// Docs drops these characters, which would shift every index after them.
fn without_dropped(text: &str) -> String {
    let is_kept = |c: &char| {
        matches!(*c, '\t' | LINE_BREAK) || !(c.is_control() || ('\u{e000}'..='\u{f8ff}').contains(c))
    };
    text.chars().filter(is_kept).collect()
}
