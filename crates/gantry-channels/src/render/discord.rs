//! Discord's own Markdown. Text of the model is escaped, so that no character of it is markup and no part of it a mention.
//! Discord reads addresses before escapes, so addresses are written as they are.

use std::ops::Range;

use super::flat::{Layout, Links, Quotes, Tables, flat};
use super::{Rich, Span, Style, blocks, shows_itself};

const LAYOUT: Layout = Layout { tables: Tables::Columns, links: Links::Styled, quotes: Quotes::Styled };

/// Separates backticks in code, which would end it. It has no width.
const ZERO_WIDTH_SPACE: char = '\u{200b}';
/// Characters that are markup wherever they are.
const MARKUP: &str = "\\*_~`|[]<";
/// Characters that are markup at the start of a line.
const LINE_MARKUP: &str = "#->";

/// Renders Markdown.
pub(crate) fn render(markdown: &str) -> String {
    let rich = flat(&blocks(markdown), LAYOUT);
    let raw = raw_parts(&rich);
    let mut marks = Marks::default();
    quotes(&rich, &mut marks);
    for span in &rich.spans {
        match &span.style {
            Style::Pre(language) => fence(&rich, span, language, &mut marks),
            Style::Code if !is_in_block(&rich, &span.range) => code(&rich, span, &mut marks),
            Style::Link(url) => link(&rich, span, url, &mut marks),
            Style::Bold | Style::Italic | Style::Strike => style(&rich, span, &raw, &mut marks),
            Style::Code | Style::Quote => {}
        }
    }
    escapes(&rich.text, &raw, &mut marks);
    marks.applied_to(&rich.text).trim().to_owned()
}

/// The length of rendered Markdown.
pub(crate) fn measure(markdown: &str) -> usize {
    render(markdown).chars().count()
}

/// Escapes a plain text.
pub(crate) fn escaped(text: &str) -> String {
    let mut marks = Marks::default();
    escapes(text, &addresses(text), &mut marks);
    marks.applied_to(text)
}

/// Texts to insert, by position.
#[derive(Default)]
struct Marks(Vec<Mark>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    at: usize,
    /// The order of marks at one position.
    order: Order,
    /// Inner ends come before outer ones, outer starts before inner ones.
    nesting: usize,
    /// The order of marks around the same part: styles are outside, code is inside.
    rank: u8,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    End,
    After,
    Line,
    Start,
    Escape,
}

impl Marks {
    fn insert(&mut self, at: usize, order: Order, text: impl Into<String>) {
        self.0.push(Mark { at, order, nesting: 0, rank: 0, text: text.into() });
    }

    fn around(
        &mut self,
        range: &Range<usize>,
        style: &Style,
        start: impl Into<String>,
        end: impl Into<String>,
    ) {
        let rank = match style {
            Style::Bold => 0,
            Style::Italic => 1,
            Style::Strike => 2,
            Style::Link(_) => 3,
            Style::Code | Style::Pre(_) | Style::Quote => 4,
        };
        let (inner, outer) = (usize::MAX - range.start, usize::MAX - range.end);
        let start = Mark { at: range.start, order: Order::Start, nesting: outer, rank, text: start.into() };
        let end =
            Mark { at: range.end, order: Order::End, nesting: inner, rank: 255 - rank, text: end.into() };
        self.0.extend([start, end]);
    }

    fn applied_to(mut self, text: &str) -> String {
        self.0.sort();
        let mut out = String::with_capacity(text.len() + self.0.len() * 2);
        let mut at = 0;
        for mark in &self.0 {
            out.push_str(&text[at..mark.at]);
            out.push_str(&mark.text);
            at = mark.at;
        }
        out.push_str(&text[at..]);
        out
    }
}

/// A quote begins at the start of a line. Others, such as one in a list, are only indented.
fn is_quote(text: &str, span: &Span) -> bool {
    span.style == Style::Quote && (span.range.start == 0 || text[..span.range.start].ends_with('\n'))
}

fn quotes(rich: &Rich, marks: &mut Marks) {
    let mut end = 0;
    for span in rich.spans.iter().filter(|span| is_quote(&rich.text, span)) {
        // A quote in a quote is part of it.
        if span.range.start < end {
            continue;
        }
        end = span.range.end;
        marks.insert(span.range.start, Order::Line, "> ");
        for (at, _) in rich.text[span.range.clone()].match_indices('\n') {
            marks.insert(span.range.start + at + 1, Order::Line, "> ");
        }
    }
}

