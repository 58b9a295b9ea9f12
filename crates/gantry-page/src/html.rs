//! Converts HTML to readable text in the style of Markdown. It makes one pass over the tags, with a
//! stack of open elements and without a tree.
//!
//! Headings, lists, links, tables, code and quotes keep their form. Content that a reader would not
//! see is left out.

mod element;
mod link;
mod reference;
mod shape;
mod table;
mod token;
mod tree_cost;
mod walker;
mod writer;

use url::Url;

use token::Tokenizer;
use walker::Walker;

pub(crate) use tree_cost::is_bounded;

/// Returns the text of a page as a reader would see it. Links become absolute with `base` and the
/// page's own `<base>`.
pub fn html_to_text(html: &str, base: Option<&Url>) -> String {
    page(html, base).text
}

#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) title: Option<String>,
    pub(crate) text: String,
}

pub(crate) fn page(html: &str, base: Option<&Url>) -> Page {
    let page = walk(html, base, Scripts::Assumed);
    // A page that shows nothing without scripts says so in its `<noscript>`.
    if page.text.is_empty() && memchr::memmem::find(html.as_bytes(), b"noscript").is_some() {
        return Page { title: page.title, ..walk(html, base, Scripts::Off) };
    }
    page
}

/// `Scripts` says whether `<noscript>` is left out or shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scripts {
    Assumed,
    Off,
}

fn walk(html: &str, base: Option<&Url>, scripts: Scripts) -> Page {
    let mut walker = Walker::new(base, html.len(), scripts);
    let mut tokens = Tokenizer::new(html);
    while let Some(token) = tokens.next() {
        walker.token(token, &mut tokens);
    }
    walker.finish()
}

#[cfg(test)]
mod tests;
