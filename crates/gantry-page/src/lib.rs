//! Readable text from what the web sends. Bytes and strings in, text out: nothing here connects or opens anything.

mod article;
mod decode;
mod html;

pub use article::{Article, article};
pub use decode::decode;
pub use html::html_to_text;

/// A document that cannot be read as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub String);

/// What a body says, whatever its kind: HTML, PDF, text. `content_type` is the header as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readable {
    pub text: String,
    pub title: Option<String>,
}
