//! Tracks open elements: start tags that implicitly end others, end tags that are missing, stray or
//! crossed, and hidden elements.

use url::Url;

use super::element::{self, Content, Kind};
use super::link::Links;
use super::reference::{self, Place};
use super::shape::{Preformatted, State};
use super::table::Tables;
use super::token::{Tag, Token, Tokenizer};
use super::writer::Writer;
use super::{Page, Scripts};

pub(super) struct Walker<'a> {
    pub(super) writer: Writer,
    pub(super) links: Links,
    pub(super) tables: Tables,
    pub(super) preformatted: Option<Preformatted>,
    /// The target of the open link.
    pub(super) link: Option<String>,
    pub(super) open: Vec<Open<'a>>,
    /// The index in `open` of the outermost hidden element.
    unseen_from: Option<usize>,
    /// The index in `open` of the SVG or formula whose content follows its own rules.
    foreign_from: Option<usize>,
    /// How many of `open` are paragraphs.
    paragraphs: usize,
    title: Option<String>,
    scripts: Scripts,
}

pub(super) struct Open<'a> {
    name: &'a str,
    pub(super) kind: Kind,
    pub(super) state: State,
}

/// How far a tag looks for what it ends. The bound keeps the cost of stray tags in deep nesting
/// proportional to their number.
pub(super) const LOOK_BACK: usize = 256;

impl<'a> Walker<'a> {
    pub(super) fn new(base: Option<&Url>, length: usize, scripts: Scripts) -> Self {
        Walker {
            writer: Writer::new(),
            links: Links::new(base, length),
            tables: Tables::default(),
            preformatted: None,
            link: None,
            open: Vec::new(),
            unseen_from: None,
            foreign_from: None,
            paragraphs: 0,
            title: None,
            scripts,
        }
    }

    pub(super) fn token(&mut self, token: Token<'a>, tokens: &mut Tokenizer<'a>) {
        match token {
            Token::Text(text) if self.seen() => {
                let text = reference::resolve(text, Place::Text);
                self.text(&text);
            }
            Token::Text(_) => {}
            Token::Start(tag) => self.start(&tag, tokens),
            Token::End(name) => self.end(name),
        }
    }

    pub(super) fn finish(mut self) -> Page {
        self.close_to(0);
        Page { title: self.title.filter(|title| !title.is_empty()), text: self.writer.finish() }
    }

    fn seen(&self) -> bool {
        self.unseen_from.is_none()
    }

    fn start(&mut self, tag: &Tag<'a>, tokens: &mut Tokenizer<'a>) {
        let (kind, content) = element::element(tag.name);
        if self.foreign_from.is_some() && !self.leaves_foreign(kind, tag.name) {
            if !tag.self_closing {
                self.push(tag.name, Kind::Inline, State::Nothing);
            }
            return;
        }
        self.close_implied(kind);
        let kind = match kind {
            Kind::Unseen if self.scripts == Scripts::Off && tag.name.eq_ignore_ascii_case("noscript") => {
                Kind::Block
            }
            // A formula without a description is shown as it is.
            Kind::Foreign if tag.attributes.alt.is_none() && tag.name.eq_ignore_ascii_case("math") => {
                Kind::Inline
            }
            kind => kind,
        };
        let whole_page = ["html", "body"].iter().any(|name| tag.name.eq_ignore_ascii_case(name));
        let hidden = kind == Kind::Unseen || (!whole_page && element::is_hidden(tag, kind));
        if kind == Kind::Foreign {
            return self.start_foreign(tag, hidden);
        }
        if matches!(kind, Kind::Break | Kind::Rule | Kind::Image | Kind::Control | Kind::Base | Kind::Void) {
            if self.seen() && !hidden {
                self.void(kind, tag);
            }
            return;
        }
        if hidden {
            self.unseen_from.get_or_insert(self.open.len());
        }
        let state = if self.seen() { self.begin(kind, tag) } else { State::Nothing };
        self.push(tag.name, kind, state);
        match content {
            Content::Markup => {}
            Content::Escapable => {
                let text = reference::resolve(tokens.raw_text(tag.name), Place::Text);
                self.held(kind, &text);
            }
            Content::Raw => {
                let text = tokens.raw_text(tag.name);
                self.held(kind, text);
            }
            Content::Plain => self.held(kind, tokens.rest()),
        }
    }

    /// Writes the text of an element that contains only text.
    fn held(&mut self, kind: Kind, text: &str) {
        if kind == Kind::Title {
            self.title.get_or_insert_with(|| text.split_whitespace().collect::<Vec<_>>().join(" "));
        } else if self.seen() {
            self.text(text);
        }
    }

    /// A drawing is skipped; a formula is shown by its description.
    fn start_foreign(&mut self, tag: &Tag<'a>, hidden: bool) {
        if self.seen() && !hidden && tag.name.eq_ignore_ascii_case("math") {
            self.formula(tag);
        }
        if !tag.self_closing {
            self.unseen_from.get_or_insert(self.open.len());
            self.foreign_from = Some(self.open.len());
            self.push(tag.name, Kind::Foreign, State::Nothing);
        }
    }

    /// Ends an SVG or formula if a start tag of HTML shows that it was left open.
    fn leaves_foreign(&mut self, kind: Kind, name: &str) -> bool {
        const HOLD_HTML: [&str; 9] =
            ["foreignobject", "desc", "title", "annotation-xml", "mi", "mo", "mn", "ms", "mtext"];
        let Some(from) = self.foreign_from else { return true };
        if !element::breaks_out(kind, name) {
            return false;
        }
        let mut inside = self.open[from..].iter().rev().take(LOOK_BACK);
        if inside.any(|open| HOLD_HTML.iter().any(|name| open.name.eq_ignore_ascii_case(name))) {
            return false;
        }
        self.close_to(from);
        true
    }

