//! Says what each element does to the text: bullets, signs, brackets, indentation, blank lines.

use super::element::{self, Kind};
use super::reference::{self, Place};
use super::token::Tag;
use super::walker::{LOOK_BACK, Walker};
use super::writer::{Mark, Marker, longest_run};

/// `State` is what an open element must remember until its end.
#[derive(Debug)]
pub(super) enum State {
    Nothing,
    Heading(Marker),
    /// The number of the next item; `None` for bullets.
    List(Option<i64>),
    Item {
        marker: Marker,
        outside: usize,
    },
    Indented {
        outside: usize,
    },
    /// This element, and not one inside it, is the block.
    Preformatted,
    Bracketed(Mark),
    Table,
}

/// `Preformatted` is a block with significant white space, as it grows.
#[derive(Debug, Default)]
pub(super) struct Preformatted {
    code: String,
    language: String,
    /// Whether something followed the start tag. A line end after that is text.
    begun: bool,
}

impl Preformatted {
    fn push(&mut self, text: &str) {
        let text = if self.begun {
            text
        } else {
            text.strip_prefix("\r\n").or_else(|| text.strip_prefix('\n')).unwrap_or(text)
        };
        self.begun = true;
        if text.contains('\r') {
            self.code.push_str(&text.replace("\r\n", "\n").replace('\r', "\n"));
        } else {
            self.code.push_str(text);
        }
    }

    fn break_line(&mut self) {
        if !self.code.is_empty() && !self.code.ends_with('\n') {
            self.code.push('\n');
        }
    }
}

