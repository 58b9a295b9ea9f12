//! Text and entities of a Telegram message. Nothing has to be escaped, so nothing can break.

use serde::Serialize;

use super::flat::{Layout, Links, Quotes, Tables, flat};
use super::{Style, blocks};

const LAYOUT: Layout = Layout { tables: Tables::Columns, links: Links::Styled, quotes: Quotes::Styled };

/// Telegram ignores further entities.
const MAX_ENTITIES: usize = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) entities: Vec<Entity>,
}

/// A styled part of a text. Offset and length count UTF-16 units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Entity {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) offset: usize,
    pub(crate) length: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) language: Option<String>,
}

/// Renders Markdown.
pub(crate) fn render(markdown: &str) -> Message {
    let rich = flat(&blocks(markdown), LAYOUT);
    let text = rich.text;
    // Code cannot have other styles, and a quote cannot be in a quote.
    let within = |style: fn(&Style) -> bool, range: &std::ops::Range<usize>| {
        rich.spans
            .iter()
            .any(|span| style(&span.style) && span.range.start <= range.start && range.end <= span.range.end)
    };
    let overlaps_code = |range: &std::ops::Range<usize>| {
        rich.spans.iter().any(|span| {
            matches!(span.style, Style::Code | Style::Pre(_))
                && span.range.start < range.end
                && range.start < span.range.end
        })
    };
    let mut quote_end = 0;
    let mut entities = Vec::new();
    let mut position = (0, 0);
    for span in &rich.spans {
        if entities.len() == MAX_ENTITIES {
            break;
        }
        let (kind, url, language) = match &span.style {
            Style::Bold | Style::Italic | Style::Strike if overlaps_code(&span.range) => continue,
            Style::Bold => ("bold", None, None),
            Style::Italic => ("italic", None, None),
            Style::Strike => ("strikethrough", None, None),
            Style::Code if within(|style| matches!(style, Style::Link(_)), &span.range) => continue,
            Style::Code => ("code", None, None),
            Style::Link(url) => ("text_link", Some(url.clone()), None),
            Style::Pre(language) => ("pre", None, (!language.is_empty()).then(|| language.clone())),
            Style::Quote if span.range.start < quote_end => continue,
            Style::Quote => {
                quote_end = span.range.end;
                ("blockquote", None, None)
            }
        };
        // Spans are sorted, so the count goes on from the last start.
        position.1 += text[position.0..span.range.start].encode_utf16().count();
        position.0 = span.range.start;
        let length = text[span.range.clone()].encode_utf16().count();
        entities.push(Entity { kind, offset: position.1, length, url, language });
    }
    Message { text, entities }
}

/// The length of rendered Markdown in UTF-16 units, as Telegram counts it.
pub(crate) fn measure(markdown: &str) -> usize {
    flat(&blocks(markdown), LAYOUT).text.encode_utf16().count()
}
