//! Renders Markdown as Slack's rich text, in which no character needs escaping.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use serde_json::{Map, Value, json};

/// Deeper lists are shown at this depth.
const MAX_INDENT: usize = 6;

/// Returns a `rich_text` block, or none if there is nothing to show.
pub(super) fn block(markdown: &str) -> Option<Value> {
    let elements = render(markdown);
    (!elements.is_empty()).then(|| json!({ "type": "rich_text", "elements": elements }))
}

/// The visible text, for notifications and for messages without formatting.
pub(super) fn plain(markdown: &str) -> String {
    let mut text = String::new();
    for element in render(markdown) {
        let kind = element["type"].as_str().unwrap_or_default();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push_str("\n\n");
        }
        let children = element["elements"].as_array().map(Vec::as_slice).unwrap_or_default();
        if kind == "rich_text_list" {
            let first = element["offset"].as_u64().unwrap_or(0) + 1;
            let indent = "  ".repeat(element["indent"].as_u64().unwrap_or(0) as usize);
            for (number, item) in (first..).zip(children) {
                match element["style"].as_str() {
                    Some("ordered") => text.push_str(&format!("{indent}{number}. {}\n", inline(item))),
                    _ => text.push_str(&format!("{indent}• {}\n", inline(item))),
                }
            }
        } else {
            text.push_str(&inline(&element));
        }
    }
    text.trim_end().to_owned()
}

fn inline(section: &Value) -> String {
    let mut text = String::new();
    for element in section["elements"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let label = element["text"].as_str().unwrap_or_default();
        text.push_str(label);
        match element["url"].as_str() {
            Some(url) if url == label => {}
            Some(url) => text.push_str(&format!(" ({url})")),
            None => {}
        }
    }
    text
}

fn render(markdown: &str) -> Vec<Value> {
    let mut page = Page::default();
    for event in Parser::new_ext(markdown, Options::ENABLE_STRIKETHROUGH) {
        page.take(event);
    }
    page.flush();
    page.elements
}

#[derive(Default)]
struct Page {
    elements: Vec<Value>,
    /// The inline elements of the current paragraph or item.
    line: Vec<Value>,
    bold: usize,
    italic: usize,
    strike: usize,
    quotes: usize,
    /// The next number of each open list, if it is ordered.
    lists: Vec<Option<u64>>,
    link: Option<Link>,
    code: Option<String>,
}

