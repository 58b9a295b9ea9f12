//! Finds the main content of a page, with the readability algorithm.

use dom_smoothie::{Config, Readability};
use url::Url;

use crate::html::{html_to_text, is_bounded};

/// `Article` is the main content of a page, without its surroundings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Article {
    pub title: String,
    pub byline: Option<String>,
    /// Readable text, in the form of [`html_to_text`].
    pub text: String,
    /// The number of words in `text`.
    pub words: usize,
}

/// A page with more elements is read whole instead.
const MAX_ELEMENTS: usize = 100_000;

/// Returns the main content; `None` for a page without one, such as a front page, and for a page
/// that is built to be costly.
pub fn article(html: &str, base: Option<&Url>) -> Option<Article> {
    if !is_bounded(html) {
        return None;
    }
    let config = Config { max_elements_to_parse: MAX_ELEMENTS, ..Config::default() };
    let found = Readability::new(html, base.map(Url::as_str), Some(config)).ok()?.parse().ok()?;
    let text = html_to_text(&found.content, base);
    if text.is_empty() {
        return None;
    }
    let words = text.split_whitespace().count();
    Some(Article { title: found.title, byline: found.byline, text, words })
}
