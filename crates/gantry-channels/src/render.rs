//! Markdown as chat services show it: [`blocks`] parses it, [`split`] cuts it into messages, and one module for each kind of
//! service renders it. No renderer passes Markdown of the model on unread, so markup cannot break or change the text.

pub(crate) mod discord;
mod flat;
pub(crate) mod html;
mod markdown;
mod parse;
pub(crate) mod plain;
mod split;
pub(crate) mod telegram;
#[cfg(test)]
mod tests;
pub(crate) mod whatsapp;

use std::ops::Range;

pub(crate) use parse::blocks;
pub(crate) use split::split;

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Block {
    Paragraph(Rich),
    Heading {
        /// 1 to 6.
        level: u8,
        text: Rich,
    },
    Code {
        /// The first word of the info string, if it is a plain name.
        language: String,
        text: String,
    },
    Quote(Vec<Block>),
    List {
        /// The number of the first item of a numbered list.
        start: Option<u64>,
        items: Vec<Vec<Block>>,
    },
    Table {
        header: Vec<Rich>,
        rows: Vec<Vec<Rich>>,
    },
    Rule,
}

/// A text with styles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rich {
    pub(crate) text: String,
    /// Sorted by start, longest first, and nested properly.
    pub(crate) spans: Vec<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// In bytes.
    pub(crate) range: Range<usize>,
    pub(crate) style: Style,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Italic,
    Strike,
    Code,
    /// A link to this URL.
    Link(String),
    /// A block of code in this language.
    Pre(String),
    Quote,
}

impl Rich {
    pub(crate) fn plain(text: impl Into<String>) -> Rich {
        Rich { text: text.into(), spans: Vec::new() }
    }

    /// Returns a part of the text with the styles that apply to it.
    fn slice(&self, part: Range<usize>) -> Rich {
        let spans = self.spans.iter().filter_map(|span| {
            let start = span.range.start.max(part.start);
            let end = span.range.end.min(part.end);
            (start < end)
                .then(|| Span { range: start - part.start..end - part.start, style: span.style.clone() })
        });
        Rich { spans: spans.collect(), text: self.text[part].to_owned() }
    }

    /// Returns the text without white space at its ends.
    fn trimmed(&self) -> Rich {
        let start = self.text.len() - self.text.trim_start().len();
        let end = start + self.text.trim().len();
        self.slice(start..end)
    }

    fn push(&mut self, other: &Rich) {
        let offset = self.text.len();
        self.text.push_str(&other.text);
        self.spans.extend(other.spans.iter().map(|span| Span {
            range: span.range.start + offset..span.range.end + offset,
            style: span.style.clone(),
        }));
    }

    /// Styles everything after `start`.
    fn style_from(&mut self, start: usize, style: Style) {
        if start < self.text.len() {
            self.spans.push(Span { range: start..self.text.len(), style });
        }
    }

    fn sort(&mut self) {
        self.spans.sort_by_key(|span| (span.range.start, usize::MAX - span.range.end));
    }
}

/// The URL of a link, if clients open it as one.
fn is_web_link(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once(':') else { return false };
    let known = ["http", "https", "mailto", "tel"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    known && !rest.is_empty() && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Whether a link shows its own address already.
fn shows_itself(text: &str, url: &str) -> bool {
    let bare = |url: &str| {
        let url = url.trim_end_matches('/');
        ["https://", "http://", "mailto:", "tel:"]
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme))
            .unwrap_or(url)
            .to_owned()
    };
    bare(text.trim()) == bare(url)
}