impl Walker<'_> {
    pub(super) fn text(&mut self, text: &str) {
        match &mut self.preformatted {
            Some(block) => block.push(text),
            None => self.writer.words(text),
        }
    }

    pub(super) fn break_line(&mut self, breaks: usize) {
        match &mut self.preformatted {
            Some(block) => block.break_line(),
            None => self.writer.break_line(breaks),
        }
    }

    pub(super) fn new_line(&mut self) {
        match &mut self.preformatted {
            Some(block) => block.push("\n"),
            None => self.writer.new_line(),
        }
    }

    pub(super) fn void(&mut self, kind: Kind, tag: &Tag<'_>) {
        match kind {
            Kind::Break => self.new_line(),
            Kind::Rule => {
                self.break_line(2);
                self.text("---");
                self.break_line(2);
            }
            Kind::Image if self.preformatted.is_none() => {
                let alt = reference::resolve(tag.attributes.alt.unwrap_or_default(), Place::Attribute);
                let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
                if !alt.is_empty() {
                    self.writer.word(&format!("![{alt}]"));
                }
            }
            // Of form controls, only a checked one is shown.
            Kind::Control if self.preformatted.is_none() => {
                let is_choice =
                    |kind: &str| ["checkbox", "radio"].iter().any(|known| kind.eq_ignore_ascii_case(known));
                if tag.attributes.r#type.is_some_and(is_choice) {
                    self.writer.word(if tag.attributes.checked.is_some() { "[x]" } else { "[ ]" });
                }
            }
            Kind::Base => self.links.set_base(tag.attributes.href.unwrap_or_default()),
            _ => {}
        }
    }

    pub(super) fn formula(&mut self, tag: &Tag<'_>) {
        let says = reference::resolve(tag.attributes.alt.unwrap_or_default(), Place::Attribute);
        let says = says.split_whitespace().collect::<Vec<_>>().join(" ");
        if !says.is_empty() {
            self.text(&format!("${says}$"));
        }
    }

    /// Begins an element that is shown.
    pub(super) fn begin(&mut self, kind: Kind, tag: &Tag<'_>) -> State {
        if let Some(block) = &mut self.preformatted {
            block.begun = true;
            if kind == Kind::Code {
                block.name_language(tag);
            } else if !kind.is_inline() {
                block.break_line();
            }
            return State::Nothing;
        }
        match kind {
            Kind::Block | Kind::Option | Kind::Term | Kind::RowGroup => self.writer.break_line(1),
            Kind::Section | Kind::Paragraph => self.writer.break_line(2),
            Kind::Heading(level) => {
                self.tables.holds_blocks();
                self.writer.break_line(2);
                let marker = self.writer.marker(&format!("{} ", "#".repeat(level.into())));
                self.writer.set_one_line(true);
                return State::Heading(marker);
            }
            Kind::List { ordered } => {
                let nested = self.open.iter().rev().take(LOOK_BACK).any(|open| open.kind == Kind::Item);
                self.writer.break_line(if nested { 1 } else { 2 });
                return State::List(ordered.then(|| number(tag.attributes.start).unwrap_or(1)));
            }
            Kind::Item => return self.begin_item(tag),
            Kind::Definition => {
                self.writer.break_line(1);
                return State::Indented { outside: self.writer.indent("  ") };
            }
            Kind::Quote => {
                self.tables.holds_blocks();
                self.writer.break_line(2);
                return State::Indented { outside: self.writer.indent("> ") };
            }
            Kind::Preformatted => {
                self.tables.holds_blocks();
                let mut block = Preformatted::default();
                block.name_language(tag);
                self.preformatted = Some(block);
                return State::Preformatted;
            }
            Kind::Table => {
                self.writer.break_line(2);
                self.writer.drop_marks();
                let presentation = tag.attributes.role.is_some_and(|role| {
                    ["presentation", "none"].iter().any(|known| role.eq_ignore_ascii_case(known))
                });
                self.tables.open(presentation);
                return State::Table;
            }
            Kind::Row => {
                self.writer.break_line(1);
                self.tables.row();
            }
            Kind::Cell { header } => {
                let span = number(tag.attributes.colspan).unwrap_or(1);
                self.tables.cell(&mut self.writer, header, span);
            }
            Kind::Link => {
                self.link = self.links.target(tag.attributes.href.unwrap_or_default());
                if self.link.is_some() {
                    self.writer.open(Mark::Link);
                    return State::Bracketed(Mark::Link);
                }
            }
            Kind::Code => return self.bracket(Mark::Code),
            Kind::Superscript => return self.bracket(Mark::Superscript),
            Kind::Struck => return self.bracket(Mark::Struck),
            Kind::Citation => self.writer.word("\""),
            _ => {}
        }
        State::Nothing
    }

    /// Allows one pair of brackets of a kind at a time. Nested ones belong to the outermost.
    fn bracket(&mut self, mark: Mark) -> State {
        if self.writer.is_open(mark) {
            return State::Nothing;
        }
        self.writer.open(mark);
        State::Bracketed(mark)
    }

    fn begin_item(&mut self, tag: &Tag<'_>) -> State {
        self.writer.break_line(1);
        let list = self.open.iter_mut().rev().take(LOOK_BACK).find_map(|open| match &mut open.state {
            State::List(next) => Some(next),
            _ => None,
        });
        let sign = match list {
            Some(Some(next)) => {
                let own = number(tag.attributes.value).unwrap_or(*next);
                *next = own.saturating_add(1);
                format!("{own}. ")
            }
            _ => "- ".to_owned(),
        };
        let marker = self.writer.marker(&sign);
        let outside = self.writer.indent(&" ".repeat(sign.len()));
        State::Item { marker, outside }
    }

    /// Ends an element that was shown.
    pub(super) fn end_shape(&mut self, kind: Kind, state: State) {
        match state {
            State::Nothing => match kind {
                Kind::Section | Kind::Paragraph => self.break_line(2),
                Kind::Citation if self.preformatted.is_none() => self.writer.closing_sign("\""),
                Kind::Cell { .. } if self.preformatted.is_none() => {
                    self.tables.end_cell(&self.writer);
                    self.break_line(1);
                }
                Kind::Title => {}
                kind if !kind.is_inline() || kind == Kind::Option => self.break_line(1),
                _ => {}
            },
            State::Heading(marker) => {
                self.writer.set_one_line(false);
                self.writer.end_marker(marker);
                self.writer.break_line(2);
            }
            State::List(_) => {
                let nested = self.open.iter().rev().take(LOOK_BACK).any(|open| open.kind == Kind::Item);
                self.writer.break_line(if nested { 1 } else { 2 });
            }
            State::Item { marker, outside } => {
                self.writer.outdent(outside);
                self.writer.end_marker(marker);
                self.writer.break_line(1);
            }
            State::Indented { outside } => {
                self.writer.break_line(if kind == Kind::Quote { 2 } else { 1 });
                self.writer.outdent(outside);
            }
            State::Preformatted => {
                let Preformatted { code, language, .. } = self.preformatted.take().unwrap_or_default();
                if !code.trim().is_empty() {
                    self.writer.code_block(&language, &code);
                }
            }
            State::Bracketed(mark) => self.end_brackets(mark),
            State::Table => {
                self.writer.drop_marks();
                self.tables.close(&mut self.writer);
                self.writer.break_line(2);
            }
        }
    }

    fn end_brackets(&mut self, mark: Mark) {
        let inside = self.writer.inside(mark).unwrap_or_default();
        let lines = inside.contains('\n');
        let (before, after) = match mark {
            Mark::Link => match self.link.take() {
                Some(target) if lines => (String::new(), format!(" <{target}>")),
                Some(target) if inside != target => ("[".to_owned(), format!("]({target})")),
                _ => Default::default(),
            },
            Mark::Code if !lines => {
                let ticks = "`".repeat(longest_run(inside, '`') + 1);
                let pad = if inside.starts_with('`') || inside.ends_with('`') { " " } else { "" };
                (format!("{ticks}{pad}"), format!("{pad}{ticks}"))
            }
            Mark::Superscript if is_power(self.writer.before(mark), inside) => {
                ("^".to_owned(), String::new())
            }
            Mark::Struck if !lines => ("~~".to_owned(), "~~".to_owned()),
            Mark::Code | Mark::Superscript | Mark::Struck => Default::default(),
        };
        self.writer.close(mark, &before, &after);
    }
}

impl Preformatted {
    fn name_language(&mut self, tag: &Tag<'_>) {
        if let Some(language) = tag.attributes.class.and_then(element::code_language) {
            language.clone_into(&mut self.language);
        }
    }
}

/// Reports whether raised text changes the meaning: 10⁶ must not become 106, while 1st stays 1st.
fn is_power(before: Option<char>, raised: &str) -> bool {
    const LONGEST: usize = 16;
    before.is_some_and(|before| before.is_alphanumeric() || before == ')')
        && (1..=LONGEST).contains(&raised.len())
        && raised.chars().all(|raised| raised.is_alphanumeric() || "+-−".contains(raised))
        && !["st", "nd", "rd", "th", "er", "e", "o", "a", "TM", "SM"].contains(&raised)
}

fn number(attribute: Option<&str>) -> Option<i64> {
    attribute?.trim().parse().ok()
}