/// Writes a block of code. It can be in a quote or behind the marker of a list.
fn fence(rich: &Rich, span: &Span, language: &str, marks: &mut Marks) {
    let start = span.range.start;
    let line = rich.text[..start].rfind('\n').map_or(0, |at| at + 1);
    let is_quoted = rich
        .spans
        .iter()
        .any(|quote| is_quote(&rich.text, quote) && quote.range.start <= start && start < quote.range.end);
    let indent = " ".repeat(rich.text[line..start].chars().count());
    let prefix = format!("\n{}{indent}", if is_quoted { "> " } else { "" });
    marks.around(&span.range, &span.style, format!("```{language}{prefix}"), format!("{prefix}```"));
    // Three backticks would end the block, also together with those behind it.
    separate_backticks(&rich.text[span.range.clone()], start, marks);
}

/// Writes code in a line. One or two backticks begin it, because three begin a block.
fn code(rich: &Rich, span: &Span, marks: &mut Marks) {
    let text = &rich.text[span.range.clone()];
    let has_run = |length: usize| text.split(|c| c != '`').any(|run| run.len() == length);
    let ticks = match (has_run(1), has_run(2)) {
        (false, _) => "`",
        (true, false) => "``",
        (true, true) => {
            separate_backticks(text, span.range.start, marks);
            "``"
        }
    };
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    // The backticks of code that follows other code directly would join.
    let follows_code =
        rich.spans.iter().any(|other| is_code(&other.style) && other.range.end == span.range.start);
    let gap = if follows_code { ZERO_WIDTH_SPACE.to_string() } else { String::new() };
    marks.around(&span.range, &span.style, format!("{gap}{ticks}{pad}"), format!("{pad}{ticks}"));
}

/// Puts something invisible between backticks that follow each other.
fn separate_backticks(text: &str, start: usize, marks: &mut Marks) {
    for (at, _) in text.match_indices('`').filter(|(at, _)| text[at + 1..].starts_with('`')) {
        marks.insert(start + at + 1, Order::Escape, ZERO_WIDTH_SPACE);
    }
}

/// Writes a link. Discord shows the brackets of links that it does not accept, so those get their address in parentheses.
fn link(rich: &Rich, span: &Span, url: &str, marks: &mut Marks) {
    let text = &rich.text[span.range.clone()];
    if shows_itself(text, url) && (text.starts_with("http://") || text.starts_with("https://")) {
        return;
    }
    let is_web = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"<>\\".contains(c);
    let has_label =
        !text.contains(['[', ']', '\n', '`', '\\']) && !text.contains("://") && !text.trim().is_empty();
    let overlaps_code =
        rich.spans.iter().any(|code| is_code(&code.style) && overlaps(&code.range, &span.range));
    if is_web && url.chars().all(is_plain) && has_label && !overlaps_code {
        marks.around(&span.range, &span.style, "[", format!("](<{url}>)"));
    } else {
        let written = if is_web { url.to_owned() } else { escaped(url) };
        marks.insert(span.range.end, Order::After, format!(" ({written})"));
    }
}

fn style(rich: &Rich, span: &Span, raw: &[Range<usize>], marks: &mut Marks) {
    if is_in_block(rich, &span.range) {
        return;
    }
    for part in by_line(rich, span) {
        // A marker in code or in an address would end the style, and a style would change an address that it is in.
        let is_harmless = |raw: &Range<usize>| {
            let is_inside = part.start <= raw.start && raw.end <= part.end;
            !overlaps(raw, &part) || is_inside && !rich.text[raw.clone()].contains(['*', '_', '~'])
        };
        if !raw.iter().all(is_harmless) {
            continue;
        }
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let joins_word = is_word(rich.text[..part.start].chars().next_back())
            || is_word(rich.text[part.end..].chars().next());
        let marker = match span.style {
            Style::Bold => "**",
            Style::Strike => "~~",
            // Discord reads an underscore in a word as text.
            Style::Italic if joins_word => continue,
            _ => "_",
        };
        marks.around(&part, &span.style, marker, marker);
    }
}

/// A style ends at the end of a line.
fn by_line(rich: &Rich, span: &Span) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut at = span.range.start;
    for line in rich.text[span.range.clone()].split('\n') {
        let start = at + line.len() - line.trim_start().len();
        let end = start + line.trim().len();
        if start < end {
            parts.push(start..end);
        }
        at += line.len() + 1;
    }
    parts
}