struct Link {
    url: String,
    label: String,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text, None),
            Event::Code(text) => self.text(&text, Some("code")),
            Event::SoftBreak | Event::HardBreak => self.text("\n", None),
            Event::Rule => {
                self.text("———", None);
                self.flush();
            }
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text, None)
            }
            Event::TaskListMarker(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { .. } => self.bold += 1,
            Tag::Strong => self.bold += 1,
            Tag::Emphasis => self.italic += 1,
            Tag::Strikethrough => self.strike += 1,
            Tag::BlockQuote(_) => self.quotes += 1,
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => {
                self.flush();
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                self.flush();
                self.lists.push(first);
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.close_link();
                self.link = Some(Link { url: dest_url.into_string(), label: String::new() });
            }
            // The paragraphs of one item stay together.
            Tag::Paragraph if !self.lists.is_empty() && !self.line.is_empty() => self.text("\n", None),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock if self.lists.is_empty() => self.flush(),
            TagEnd::Heading(_) => {
                self.bold = self.bold.saturating_sub(1);
                self.flush();
            }
            TagEnd::Strong => self.bold = self.bold.saturating_sub(1),
            TagEnd::Emphasis => self.italic = self.italic.saturating_sub(1),
            TagEnd::Strikethrough => self.strike = self.strike.saturating_sub(1),
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.quotes = self.quotes.saturating_sub(1);
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::Item => self.flush(),
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
            }
            TagEnd::Link | TagEnd::Image => self.close_link(),
            _ => {}
        }
    }

    fn text(&mut self, text: &str, style: Option<&str>) {
        if let Some(code) = &mut self.code {
            code.push_str(text);
        } else if let Some(link) = &mut self.link {
            link.label.push_str(text);
        } else if !text.is_empty() {
            let element = self.styled(json!({ "type": "text", "text": text }), style);
            self.line.push(element);
        }
    }

    fn styled(&self, mut element: Value, style: Option<&str>) -> Value {
        let mut styles = Map::new();
        for (name, is_set) in [
            ("bold", self.bold > 0),
            ("italic", self.italic > 0),
            ("strike", self.strike > 0),
            ("code", style == Some("code")),
        ] {
            if is_set {
                styles.insert(name.to_owned(), Value::Bool(true));
            }
        }
        if let (false, Some(element)) = (styles.is_empty(), element.as_object_mut()) {
            element.insert("style".to_owned(), Value::Object(styles));
        }
        element
    }

    fn close_link(&mut self) {
        let Some(Link { url, label }) = self.link.take() else { return };
        let label = if label.is_empty() { url.clone() } else { label };
        let is_web = ["http://", "https://", "mailto:"].iter().any(|scheme| url.starts_with(scheme));
        let element = match is_web {
            true => json!({ "type": "link", "url": url, "text": label }),
            false if url.is_empty() || url == label => json!({ "type": "text", "text": label }),
            false => json!({ "type": "text", "text": format!("{label} ({url})") }),
        };
        if label.is_empty() {
            return;
        }
        let element = self.styled(element, None);
        self.line.push(element);
    }

    fn end_code(&mut self) {
        let code = self.code.take().unwrap_or_default();
        let code = code.strip_suffix('\n').unwrap_or(&code);
        if !code.is_empty() {
            let text = json!({ "type": "text", "text": code });
            self.elements.push(json!({ "type": "rich_text_preformatted", "elements": [text] }));
        }
    }

    /// Ends the current paragraph or item.
    fn flush(&mut self) {
        self.close_link();
        let mut line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return;
        }
        if let (Some(next), 0) = (self.lists.last().copied(), self.quotes) {
            return self.push_item(line, next);
        }
        let kind = if self.quotes > 0 { "rich_text_quote" } else { "rich_text_section" };
        if let Some(open) = self.last_of(kind) {
            open.push(json!({ "type": "text", "text": "\n\n" }));
            open.append(&mut line);
        } else {
            self.elements.push(json!({ "type": kind, "elements": line }));
        }
    }

    fn push_item(&mut self, line: Vec<Value>, next: Option<u64>) {
        let style = if next.is_some() { "ordered" } else { "bullet" };
        let indent = (self.lists.len() - 1).min(MAX_INDENT);
        let item = json!({ "type": "rich_text_section", "elements": line });
        let continues = self.elements.last().is_some_and(|last| {
            last["type"] == "rich_text_list"
                && last["style"] == style
                && last["indent"] == indent
                && next.is_none_or(|next| next == list_end(last))
        });
        if let (true, Some(open)) = (continues, self.last_of("rich_text_list")) {
            open.push(item);
        } else {
            let mut list =
                json!({ "type": "rich_text_list", "style": style, "indent": indent, "elements": [item] });
            if let (Some(next @ 2..), Some(list)) = (next, list.as_object_mut()) {
                list.insert("offset".to_owned(), json!(next - 1));
            }
            self.elements.push(list);
        }
        if let Some(Some(next)) = self.lists.last_mut() {
            *next = next.saturating_add(1);
        }
    }

    fn last_of(&mut self, kind: &str) -> Option<&mut Vec<Value>> {
        let last = self.elements.last_mut().filter(|last| last["type"] == kind)?;
        last["elements"].as_array_mut()
    }
}

