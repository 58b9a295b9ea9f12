//! Says what each element means for the text.

use super::token::{Attributes, Tag};

/// `Kind` says how an element is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Inline,
    /// Inline. A misplaced end tag ends it although blocks are open inside.
    Formatting,
    /// On its own lines.
    Block,
    /// Separated by blank lines.
    Section,
    Paragraph,
    Heading(u8),
    List {
        ordered: bool,
    },
    Item,
    Term,
    Definition,
    Quote,
    Preformatted,
    Table,
    RowGroup,
    Row,
    Cell {
        header: bool,
    },
    Link,
    Code,
    Superscript,
    Struck,
    Citation,
    Title,
    Option,
    Break,
    Rule,
    Image,
    Control,
    Base,
    /// Has no content.
    Void,
    /// Neither the element nor its content is shown.
    Unseen,
    /// SVG and MathML, which follow other rules.
    Foreign,
}

/// `Content` says how the tokenizer reads an element's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Markup,
    /// Text in which `&amp;` means `&`.
    Escapable,
    Raw,
    /// Raw text up to the end of the document.
    Plain,
}

/// Longer names are unknown.
const LONGEST_NAME: usize = 16;

/// Returns the kind and content of the element with that name, ignoring case.
pub(super) fn element(name: &str) -> (Kind, Content) {
    let mut lower = [0; LONGEST_NAME];
    let Some(lower) = lower.get_mut(..name.len()) else { return (Kind::Inline, Content::Markup) };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    let content = match &*lower {
        b"title" | b"textarea" => Content::Escapable,
        b"script" | b"style" | b"xmp" | b"iframe" | b"noembed" | b"noframes" => Content::Raw,
        b"plaintext" => Content::Plain,
        _ => Content::Markup,
    };
    (kind(lower), content)
}

fn kind(lower: &[u8]) -> Kind {
    match lower {
        b"a" => Kind::Link,
        b"p" => Kind::Paragraph,
        b"br" => Kind::Break,
        b"hr" => Kind::Rule,
        b"img" => Kind::Image,
        b"input" => Kind::Control,
        b"base" => Kind::Base,
        b"title" => Kind::Title,
        b"h1" => Kind::Heading(1),
        b"h2" => Kind::Heading(2),
        b"h3" => Kind::Heading(3),
        b"h4" => Kind::Heading(4),
        b"h5" => Kind::Heading(5),
        b"h6" => Kind::Heading(6),
        b"ul" | b"menu" | b"dir" => Kind::List { ordered: false },
        b"ol" => Kind::List { ordered: true },
        b"li" => Kind::Item,
        b"dt" => Kind::Term,
        b"dd" => Kind::Definition,
        b"blockquote" => Kind::Quote,
        b"pre" | b"xmp" | b"listing" | b"plaintext" => Kind::Preformatted,
        b"table" => Kind::Table,
        b"thead" | b"tbody" | b"tfoot" => Kind::RowGroup,
        b"tr" => Kind::Row,
        b"td" => Kind::Cell { header: false },
        b"th" => Kind::Cell { header: true },
        b"code" | b"kbd" | b"samp" | b"tt" => Kind::Code,
        b"sup" => Kind::Superscript,
        b"del" | b"s" | b"strike" => Kind::Struck,
        b"q" => Kind::Citation,
        b"option" => Kind::Option,
        b"b" | b"big" | b"em" | b"font" | b"i" | b"nobr" | b"small" | b"strong" | b"u" => Kind::Formatting,
        b"area" | b"col" | b"embed" | b"frame" | b"keygen" | b"link" | b"meta" | b"param" | b"source"
        | b"track" | b"wbr" | b"bgsound" | b"basefont" => Kind::Void,
        b"script" | b"style" | b"template" | b"iframe" | b"noembed" | b"noframes" | b"audio" | b"video"
        | b"canvas" | b"datalist" | b"noscript" | b"annotation" | b"annotation-xml" => Kind::Unseen,
        b"svg" | b"math" => Kind::Foreign,
        b"html" | b"body" | b"head" | b"div" | b"center" | b"form" | b"fieldset" | b"legend" | b"summary"
        | b"caption" | b"colgroup" | b"optgroup" | b"select" | b"textarea" | b"hgroup" | b"address"
        | b"search" => Kind::Block,
        b"article" | b"section" | b"header" | b"footer" | b"main" | b"nav" | b"aside" | b"figure"
        | b"figcaption" | b"details" | b"dialog" | b"dl" => Kind::Section,
        _ => Kind::Inline,
    }
}

