//! Renders Markdown as the small HTML that Matrix and mail programs show. Tags in the input become text, pictures become
//! links, and links with other schemes than the web's become their label.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

const SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

pub(crate) fn markdown_html(markdown: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer =
        Writer { html: String::with_capacity(markdown.len() * 2), links: Vec::new(), in_head: false };
    for event in Parser::new_ext(markdown, options) {
        writer.event(event);
    }
    writer.html.truncate(writer.html.trim_end().len());
    writer.html
}

/// Escapes text for HTML, attribute values included.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    push_escaped(&mut escaped, text);
    escaped
}

fn push_escaped(html: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            _ => html.push(c),
        }
    }
}

struct Writer {
    html: String,
    /// Whether each open link was written as one.
    links: Vec<bool>,
    in_head: bool,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(end),
            Event::Code(text) => {
                self.html.push_str("<code>");
                push_escaped(&mut self.html, &text);
                self.html.push_str("</code>");
            }
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => push_escaped(&mut self.html, &text),
            Event::SoftBreak | Event::HardBreak => self.html.push_str("<br>\n"),
            Event::Rule => self.html.push_str("<hr>\n"),
            Event::TaskListMarker(is_done) => self.html.push_str(if is_done { "☑ " } else { "☐ " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.html.push_str("<p>"),
            Tag::Heading { level, .. } => self.html.push_str(&format!("<{level}>")),
            Tag::BlockQuote(_) => self.html.push_str("<blockquote>\n"),
            Tag::CodeBlock(kind) => {
                let language = match &kind {
                    CodeBlockKind::Fenced(info) => info.split_whitespace().next().unwrap_or_default(),
                    CodeBlockKind::Indented => "",
                };
                self.html.push_str("<pre><code");
                if !language.is_empty() {
                    self.html.push_str(" class=\"language-");
                    push_escaped(&mut self.html, language);
                    self.html.push('"');
                }
                self.html.push('>');
            }
            Tag::List(None) => self.html.push_str("<ul>\n"),
            Tag::List(Some(1)) => self.html.push_str("<ol>\n"),
            Tag::List(Some(first)) => self.html.push_str(&format!("<ol start=\"{first}\">\n")),
            Tag::Item => self.html.push_str("<li>"),
            Tag::Table(_) => self.html.push_str("<table>\n"),
            Tag::TableHead => {
                self.in_head = true;
                self.html.push_str("<thead><tr>");
            }
            Tag::TableRow => self.html.push_str("<tr>"),
            Tag::TableCell => self.html.push_str(if self.in_head { "<th>" } else { "<td>" }),
            Tag::Emphasis => self.html.push_str("<em>"),
            Tag::Strong => self.html.push_str("<strong>"),
            Tag::Strikethrough => self.html.push_str("<del>"),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                // A link within a link is not valid HTML.
                let is_link = !self.links.contains(&true) && is_web(&dest_url);
                if is_link {
                    self.html.push_str("<a href=\"");
                    push_escaped(&mut self.html, &dest_url);
                    self.html.push_str("\">");
                }
                self.links.push(is_link);
            }
            Tag::HtmlBlock
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, end: TagEnd) {
        match end {
            TagEnd::Paragraph => self.html.push_str("</p>\n"),
            TagEnd::Heading(level) => self.html.push_str(&format!("</{level}>\n")),
            TagEnd::BlockQuote(_) => self.html.push_str("</blockquote>\n"),
            TagEnd::CodeBlock => self.html.push_str("</code></pre>\n"),
            TagEnd::List(true) => self.html.push_str("</ol>\n"),
            TagEnd::List(false) => self.html.push_str("</ul>\n"),
            TagEnd::Item => self.html.push_str("</li>\n"),
            TagEnd::Table => self.html.push_str("</tbody></table>\n"),
            TagEnd::TableHead => {
                self.in_head = false;
                self.html.push_str("</tr></thead><tbody>\n");
            }
            TagEnd::TableRow => self.html.push_str("</tr>\n"),
            TagEnd::TableCell => self.html.push_str(if self.in_head { "</th>" } else { "</td>" }),
            TagEnd::Emphasis => self.html.push_str("</em>"),
            TagEnd::Strong => self.html.push_str("</strong>"),
            TagEnd::Strikethrough => self.html.push_str("</del>"),
            TagEnd::Link | TagEnd::Image => {
                if self.links.pop() == Some(true) {
                    self.html.push_str("</a>");
                }
            }
            TagEnd::HtmlBlock
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }
}

fn is_web(url: &str) -> bool {
    SCHEMES
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markdown_becomes_the_small_html() {
        for (markdown, html) in [
            (
                "*a* **b** ~~c~~ `<d>`",
                "<p><em>a</em> <strong>b</strong> <del>c</del> <code>&lt;d&gt;</code></p>",
            ),
            ("one\ntwo", "<p>one<br>\ntwo</p>"),
            ("# T", "<h1>T</h1>"),
            ("3. x\n4. y", "<ol start=\"3\">\n<li>x</li>\n<li>y</li>\n</ol>"),
            (
                "```rust x\nlet a = \"&\";\n```",
                "<pre><code class=\"language-rust\">let a = &quot;&amp;&quot;;\n</code></pre>",
            ),
            (
                "[a_b](https://x.example/a_b_c?d=1&e=2)",
                "<p><a href=\"https://x.example/a_b_c?d=1&amp;e=2\">a_b</a></p>",
            ),
            ("- [x] done\n- [ ] open", "<ul>\n<li>☑ done</li>\n<li>☐ open</li>\n</ul>"),
        ] {
            assert_eq!(markdown_html(markdown), html);
        }
    }

    #[test]
    fn tags_scripts_and_pictures_of_the_input_do_no_harm() {
        let html = markdown_html(
            "<script>alert(1)</script>\n\n<b>x</b> [y](javascript:alert(1)) ![pixel](https://evil.example/p.png) [q](\"onclick=x)",
        );
        assert!(!html.contains("<script") && !html.contains("<b>") && !html.contains("<img"), "{html}");
        assert!(!html.contains("javascript:"), "{html}");
        assert!(html.contains("<a href=\"https://evil.example/p.png\">pixel</a>"), "{html}");
    }

    proptest! {
        #[test]
        fn words_stay_and_only_known_tags_appear(markdown in "([a-z<>&\"*_`#|\\[\\]()!\n -]|https://x\\.y/){0,80}") {
            let html = markdown_html(&markdown);
            let mut rest = html.as_str();
            while let Some((_, after)) = rest.split_once('<') {
                let (tag, next) = after.split_once('>').unwrap();
                let name = tag.trim_start_matches('/').split_whitespace().next().unwrap_or_default();
                prop_assert!(
                    ["p", "br", "hr", "a", "em", "strong", "del", "code", "pre", "ul", "ol", "li", "blockquote", "table",
                     "thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6"].contains(&name),
                    "{} in {}", name, html
                );
                rest = next;
            }
        }
    }
}
