//! Readable text from what the web sends. Bytes and strings in, text out: nothing here connects or opens anything.

/// The main content of a page, without what surrounds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Article {
    pub title: String,
    pub byline: Option<String>,
    /// Readable text, in the form of [`html_to_text`].
    pub text: String,
    /// Of `text`.
    pub words: usize,
}

/// A document that cannot be read as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub String);

/// What a body says, whatever its kind: HTML, PDF, text. `content_type` is the header as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readable {
    pub text: String,
    pub title: Option<String>,
}