    fn push(&mut self, name: &'a str, kind: Kind, state: State) {
        self.paragraphs += usize::from(kind == Kind::Paragraph);
        self.open.push(Open { name, kind, state });
    }

    /// Ends what the start tag of such an element ends implicitly.
    fn close_implied(&mut self, kind: Kind) {
        if self.paragraphs > 0 && kind.ends_paragraph() {
            self.close_nearest(|open| open == Kind::Paragraph, is_table_part);
        }
        match kind {
            Kind::Item => self.close_nearest(
                |open| open == Kind::Item,
                |open| is_table_part(open) || matches!(open, Kind::List { .. } | Kind::Section | Kind::Quote),
            ),
            Kind::Term | Kind::Definition => self.close_nearest(
                |open| matches!(open, Kind::Term | Kind::Definition),
                |open| is_table_part(open) || matches!(open, Kind::List { .. } | Kind::Section | Kind::Quote),
            ),
            Kind::Cell { .. } => {
                self.close_nearest(|open| matches!(open, Kind::Cell { .. }), |open| open == Kind::Table);
            }
            Kind::Row => {
                self.close_nearest(|open| matches!(open, Kind::Cell { .. }), |open| open == Kind::Table);
                self.close_nearest(|open| open == Kind::Row, |open| open == Kind::Table);
            }
            Kind::RowGroup => {
                self.close_nearest(|open| matches!(open, Kind::Cell { .. }), |open| open == Kind::Table);
                self.close_nearest(|open| open == Kind::Row, |open| open == Kind::Table);
                self.close_nearest(|open| open == Kind::RowGroup, |open| open == Kind::Table);
            }
            Kind::Link => {
                let found = self.nearest(|open| open == Kind::Link, is_table_part);
                if let Some(at) = found {
                    self.close_one(at);
                }
            }
            Kind::Heading(_) | Kind::Option => {
                let same =
                    |open: &Open<'_>| std::mem::discriminant(&open.kind) == std::mem::discriminant(&kind);
                if self.open.last().is_some_and(same) {
                    self.close_to(self.open.len() - 1);
                }
            }
            _ => {}
        }
    }

    fn nearest(&self, wanted: impl Fn(Kind) -> bool, stop: impl Fn(Kind) -> bool) -> Option<usize> {
        for (at, open) in self.open.iter().enumerate().rev().take(LOOK_BACK) {
            if wanted(open.kind) {
                return Some(at);
            }
            if stop(open.kind) || self.is_template(open) {
                return None;
            }
        }
        None
    }

    fn close_nearest(&mut self, wanted: impl Fn(Kind) -> bool, stop: impl Fn(Kind) -> bool) {
        if let Some(at) = self.nearest(wanted, stop) {
            self.close_to(at);
        }
    }

    fn is_template(&self, open: &Open<'_>) -> bool {
        open.kind == Kind::Unseen && open.name.eq_ignore_ascii_case("template")
    }

    fn end(&mut self, name: &'a str) {
        if ["html", "body"].iter().any(|known| name.eq_ignore_ascii_case(known)) {
            return;
        }
        let (kind, _) = element::element(name);
        if self.foreign_from.is_none() && self.seen() {
            match kind {
                Kind::Break => return self.new_line(),
                Kind::Paragraph if self.paragraphs == 0 => return self.break_line(2),
                _ => {}
            }
        }
        let of_table = matches!(kind, Kind::Table | Kind::RowGroup | Kind::Row | Kind::Cell { .. });
        let mut blocks_inside = false;
        for (at, open) in self.open.iter().enumerate().rev().take(LOOK_BACK) {
            let heading = matches!((open.kind, kind), (Kind::Heading(_), Kind::Heading(_)));
            if heading || open.name.eq_ignore_ascii_case(name) {
                if !blocks_inside || !kind.is_inline() {
                    self.close_to(at);
                } else if kind.is_formatting() {
                    // The blocks stay open. A span around them would not end either.
                    self.close_one(at);
                }
                return;
            }
            let boundary = match open.kind {
                Kind::Table => true,
                Kind::Cell { .. } => !of_table,
                Kind::List { .. } => kind == Kind::Item,
                _ => self.is_template(open),
            };
            if boundary {
                return;
            }
            blocks_inside |= !open.kind.is_inline();
        }
    }

    /// Ends everything that is open from `at` on.
    fn close_to(&mut self, at: usize) {
        while self.open.len() > at {
            let Some(closed) = self.open.pop() else { return };
            self.closed(self.open.len(), closed);
        }
    }

    /// Ends one element and leaves the others open.
    fn close_one(&mut self, at: usize) {
        // A hidden element may contain more to hide, so it ends with its surroundings.
        if self.unseen_from == Some(at) {
            return;
        }
        let closed = self.open.remove(at);
        self.closed(at, closed);
        for from in [&mut self.unseen_from, &mut self.foreign_from].into_iter().flatten() {
            *from -= usize::from(*from > at);
        }
    }

    fn closed(&mut self, at: usize, closed: Open<'a>) {
        self.paragraphs -= usize::from(closed.kind == Kind::Paragraph);
        if self.unseen_from.is_none_or(|from| at < from) {
            self.end_shape(closed.kind, closed.state);
        }
        for from in [&mut self.unseen_from, &mut self.foreign_from] {
            from.take_if(|from| *from == at);
        }
    }
}

fn is_table_part(kind: Kind) -> bool {
    matches!(kind, Kind::Table | Kind::Cell { .. })
}
