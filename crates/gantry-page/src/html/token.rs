//! Splits HTML into tags and text, by the rules of the HTML standard's tokenizer, in one pass and
//! without copies.
//!
//! It is made for text: comments and doctypes produce nothing, and only attributes that affect what
//! a reader sees are kept.

use memchr::{memchr, memchr2, memmem};

#[derive(Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives for one step on the stack; a box for each tag would cost more"
)]
pub(super) enum Token<'a> {
    /// The text as written, with its character references.
    Text(&'a str),
    Start(Tag<'a>),
    End(&'a str),
}

/// `Tag` has its name as written, in any case.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tag<'a> {
    pub(super) name: &'a str,
    pub(super) self_closing: bool,
    pub(super) attributes: Attributes<'a>,
}

/// `Attributes` holds raw values, with their character references. If an attribute is repeated, the
/// first counts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Attributes<'a> {
    pub(super) href: Option<&'a str>,
    pub(super) alt: Option<&'a str>,
    pub(super) class: Option<&'a str>,
    pub(super) style: Option<&'a str>,
    pub(super) hidden: Option<&'a str>,
    pub(super) aria_hidden: Option<&'a str>,
    pub(super) role: Option<&'a str>,
    pub(super) open: Option<&'a str>,
    pub(super) start: Option<&'a str>,
    pub(super) value: Option<&'a str>,
    pub(super) colspan: Option<&'a str>,
    pub(super) r#type: Option<&'a str>,
    pub(super) checked: Option<&'a str>,
    /// The number of all attributes, known or not.
    pub(super) count: usize,
}

pub(super) struct Tokenizer<'a> {
    html: &'a str,
    at: usize,
}

impl<'a> Tokenizer<'a> {
    pub(super) fn new(html: &'a str) -> Self {
        Tokenizer { html, at: 0 }
    }

    /// Returns the content of an element without markup, up to its end tag, which is left for
    /// [`Iterator::next`].
    pub(super) fn raw_text(&mut self, name: &str) -> &'a str {
        let rest = &self.html[self.at..];
        let length = if name.eq_ignore_ascii_case("script") { script_end(rest) } else { raw_end(rest, name) };
        self.at += length;
        &rest[..length]
    }

    /// Returns everything that is left, for an element that has no end.
    pub(super) fn rest(&mut self) -> &'a str {
        let rest = &self.html[self.at..];
        self.at = self.html.len();
        rest
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.html.as_bytes().get(self.at + ahead).copied()
    }

    /// Reads what begins with the `<` at `self.at`. Returns `None` for a comment or similar.
    fn markup(&mut self) -> Option<Token<'a>> {
        match (self.byte(1), self.byte(2)) {
            (Some(first), _) if first.is_ascii_alphabetic() => {
                self.at += 1;
                self.tag().map(Token::Start)
            }
            (Some(b'/'), Some(first)) if first.is_ascii_alphabetic() => {
                self.at += 2;
                self.tag().map(|tag| Token::End(tag.name))
            }
            (Some(b'!'), Some(b'-')) if self.byte(3) == Some(b'-') => {
                self.at += comment_length(&self.html[self.at..]);
                None
            }
            (Some(b'!' | b'?'), _) | (Some(b'/'), Some(_)) => {
                let rest = &self.html.as_bytes()[self.at..];
                self.at += memchr(b'>', rest).map_or(rest.len(), |end| end + 1);
                None
            }
            _ => {
                self.at += 1;
                Some(Token::Text("<"))
            }
        }
    }

    /// Reads a tag from its name on. A tag that the end of the document cuts off is ignored.
    fn tag(&mut self) -> Option<Tag<'a>> {
        let name = self.until(|byte| byte.is_ascii_whitespace() || byte == b'/' || byte == b'>');
        let mut tag = Tag { name, ..Tag::default() };
        loop {
            self.until(|byte| !byte.is_ascii_whitespace());
            match self.byte(0)? {
                b'>' => {
                    self.at += 1;
                    return Some(tag);
                }
                b'/' => {
                    self.at += 1;
                    tag.self_closing = self.byte(0)? == b'>';
                }
                _ => {
                    let (name, value) = self.attribute();
                    tag.attributes.count += 1;
                    tag.attributes.keep(name, value);
                }
            }
        }
    }

    fn attribute(&mut self) -> (&'a str, &'a str) {
        let from = self.at;
        // An equals sign at the very beginning belongs to the name.
        self.at += 1;
        while self.byte(0).is_some_and(|byte| !byte.is_ascii_whitespace() && !b"/>=".contains(&byte)) {
            self.at += 1;
        }
        let name = &self.html[from..self.at];
        self.until(|byte| !byte.is_ascii_whitespace());
        if self.byte(0) != Some(b'=') {
            return (name, "");
        }
        self.at += 1;
        self.until(|byte| !byte.is_ascii_whitespace());
        let value = match self.byte(0) {
            Some(quote @ (b'"' | b'\'')) => {
                self.at += 1;
                let rest = &self.html[self.at..];
                let length = memchr(quote, rest.as_bytes()).unwrap_or(rest.len());
                self.at = (self.at + length + 1).min(self.html.len());
                &rest[..length]
            }
            _ => self.until(|byte| byte.is_ascii_whitespace() || byte == b'>'),
        };
        (name, value)
    }

    /// Advances to the first byte for which `stop` is true, which is ASCII.
    fn until(&mut self, stop: impl Fn(u8) -> bool) -> &'a str {
        let rest = &self.html[self.at..];
        let length = rest.bytes().position(|byte| byte.is_ascii() && stop(byte)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }
}