impl Kind {
    /// Reports whether it appears within the text of a line.
    pub(super) fn is_inline(self) -> bool {
        matches!(self, Kind::Inline | Kind::Option) || self.is_formatting()
    }

    pub(super) fn is_formatting(self) -> bool {
        matches!(
            self,
            Kind::Formatting | Kind::Link | Kind::Code | Kind::Superscript | Kind::Struck | Kind::Citation
        )
    }

    /// Reports whether its start tag ends an open paragraph.
    pub(super) fn ends_paragraph(self) -> bool {
        matches!(
            self,
            Kind::Block
                | Kind::Section
                | Kind::Paragraph
                | Kind::Heading(_)
                | Kind::List { .. }
                | Kind::Item
                | Kind::Term
                | Kind::Definition
                | Kind::Quote
                | Kind::Preformatted
                | Kind::Table
                | Kind::Rule
        )
    }
}

/// Reports whether the element's own attributes hide it.
pub(super) fn is_hidden(tag: &Tag<'_>, kind: Kind) -> bool {
    let Attributes { hidden, aria_hidden, style, open, .. } = &tag.attributes;
    hidden.is_some()
        // On an image it means that nearby text says the same, as with rendered formulas.
        || (kind != Kind::Image && aria_hidden.is_some_and(|value| value.trim().eq_ignore_ascii_case("true")))
        || style.is_some_and(hides)
        || (open.is_none() && tag.name.eq_ignore_ascii_case("dialog"))
}

/// Reports whether a style hides the element.
fn hides(style: &str) -> bool {
    style.split(';').filter_map(|declaration| declaration.split_once(':')).any(|(property, value)| {
        let value = value.trim_start();
        let says = |word: &str| value.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        match property.trim() {
            property if property.eq_ignore_ascii_case("display") => says("none"),
            property if property.eq_ignore_ascii_case("visibility") => says("hidden") || says("collapse"),
            property if property.eq_ignore_ascii_case("content-visibility") => says("hidden"),
            property if property.eq_ignore_ascii_case("font-size") => is_zero(value),
            property if property.eq_ignore_ascii_case("opacity") => is_zero(value),
            _ => false,
        }
    })
}

/// Matches `0`, `0px`, `0.00 !important`, but not `0.8em`.
fn is_zero(value: &str) -> bool {
    let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit() && c != '.');
    let number = &value[..value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len())];
    digits == number && number.contains('0') && number.bytes().all(|byte| matches!(byte, b'0' | b'.'))
}

/// Reports whether a start tag ends SVG or MathML that was left open.
pub(super) fn breaks_out(kind: Kind, name: &str) -> bool {
    !matches!(
        kind,
        Kind::Inline | Kind::Void | Kind::Control | Kind::Unseen | Kind::Title | Kind::Link | Kind::Foreign
    ) || ["span", "sub", "var", "ruby", "embed", "meta", "dl"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns the language in the class of a code block: `language-rust`, `lang-rust`.
pub(super) fn code_language(class: &str) -> Option<&str> {
    let mut words = class.split_ascii_whitespace();
    let name =
        words.find_map(|word| word.strip_prefix("language-").or_else(|| word.strip_prefix("lang-")))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+#-_.".contains(&byte);
    (!name.is_empty() && name.len() <= 30 && name.bytes().all(plain)).then_some(name)
}
