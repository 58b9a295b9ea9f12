//! Decides whether a page can be parsed into a tree at a cost that grows linearly with its length.
//!
//! Some pages cannot: each start tag searches all open elements, formatting that is never closed is
//! opened again in every paragraph, and attributes are compared with each other.

use super::element::{self, Content, Kind};
use super::token::{Token, Tokenizer};

const MAX_DEPTH: usize = 400;
const MAX_OPEN_FORMATTING: usize = 200;
const MAX_ATTRIBUTES: usize = 200;

pub(crate) fn is_bounded(html: &str) -> bool {
    let mut tokens = Tokenizer::new(html);
    let mut open: Vec<&str> = Vec::new();
    let mut formatting = 0usize;
    while let Some(token) = tokens.next() {
        match token {
            Token::Text(_) => {}
            Token::End(name) => {
                if let Some(at) = open.iter().rposition(|open| open.eq_ignore_ascii_case(name)) {
                    open.truncate(at);
                }
                let (kind, _) = element::element(name);
                formatting -= usize::from(kind.is_formatting() && formatting > 0);
            }
            Token::Start(tag) => {
                let (kind, content) = element::element(tag.name);
                match content {
                    Content::Markup => {}
                    Content::Escapable | Content::Raw => drop(tokens.raw_text(tag.name)),
                    Content::Plain => drop(tokens.rest()),
                }
                if tag.attributes.count > MAX_ATTRIBUTES {
                    return false;
                }
                if holds(kind) && !tag.self_closing {
                    open.push(tag.name);
                }
                formatting += usize::from(kind.is_formatting());
            }
        }
        if open.len() > MAX_DEPTH || formatting > MAX_OPEN_FORMATTING {
            return false;
        }
    }
    true
}

/// Reports whether the element stays open until something ends it. Items, cells and similar
/// elements end where the next one begins.
fn holds(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Void
            | Kind::Break
            | Kind::Rule
            | Kind::Image
            | Kind::Control
            | Kind::Base
            | Kind::Paragraph
            | Kind::Item
            | Kind::Term
            | Kind::Definition
            | Kind::Row
            | Kind::Cell { .. }
            | Kind::Option
    )
}
