//! Markdown as a tree of the few nodes that a client may draw. What a model wrote never becomes markup.

use std::ops::Range;

use gantry_protocol::{MarkdownAlign, MarkdownBlock, MarkdownDocument, MarkdownInline, MarkdownItem};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, OffsetIter, Options, Parser, Tag};
use url::Url;

/// What is nested deeper becomes part of the node around it, because reading and drawing are recursive.
const MAX_DEPTH: usize = 16;

const MAX_LANGUAGE_CHARS: usize = 40;

/// Characters of `123456789.`, the longest mark of an item.
const MAX_ITEM_MARK: usize = 10;

pub(crate) fn document(text: &str) -> MarkdownDocument {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = Parser::new_ext(text, options).into_offset_iter();
    let mut reader = Reader { events, range: 0..0, starts: Vec::new(), done: None };
    let blocks = reader.blocks(0);
    let settled_blocks = settled(text, &reader.starts);
    let before = reader.starts.get(settled_blocks).and_then(|start| text.get(..*start)).unwrap_or_default();
    MarkdownDocument { blocks, settled_blocks, settled: before.encode_utf16().count() }
}

/// How many of the first blocks stay as they are when more text follows. Without an empty line a block may still become
/// part of the one before it, and a number or a dash may become the next item of a list.
fn settled(text: &str, starts: &[usize]) -> usize {
    let is_apart = |number: &usize| {
        let before = starts.get(*number).and_then(|start| text.get(..*start)).unwrap_or_default();
        let mut lines = before.rsplit('\n');
        let indent = lines.next().is_some_and(|line| line.trim().is_empty());
        indent && lines.next().is_some_and(|line| line.trim().is_empty()) && !before.is_empty()
    };
    let is_open = |number: &usize| {
        let rest = starts.get(*number).and_then(|start| text.get(*start..)).unwrap_or_default().trim();
        rest.len() <= MAX_ITEM_MARK
            && rest.bytes().all(|byte| byte.is_ascii_digit() || b"-+*.)".contains(&byte))
    };
    (1..starts.len()).rev().find(|number| is_apart(number) && !is_open(number)).unwrap_or(0)
}