impl<'a> Iterator for Tokenizer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        while self.at < self.html.len() {
            let rest = &self.html[self.at..];
            match memchr(b'<', rest.as_bytes()) {
                Some(0) => {
                    if let Some(token) = self.markup() {
                        return Some(token);
                    }
                }
                found => {
                    let length = found.unwrap_or(rest.len());
                    self.at += length;
                    return Some(Token::Text(&rest[..length]));
                }
            }
        }
        None
    }
}

impl<'a> Attributes<'a> {
    fn keep(&mut self, name: &str, value: &'a str) {
        let slot = match name.len() {
            3 if name.eq_ignore_ascii_case("alt") => &mut self.alt,
            4 if name.eq_ignore_ascii_case("href") => &mut self.href,
            4 if name.eq_ignore_ascii_case("role") => &mut self.role,
            4 if name.eq_ignore_ascii_case("open") => &mut self.open,
            4 if name.eq_ignore_ascii_case("type") => &mut self.r#type,
            5 if name.eq_ignore_ascii_case("class") => &mut self.class,
            5 if name.eq_ignore_ascii_case("style") => &mut self.style,
            5 if name.eq_ignore_ascii_case("start") => &mut self.start,
            5 if name.eq_ignore_ascii_case("value") => &mut self.value,
            6 if name.eq_ignore_ascii_case("hidden") => &mut self.hidden,
            7 if name.eq_ignore_ascii_case("checked") => &mut self.checked,
            7 if name.eq_ignore_ascii_case("colspan") => &mut self.colspan,
            // A formula has this instead of `alt`.
            7 if name.eq_ignore_ascii_case("alttext") => &mut self.alt,
            11 if name.eq_ignore_ascii_case("aria-hidden") => &mut self.aria_hidden,
            _ => return,
        };
        slot.get_or_insert(value);
    }
}

/// Returns the length of a comment, from its `<!--` on.
fn comment_length(text: &str) -> usize {
    const OPENING: usize = 4;
    let inside = &text[OPENING..];
    if let Some(closing) = [">", "->"].iter().find(|closing| inside.starts_with(**closing)) {
        return OPENING + closing.len();
    }
    let bytes = inside.as_bytes();
    let mut at = 0;
    while let Some(found) = memmem::find(&bytes[at..], b"--") {
        at += found;
        at += bytes[at..].iter().take_while(|byte| **byte == b'-').count();
        match bytes[at..] {
            [b'>', ..] => return OPENING + at + 1,
            [b'!', b'>', ..] => return OPENING + at + 2,
            _ => {}
        }
    }
    text.len()
}

/// Returns where the end tag of `name` begins.
fn raw_end(text: &str, name: &str) -> usize {
    let bytes = text.as_bytes();
    let ends = memmem::find_iter(bytes, "</").find(|at| names_tag(&bytes[at + 2..], name));
    ends.unwrap_or(text.len())
}

/// Returns where a script's end tag begins. Inside `<!--` a script may contain another one, whose
/// end tag is not its own.
fn script_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut escaped, mut nested) = (0, false, false);
    while let Some(found) = memchr2(b'<', b'-', &bytes[at..]) {
        at += found;
        let rest = &bytes[at..];
        if escaped && rest.starts_with(b"-->") {
            (escaped, nested) = (false, false);
        } else if rest.starts_with(b"<!--") {
            escaped = true;
            // These two dashes may already belong to the end.
            at += 1;
        } else if rest.starts_with(b"</") && names_tag(&rest[2..], "script") {
            if !nested {
                return at;
            }
            nested = false;
        } else if escaped && rest[0] == b'<' && names_tag(&rest[1..], "script") {
            nested = true;
        }
        at += 1;
    }
    text.len()
}

fn names_tag(bytes: &[u8], name: &str) -> bool {
    bytes.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
        && bytes.get(name.len()).is_some_and(|next| next.is_ascii_whitespace() || b"/>".contains(next))
}
