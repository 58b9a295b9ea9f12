//! [`Block`] is a paragraph, a list item, code, a rule or a table.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Block {
    Paragraph {
        spans: Vec<Span>,
        /// 1 to 6 for a heading, 0 for ordinary text.
        heading: u8,
        is_quote: bool,
    },
    ListItem {
        spans: Vec<Span>,
        /// 0 for the outermost list.
        level: u8,
        is_ordered: bool,
    },
    /// Lines of code.
    Code(String),
    Rule,
    /// Rows of cells. The first row is the header.
    Table(Vec<Vec<Vec<Span>>>),
    /// The text of a footnote, by its label.
    Footnote {
        label: String,
        spans: Vec<Span>,
    },
}

/// A piece of text in one style.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// A line break inside a paragraph is [`super::LINE_BREAK`].
    pub(crate) text: String,
    pub(crate) bold: bool,
    pub(crate) italic: bool,
    pub(crate) strike: bool,
    pub(crate) code: bool,
    pub(crate) link: Option<String>,
    /// The span is a reference to this footnote, and has no text.
    pub(crate) footnote: Option<String>,
}

impl Span {
    pub(crate) fn plain(text: impl Into<String>) -> Span {
        Span { text: text.into(), ..Span::default() }
    }

    /// Whether both are in the same style.
    pub(super) fn continues(&self, other: &Span) -> bool {
        let style = |span: &Span| (span.bold, span.italic, span.strike, span.code, span.link.clone());
        style(self) == style(other) && self.footnote.is_none() && other.footnote.is_none()
    }
}

/// Adds a span, and joins it with the last one if they have the same style.
pub(super) fn push(spans: &mut Vec<Span>, span: Span) {
    if span.text.is_empty() && span.footnote.is_none() {
        return;
    }
    match spans.last_mut() {
        Some(last) if last.continues(&span) => last.text.push_str(&span.text),
        _ => spans.push(span),
    }
}

/// Removes spaces and line breaks at both ends.
pub(super) fn trimmed(mut spans: Vec<Span>) -> Vec<Span> {
    while let Some(first) = spans.first_mut().filter(|span| span.footnote.is_none()) {
        first.text = first.text.trim_start().to_owned();
        if !first.text.is_empty() {
            break;
        }
        spans.remove(0);
    }
    while let Some(last) = spans.last_mut().filter(|span| span.footnote.is_none()) {
        last.text.truncate(last.text.trim_end().len());
        if !last.text.is_empty() {
            break;
        }
        spans.pop();
    }
    spans
}

/// Reports whether a link may be written into a document. Other schemes can run code or read files.
pub(super) fn is_allowed_link(url: &str) -> bool {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https" | "mailto"))
        && !url.chars().any(|c| c.is_control() || c == ' ')
}