struct Reader<'a> {
    events: OffsetIter<'a>,
    /// Where the last event is in the text.
    range: Range<usize>,
    /// Where the blocks of the document begin.
    starts: Vec<usize>,
    /// The mark of the item that is being read.
    done: Option<bool>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Event<'a>> {
        let (event, range) = self.events.next()?;
        self.range = range;
        Some(event)
    }

    /// Reads blocks up to the end of the node around them.
    fn blocks(&mut self, depth: usize) -> Vec<MarkdownBlock> {
        let (mut blocks, mut loose, mut flattened) = (Vec::new(), Vec::new(), 0_usize);
        while let Some(event) = self.next() {
            if depth == 0 && !matches!(event, Event::End(_)) {
                self.starts.push(self.range.start);
            }
            match event {
                Event::End(_) if flattened > 0 => {
                    flattened -= 1;
                    end_paragraph(&mut blocks, &mut loose);
                }
                Event::End(_) => break,
                Event::Start(tag) if is_inline(&tag) => self.inline_node(tag, depth + 1, &mut loose),
                Event::Start(tag) => {
                    end_paragraph(&mut blocks, &mut loose);
                    match (depth < MAX_DEPTH).then(|| self.block(&tag, depth + 1)).flatten() {
                        Some(block) => blocks.push(block),
                        None => flattened += 1,
                    }
                }
                Event::Rule => {
                    end_paragraph(&mut blocks, &mut loose);
                    blocks.push(MarkdownBlock::Rule);
                }
                // The text of tight items has no paragraph of its own.
                other => self.inline(other, &mut loose),
            }
        }
        end_paragraph(&mut blocks, &mut loose);
        blocks
    }

    /// Reads a block that has begun. `None` for one whose content belongs to the node around it; nothing is read then.
    fn block(&mut self, tag: &Tag<'a>, depth: usize) -> Option<MarkdownBlock> {
        Some(match tag {
            Tag::Paragraph | Tag::HtmlBlock => MarkdownBlock::Paragraph { content: self.inlines(depth) },
            Tag::Heading { level, .. } => {
                MarkdownBlock::Heading { level: number(*level), content: self.inlines(depth) }
            }
            Tag::BlockQuote(_) => MarkdownBlock::Quote { blocks: self.blocks(depth) },
            Tag::CodeBlock(kind) => {
                let language = match kind {
                    CodeBlockKind::Fenced(info) => language(info),
                    CodeBlockKind::Indented => String::new(),
                };
                let mut text = String::new();
                while let Some(event) = self.next() {
                    match event {
                        Event::Text(more) => text.push_str(&shown(&more)),
                        _ => break,
                    }
                }
                text.truncate(text.strip_suffix('\n').map_or(text.len(), str::len));
                MarkdownBlock::Code { language, text }
            }
            Tag::List(start) => {
                let mut items = Vec::new();
                while let Some(Event::Start(_)) = self.next() {
                    let outer = self.done.take();
                    let blocks = self.blocks(depth);
                    items.push(MarkdownItem { done: self.done.take(), blocks });
                    self.done = outer;
                }
                MarkdownBlock::List { start: *start, items }
            }
            Tag::Table(align) => {
                let mut rows = Vec::new();
                // A row ends with the end of its cells, the table with the end of its rows.
                while let Some(Event::Start(_)) = self.next() {
                    let mut cells = Vec::new();
                    while let Some(Event::Start(_)) = self.next() {
                        cells.push(self.inlines(depth));
                    }
                    rows.push(cells);
                }
                let header = if rows.is_empty() { Vec::new() } else { rows.remove(0) };
                MarkdownBlock::Table { align: align.iter().map(alignment).collect(), header, rows }
            }
            _ => return None,
        })
    }

    /// Reads inline content up to the end of the node around it.
    fn inlines(&mut self, depth: usize) -> Vec<MarkdownInline> {
        let (mut content, mut flattened) = (Vec::new(), 0_usize);
        while let Some(event) = self.next() {
            match event {
                Event::End(_) if flattened > 0 => flattened -= 1,
                Event::End(_) => break,
                Event::Start(tag) if is_inline(&tag) && depth < MAX_DEPTH => {
                    self.inline_node(tag, depth + 1, &mut content);
                }
                Event::Start(_) => flattened += 1,
                other => self.inline(other, &mut content),
            }
        }
        content
    }

    fn inline_node(&mut self, tag: Tag<'a>, depth: usize, into: &mut Vec<MarkdownInline>) {
        let content = self.inlines(depth);
        into.push(match tag {
            Tag::Emphasis => MarkdownInline::Emphasis { content },
            Tag::Strong => MarkdownInline::Strong { content },
            Tag::Strikethrough => MarkdownInline::Strike { content },
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => match link(&dest_url, content) {
                Ok(link) => link,
                Err(content) => return content.into_iter().for_each(|inline| push(into, inline)),
            },
            _ => return content.into_iter().for_each(|inline| push(into, inline)),
        });
    }

    fn inline(&mut self, event: Event<'a>, into: &mut Vec<MarkdownInline>) {
        let text = match event {
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::FootnoteReference(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text) => shown(&text),
            Event::SoftBreak => "\n".to_owned(),
            Event::Code(text) => return into.push(MarkdownInline::Code { text: shown(&text) }),
            Event::HardBreak => return into.push(MarkdownInline::Break),
            Event::TaskListMarker(done) => {
                self.done = Some(done);
                return;
            }
            Event::Start(_) | Event::End(_) | Event::Rule => return,
        };
        push(into, MarkdownInline::Text { text });
    }
}

fn is_inline(tag: &Tag<'_>) -> bool {
    matches!(tag, Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. })
}

fn end_paragraph(blocks: &mut Vec<MarkdownBlock>, loose: &mut Vec<MarkdownInline>) {
    if !loose.is_empty() {
        blocks.push(MarkdownBlock::Paragraph { content: std::mem::take(loose) });
    }
}

/// Neighboring texts become one.
fn push(into: &mut Vec<MarkdownInline>, new: MarkdownInline) {
    match (into.last_mut(), new) {
        (Some(MarkdownInline::Text { text }), MarkdownInline::Text { text: more }) => text.push_str(&more),
        (_, MarkdownInline::Text { text }) if text.is_empty() => {}
        (_, new) => into.push(new),
    }
}

/// A link that a client may offer. Gives the content back if it is another one.
fn link(target: &str, content: Vec<MarkdownInline>) -> Result<MarkdownInline, Vec<MarkdownInline>> {
    let Ok(url) = Url::parse(target) else { return Err(content) };
    if !matches!(url.scheme(), "http" | "https" | "mailto") {
        return Err(content);
    }
    let real = match url.scheme() {
        "mailto" => url.path().rsplit_once('@').map(|(_, host)| host.to_ascii_lowercase()),
        _ => url.host_str().map(str::to_ascii_lowercase),
    };
    let mut text = String::new();
    collect_text(&content, &mut text);
    let host = real.filter(|real| named_hosts(&text).any(|named| !is_same_host(&named, real)));
    Ok(MarkdownInline::Link { href: url.into(), host, content })
}

fn collect_text(content: &[MarkdownInline], text: &mut String) {
    for inline in content {
        match inline {
            MarkdownInline::Text { text: more } | MarkdownInline::Code { text: more } => text.push_str(more),
            MarkdownInline::Emphasis { content }
            | MarkdownInline::Strong { content }
            | MarkdownInline::Strike { content }
            | MarkdownInline::Link { content, .. } => collect_text(content, text),
            MarkdownInline::Break => text.push(' '),
        }
    }
}