fn escapes(text: &str, raw: &[Range<usize>], marks: &mut Marks) {
    let mut at_line_start = true;
    let mut parts = raw.iter().peekable();
    for (at, c) in text.char_indices() {
        while parts.next_if(|part| part.end <= at).is_some() {}
        let is_raw = parts.peek().is_some_and(|part| part.start <= at);
        let after = &text[at + c.len_utf8()..];
        let is_mention = c == '@' && (after.starts_with("everyone") || after.starts_with("here"));
        if !is_raw && (MARKUP.contains(c) || is_mention || at_line_start && LINE_MARKUP.contains(c)) {
            marks.insert(at, Order::Escape, "\\");
        }
        at_line_start = c == '\n' || at_line_start && c.is_whitespace();
    }
}

/// The parts in which nothing is escaped: code and addresses. They are sorted and do not overlap.
fn raw_parts(rich: &Rich) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> =
        rich.spans.iter().filter(|span| is_code(&span.style)).map(|span| span.range.clone()).collect();
    let code = parts.clone();
    let is_free = |address: &Range<usize>| {
        let styled = rich.spans.iter().filter(|span| matches!(span.style, Style::Link(_)));
        // The text of a link is escaped, unless it is the address itself.
        let mut labels = styled.filter(|span| overlaps(&span.range, address));
        !code.iter().any(|code| overlaps(code, address)) && labels.all(|span| span.range == *address)
    };
    parts.extend(addresses(&rich.text).into_iter().filter(is_free));
    parts.sort_by_key(|part| part.start);
    parts
}

/// The addresses that Discord finds in a text.
fn addresses(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (start, _) in text.match_indices("http") {
        let rest = &text[start..];
        let is_address = rest.starts_with("http://") || rest.starts_with("https://");
        let in_word = text[..start].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        if !is_address || in_word || found.last().is_some_and(|last| start < last.end) {
            continue;
        }
        let length = rest.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(rest.len());
        let address = rest[..length].trim_end_matches(['.', ',', ':', ';', '"', '\'', ')', ']']);
        if address.len() > "https://".len() {
            found.push(start..start + address.len());
        }
    }
    found
}

fn is_code(style: &Style) -> bool {
    matches!(style, Style::Code | Style::Pre(_))
}

fn is_in_block(rich: &Rich, range: &Range<usize>) -> bool {
    rich.spans.iter().any(|span| matches!(span.style, Style::Pre(_)) && overlaps(&span.range, range))
}