/// The number after the last item of an ordered list.
fn list_end(list: &Value) -> u64 {
    let items = list["elements"].as_array().map_or(0, Vec::len) as u64;
    list["offset"].as_u64().unwrap_or(0) + items + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formatting_is_structure_and_not_characters() {
        let elements = render(
            "Hi **bold _both_** `a*b` <b>\n\n1. one\n2. two\n   - deep\n3. three\n\n> said\n\n```rs\nlet x = 1 < 2;\n```\n[site](https://e.org/a_b_c?x=1&y=2)",
        );
        assert_eq!(
            elements,
            json!([
                { "type": "rich_text_section", "elements": [
                    { "type": "text", "text": "Hi " },
                    { "type": "text", "text": "bold ", "style": { "bold": true } },
                    { "type": "text", "text": "both", "style": { "bold": true, "italic": true } },
                    { "type": "text", "text": " " },
                    { "type": "text", "text": "a*b", "style": { "code": true } },
                    { "type": "text", "text": " " },
                    { "type": "text", "text": "<b>" },
                ] },
                { "type": "rich_text_list", "style": "ordered", "indent": 0, "elements": [
                    { "type": "rich_text_section", "elements": [{ "type": "text", "text": "one" }] },
                    { "type": "rich_text_section", "elements": [{ "type": "text", "text": "two" }] },
                ] },
                { "type": "rich_text_list", "style": "bullet", "indent": 1, "elements": [
                    { "type": "rich_text_section", "elements": [{ "type": "text", "text": "deep" }] },
                ] },
                { "type": "rich_text_list", "style": "ordered", "indent": 0, "offset": 2, "elements": [
                    { "type": "rich_text_section", "elements": [{ "type": "text", "text": "three" }] },
                ] },
                { "type": "rich_text_quote", "elements": [{ "type": "text", "text": "said" }] },
                { "type": "rich_text_preformatted", "elements": [{ "type": "text", "text": "let x = 1 < 2;" }] },
                { "type": "rich_text_section", "elements": [
                    { "type": "link", "url": "https://e.org/a_b_c?x=1&y=2", "text": "site" },
                ] },
            ])
            .as_array()
            .unwrap()
            .clone()
        );
        assert!(plain("1. one\n2. two").ends_with("1. one\n2. two"));
        assert_eq!(plain("[a](https://e.org)"), "a (https://e.org)");
        assert_eq!(block(""), None);
    }

    #[test]
    fn script_links_are_text() {
        let elements = render("[x](javascript:alert(1))");
        assert_eq!(elements[0]["elements"][0], json!({ "type": "text", "text": "x (javascript:alert(1))" }));
    }

    /// The visible text by another way: what the parser calls text, without white space.
    fn visible(markdown: &str) -> String {
        let text = Parser::new_ext(markdown, Options::ENABLE_STRIKETHROUGH).filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
                Some(text.into_string())
            }
            _ => None,
        });
        text.collect::<String>().split_whitespace().collect()
    }

    fn shown(value: &Value) -> String {
        match value {
            Value::Array(values) => values.iter().map(shown).collect(),
            Value::Object(fields) => {
                let own = fields.get("text").and_then(Value::as_str).unwrap_or_default();
                own.to_owned() + &fields.get("elements").map(shown).unwrap_or_default()
            }
            _ => String::new(),
        }
    }

    proptest! {
        #[test]
        fn no_visible_character_is_lost(markdown in "([a-z*_~`#>\\-\n 0-9.&<äé😀]|\\*\\*|```\n|\n\n|- |1\\. ){0,60}") {
            let elements = Value::Array(render(&markdown));
            let text: String = shown(&elements).replace("———", "").split_whitespace().collect();
            prop_assert_eq!(text, visible(&markdown));
        }

        #[test]
        fn any_text_is_rendered(markdown in "\\PC{0,200}") {
            for element in render(&markdown) {
                prop_assert!(!element["elements"].as_array().unwrap().is_empty());
            }
            plain(&markdown);
        }
    }
}