/// Words of a text that look like a host: `example.com`, also within a URL.
fn named_hosts(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| c.is_whitespace() || "/:@?#()[]<>\"'".contains(c));
    words.filter_map(|word| {
        let word = word.trim_matches('.').to_ascii_lowercase();
        let (name, end) = word.rsplit_once('.')?;
        let looks = !name.is_empty() && end.chars().count() >= 2 && end.chars().all(char::is_alphabetic);
        // `main.rs` is a file more often than a host.
        (looks && !is_file_ending(end)).then_some(word)
    })
}

fn is_file_ending(end: &str) -> bool {
    const ENDINGS: [&str; 24] = [
        "rs", "md", "py", "js", "ts", "css", "html", "json", "toml", "yaml", "yml", "txt", "sh", "go",
        "java", "cpp", "log", "pdf", "png", "jpg", "svg", "csv", "xml", "sql",
    ];
    ENDINGS.contains(&end)
}

fn is_same_host(named: &str, real: &str) -> bool {
    let bare = |host: &str| host.strip_prefix("www.").unwrap_or(host).to_owned();
    bare(named) == bare(real)
}

/// The text with the characters that would turn its direction made visible.
fn shown(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    match text.contains(turns) {
        true => text.replace(turns, "\u{fffd}"),
        false => text.to_owned(),
    }
}

fn language(info: &str) -> String {
    let word = info.split([' ', ',', '{']).next().unwrap_or_default();
    let known = |c: &char| c.is_ascii_alphanumeric() || "+-_.#".contains(*c);
    word.chars().take_while(known).take(MAX_LANGUAGE_CHARS).collect()
}

fn alignment(alignment: &Alignment) -> MarkdownAlign {
    match alignment {
        Alignment::None => MarkdownAlign::None,
        Alignment::Left => MarkdownAlign::Left,
        Alignment::Center => MarkdownAlign::Center,
        Alignment::Right => MarkdownAlign::Right,
    }
}

