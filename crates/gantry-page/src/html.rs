//! HTML as readable text, Markdown in its looks: one pass over the tags, with a stack of what is open and no tree. Headings, lists,
//! links, tables, code and quotes keep their form; what a reader would not see is left out.

mod element;
mod link;
mod reference;
mod shape;
mod table;
mod token;
mod walker;
mod weight;
mod writer;

use url::Url;

use token::Tokenizer;
use walker::Walker;

pub(crate) use weight::is_bounded;

/// The text of a page as a reader would see it. Links are made absolute with `base` and the page's own `<base>`.
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

/// Whether `<noscript>` is left out or shown.
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