fn overlaps(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads Discord's Markdown as its clients do, and returns the text that people see.
    fn seen(source: &str) -> String {
        let mut out = String::new();
        let mut rest = source;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            let ticks = rest.len() - rest.trim_start_matches('`').len();
            if let Some(escaped) =
                after.chars().next().filter(|e| c == '\\' && !e.is_alphanumeric() && !e.is_whitespace())
            {
                out.push(escaped);
                rest = &after[escaped.len_utf8()..];
            } else if ticks >= 3 && rest[3..].contains("```") {
                let end = 3 + rest[3..].find("```").unwrap();
                let (language, code) = rest[3..end].split_once('\n').unwrap_or(("", &rest[3..end]));
                assert!(
                    language.chars().all(|c| c.is_ascii_alphanumeric() || "+-_#.".contains(c)),
                    "{language}"
                );
                out.push_str(code);
                rest = &rest[end + 3..];
            } else if ticks > 0 && closing(&rest[ticks..], ticks).is_some() {
                let end = closing(&rest[ticks..], ticks).unwrap();
                out.push_str(&rest[ticks..ticks + end]);
                rest = &rest[2 * ticks + end..];
            } else if let Some(address) = addresses(rest).first().filter(|address| address.start == 0) {
                out.push_str(&rest[address.clone()]);
                rest = &rest[address.end..];
            } else if rest.starts_with("](<") {
                let end = rest.find(">)").unwrap();
                rest = &rest[end + 2..];
            } else {
                if !"*_~[".contains(c) {
                    out.push(c);
                }
                rest = after;
            }
        }
        out
    }

    /// Finds a run of exactly `ticks` backticks.
    fn closing(text: &str, ticks: usize) -> Option<usize> {
        let mut at = 0;
        while let Some(start) = text[at..].find('`').map(|start| at + start) {
            let run = text[start..].len() - text[start..].trim_start_matches('`').len();
            if run == ticks {
                return Some(start);
            }
            at = start + run;
        }
        None
    }

    fn visible(text: &str) -> String {
        text.chars().filter(|c| !c.is_whitespace() && *c != ZERO_WIDTH_SPACE).collect()
    }

    #[test]
    fn blocks_and_styles_become_discords_markup() {
        for (markdown, expected) in [
            ("# Title\n\nHello **bold _both_** and `code`", "**Title**\n\nHello **bold _both_** and `code`"),
            ("see [the page](https://example.com/a_(b))", "see [the page](<https://example.com/a_(b)>)"),
            ("- one\n- two\n  1. deep", "• one\n• two\n  1. deep"),
            ("> quoted\n> text\n\nafter", "> quoted\n> text\n\nafter"),
            ("```rust\nfn main() {}\n```", "```rust\nfn main() {}\n```"),
            ("> ```sh\n> a\n> b\n> ```", "> ```sh\n> a\n> b\n> ```"),
            ("| a | b |\n|---|---|\n| 1 | *2* |", "```\na | b\n--+--\n1 | 2\n```"),
            ("~~gone~~ in*side*", "~~gone~~ inside"),
            ("**two\nlines**", "**two**\n**lines**"),
            ("`` a`b ``", "``a`b``"),
            ("`a``b`", "`a``b`"),
            ("~`a`~ **`b`**", "~~`a`~~ **`b`**"),
            ("``` `a``b ```", "`` `a`\u{200b}`b ``"),
        ] {
            assert_eq!(render(markdown), expected, "{markdown}");
        }
    }

    #[test]
    fn text_of_the_model_is_never_markup() {
        for (markdown, expected) in [
            ("2 \\* 3 \\* 4", "2 \\* 3 \\* 4"),
            ("snake_case_name", "snake\\_case\\_name"),
            ("\\# no heading", "\\# no heading"),
            ("\\- no item", "\\- no item"),
            ("\\> no quote", "\\> no quote"),
            ("a || spoiler ||", "a \\|\\| spoiler \\|\\|"),
            ("<@1> <@&2> <#3> <:e:4>", "\\<@1> \\<@&2> \\<#3> \\<:e:4>"),
            ("@everyone and @here, a@b.c", "\\@everyone and \\@here, a@b.c"),
            ("\\[text\\](https://evil.example)", "\\[text\\](https://evil.example)"),
        ] {
            assert_eq!(render(markdown), expected, "{markdown}");
        }
        assert_eq!(escaped("*x* <@1>"), "\\*x\\* \\<@1>");
    }

    #[test]
    fn only_web_addresses_are_links_and_keep_every_character() {
        let url = "https://example.com/a_b_c/*x*/~y~?q=1&r=_2_";
        assert_eq!(render(&format!("<{url}>")), url);
        assert_eq!(render(&format!("**<{url}>**")), url);
        assert_eq!(render("https://example.com/a_b_c?r=a_2."), "https://example.com/a_b_c?r=a_2.");
        assert_eq!(render("https://example.com/*x*/y"), "https://example.com/x/y");
        assert_eq!(render("[l](javascript:alert(1))"), "l (javascript:alert(1))");
        assert_eq!(render("[mail](mailto:a_b@c.d)"), "mail (mailto:a\\_b@c.d)");
        assert_eq!(
            render("[https://bank.example](https://evil.example)"),
            "https://bank.example (https://evil.example)"
        );
        assert_eq!(render("[https://x.y](https://x.y/)"), "https://x.y");
    }

    #[test]
    fn code_is_not_changed_unless_it_would_end_the_block() {
        assert_eq!(render("`<@1> *x* @everyone`"), "`<@1> *x* @everyone`");
        assert_eq!(render("```\n**a** <@1>\n```"), "```\n**a** <@1>\n```");
        let nested = render("````\n```js\n````");
        assert_eq!(nested, "```\n`\u{200b}`\u{200b}`js\n```");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

        #[test]
        fn people_see_the_text(text in "[a-c *_~`|<>@#\\\\\\-\\[\\]().:/!1\n]{0,60}") {
            let flat = flat(&blocks(&text), LAYOUT);
            // Links add addresses, and quotes add marks.
            let adds = |span: &Span| matches!(span.style, Style::Link(_) | Style::Quote);
            if flat.spans.iter().any(adds) {
                return Ok(());
            }
            let rendered = render(&text);
            prop_assert_eq!(visible(&seen(&rendered)), visible(&flat.text), "{:?}", rendered);
        }

        #[test]
        fn mentions_stay_text(words in proptest::collection::vec("<@1>|<@&2>|@everyone|@here|\\*\\*|`|_|a| |\n|> ", 0..20)) {
            let rendered = render(&words.concat());
            // What is left outside of code has a backslash before it.
            let outside: Vec<&str> = rendered.split('`').step_by(2).collect();
            if !rendered.contains("```") && !words.concat().contains('`') {
                let joined = outside.concat();
                for (at, _) in joined.match_indices("<@").chain(joined.match_indices("@everyone")).chain(joined.match_indices("@here")) {
                    prop_assert!(joined[..at].ends_with('\\'), "{:?}", rendered);
                }
            }
        }
    }
}