fn number(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn blocks(text: &str) -> Value {
        serde_json::to_value(document(text).blocks).unwrap()
    }

    #[test]
    fn nodes_of_a_document() {
        let text = |text: &str| json!({"inline": "text", "text": text});
        let paragraph = |content: Value| json!({"block": "paragraph", "content": [content]});
        assert_eq!(
            blocks("# A *b*\n\nx `c`  \ny"),
            json!([
                {"block": "heading", "level": 1, "content": [text("A "), {"inline": "emphasis", "content": [text("b")]}]},
                {"block": "paragraph", "content": [text("x "), {"inline": "code", "text": "c"}, {"inline": "break"}, text("y")]},
            ])
        );
        assert_eq!(
            blocks("- [x] a\n- [ ] b\n  - c\n\n3. d"),
            json!([
                {"block": "list", "items": [
                    {"done": true, "blocks": [paragraph(text("a"))]},
                    {"done": false, "blocks": [paragraph(text("b")), {"block": "list", "items": [{"blocks": [paragraph(text("c"))]}]}]},
                ]},
                {"block": "list", "start": 3, "items": [{"blocks": [paragraph(text("d"))]}]},
            ])
        );
        assert_eq!(
            blocks("> q\n\n```rust,ignore\nfn a() {}\n```\n---"),
            json!([
                {"block": "quote", "blocks": [paragraph(text("q"))]},
                {"block": "code", "language": "rust", "text": "fn a() {}"},
                {"block": "rule"},
            ])
        );
        assert_eq!(
            blocks("| a | b |\n|:-:|--:|\n| 1 | ~~2~~ |"),
            json!([{"block": "table", "align": ["center", "right"], "header": [[text("a")], [text("b")]],
                "rows": [[[text("1")], [{"inline": "strike", "content": [text("2")]}]]]}])
        );
    }

    #[test]
    fn html_is_text_and_pictures_are_links() {
        assert_eq!(
            blocks("<script>alert(1)</script>\n\na <b onclick=x>c</b>"),
            json!([
                {"block": "paragraph", "content": [{"inline": "text", "text": "<script>alert(1)</script>\n"}]},
                {"block": "paragraph", "content": [{"inline": "text", "text": "a <b onclick=x>c</b>"}]},
            ])
        );
        assert_eq!(
            blocks("![a](https://x.example/p.png)"),
            json!([{"block": "paragraph", "content": [
                {"inline": "link", "href": "https://x.example/p.png", "content": [{"inline": "text", "text": "a"}]}
            ]}])
        );
    }

    #[test]
    fn only_links_that_lead_where_a_person_can_follow_remain() {
        for bad in [
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "vbscript:x",
            "/x",
            "JaVaScRiPt:x",
        ] {
            let shown = blocks(&format!("[a](<{bad}>)")).to_string();
            assert!(!shown.contains("link") && shown.contains("\"a\""), "{bad}: {shown}");
        }
        for good in ["https://a.example/", "http://a.example/", "mailto:x@a.example"] {
            assert!(blocks(&format!("[a]({good})")).to_string().contains(good), "{good}");
        }
    }

    #[test]
    fn link_whose_text_names_another_host_shows_the_real_one() {
        let host = |text: &str| match &document(text).blocks[0] {
            MarkdownBlock::Paragraph { content } => match &content[0] {
                MarkdownInline::Link { host, .. } => host.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(
            host("[https://bank.example/login](https://evil.example)").as_deref(),
            Some("evil.example")
        );
        assert_eq!(host("[**bank.example**](https://evil.example)").as_deref(), Some("evil.example"));
        assert_eq!(host("[x@bank.example](mailto:x@evil.example)").as_deref(), Some("evil.example"));
        for honest in [
            "[bank.example](https://www.bank.example/a)",
            "[here](https://a.example)",
            "[main.rs](https://a.example)",
        ] {
            assert_eq!(host(honest), None, "{honest}");
        }
    }

    #[test]
    fn settled_part_never_changes_while_text_follows() {
        let whole = "# Title ü😀\n\nfirst *a*\n\n- one\n- two\n\n- three\n\n1. a\n\n22. b\n\n```sh\nls\n\nps\n```\n\n| a |\n|---|\n| 1 |\n\nend";
        for (end, _) in whole.char_indices() {
            let part = document(&whole[..end]);
            let all = document(whole);
            assert_eq!(
                part.blocks[..part.settled_blocks],
                all.blocks[..part.settled_blocks],
                "{}",
                &whole[..end]
            );
            // What follows the settled part, read alone, gives the other blocks.
            let units: Vec<u16> = whole[..end].encode_utf16().skip(part.settled).collect();
            let tail = document(&String::from_utf16(&units).unwrap());
            assert_eq!(part.blocks[part.settled_blocks..], tail.blocks[..], "{}", &whole[..end]);
        }
    }

    #[test]
    fn deep_nesting_is_flattened() {
        let deep = format!("{}x", "> ".repeat(5_000));
        let mut depth = 0;
        let mut at = &document(&deep).blocks[..];
        while let [MarkdownBlock::Quote { blocks }] = at {
            depth += 1;
            at = blocks;
        }
        assert_eq!(depth, MAX_DEPTH);
        assert!(blocks(&deep).to_string().contains("\"x\""), "nothing is lost");
        let stars = format!("{}x{}", "*a ".repeat(2_000), "*".repeat(2_000));
        assert!(blocks(&stars).to_string().contains('x'));
    }

    #[test]
    fn text_cannot_turn_its_direction() {
        assert!(blocks("a\u{202e}b").to_string().contains("a\u{fffd}b"));
    }

    /// Every key of the tree, with the values that it may have.
    fn check(value: &Value) {
        const KEYS: [&str; 16] = [
            "block", "inline", "content", "text", "level", "language", "blocks", "start", "items", "done",
            "align", "header", "rows", "href", "host", "",
        ];
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    assert!(KEYS.contains(&key.as_str()), "{key}");
                    if key == "href" {
                        let href = value.as_str().unwrap();
                        assert!(
                            ["http:", "https:", "mailto:"].iter().any(|scheme| href.starts_with(scheme)),
                            "{href}"
                        );
                    }
                    if key == "language" {
                        let sound = |c: char| c.is_ascii_alphanumeric() || "+-_.#".contains(c);
                        assert!(value.as_str().unwrap().chars().all(sound), "{value}");
                    }
                    check(value);
                }
            }
            Value::Array(values) => values.iter().for_each(check),
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn hostile_text_gives_only_allowed_nodes(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "[a](", "javascript:alert(1)", "https://a.example", ")", "<img src=x onerror=alert(1)>", "![", "](",
                    "<script>", "```", "js onload=x\n", "\n", "\n\n", "> ", "- ", "- [ ] ", "1. ", "|a|b|\n|-|-|\n", "*", "**",
                    "`", "~~", "# ", "<a href='data:x'>", "[x]: javascript:1\n", "[x]", "\u{202e}", "&lt;", "\\", "    ", "---\n", "\0",
                ]),
                0..60,
            ),
            end in ".*",
        ) {
            let text = parts.concat() + &end;
            let document = document(&text);
            prop_assert!(document.settled_blocks <= document.blocks.len());
            prop_assert!(document.settled <= text.encode_utf16().count());
            check(&serde_json::to_value(document.blocks).unwrap());
        }
    }
}
