//! Markdown to Docs to Markdown, with a model of a document that applies the requests as Docs does.

use gantry_testkit::Random;
use gantry_testkit::google::StoredDocument;
use serde_json::{Value, json};

use super::block::{Block, Span};
use super::{Document, append_plan, footnote_requests, parse, render, tabs};

fn stored(document: &StoredDocument) -> Document {
    serde_json::from_value(document.json("document-1", false)).unwrap()
}

/// Appends Markdown to a document, as the tool does.
fn append(document: &mut StoredDocument, markdown: &str) {
    let (end, is_empty) = stored(document).end();
    let plan = append_plan(&parse(markdown), end, is_empty);
    let replies = document.apply(&Value::from(plan.requests.clone())).unwrap_or_else(|why| {
        panic!("{why}\n{markdown}\n{}", serde_json::to_string_pretty(&plan.requests).unwrap());
    });
    for (request, spans) in plan.footnotes {
        let id = replies[request]["createFootnote"]["footnoteId"].as_str().unwrap();
        document.apply(&Value::from(footnote_requests(id, &spans))).unwrap();
    }
}

fn read(document: &StoredDocument) -> String {
    let tabs = tabs(&stored(document));
    render(&tabs[0].blocks)
}

fn round_trip(markdown: &str) -> String {
    let mut document = StoredDocument::new("x");
    append(&mut document, markdown);
    read(&document)
}

#[test]
fn markdown_survives_a_document() {
    for markdown in [
        "Hello\n",
        "# One\n\n## Two\n\n###### Six\n\nText\n",
        "A **bold** and *italic* and ~~struck~~ and `code` text\n",
        "**all *of* it**\n",
        "A [link](https://example.org/a?b=c#d) and [**bold link**](mailto:a@b.example)\n",
        "- a\n- b\n  - c\n    - d\n- e\n",
        "1. a\n2. b\n   1. c\n   2. d\n3. e\n",
        "- a\n  1. b\n  2. c\n- d\n",
        "- a\n1. b\n\nText\n\n- c\n",
        "| a | b |\n| --- | --- |\n| **c** | `d` |\n| e\\|f |  |\n",
        "Before\n\n| a |\n| --- |\n| b |\n\nAfter\n",
        "| a |\n| --- |\n| b |\n\n| c |\n| --- |\n| d |\n",
        "```\nfn main() {\n    let a = 1;\n\n\tb();\n}\n```\n",
        "A\n\n---\n\nB\n",
        "> quoted *text*\n\nnot quoted\n",
        "one\\\ntwo\\\nthree\n",
        "- one\\\n  two\n- three\n",
        "Emoji 👨\u{200d}👩\u{200d}👧 and 𝄞 then **bold** and `c`\n",
        "日本語 **太字** ümläut\n",
        "A note[^1] and another[^2].\n\n[^1]: first *x*\n\n[^2]: second\n",
        "1\\. not a list\n\n\\# not a heading\n\n\\- not an item\n\n\\> no quote\n",
        "snake\\_case \\*stars\\* \\[brackets\\] \\<b> \\& \\~x\\~ back\\\\slash \\`tick\\`\n",
        "``a`b`` and `x`\n",
        "# A `code` **heading**\n",
        "| x<br>y | [l](https://a.example) |\n| --- | --- |\n",
        "",
    ] {
        let expected = match markdown.contains("[^1]") {
            // The text of a footnote keeps no style.
            true => markdown.replace("*x*", "x"),
            false => markdown.to_owned(),
        };
        assert_eq!(round_trip(markdown), expected, "{markdown}");
    }
}

#[test]
fn unsafe_parts_become_plain_text() {
    for (markdown, expected) in [
        ("[x](javascript:alert(1))\n", "x\n"),
        ("[x](file:///etc/passwd)\n", "x\n"),
        ("![pixel](https://evil.example/p.png?d=1)\n", "[pixel](https://evil.example/p.png?d=1)\n"),
        ("<script>alert(1)</script>\n", "\\<script>alert(1)\\</script>\n"),
        ("a\u{1}b\u{e907}c **d**\n", "abc **d**\n"),
    ] {
        assert_eq!(round_trip(markdown), expected);
    }
}

#[test]
fn text_is_appended_after_what_is_there() {
    let mut document = StoredDocument::new("x");
    for part in ["First\n", "- a\n- **b**\n", "| t |\n| --- |\n| u |\n", "# Last\n"] {
        append(&mut document, part);
    }
    assert_eq!(read(&document), "First\n\n- a\n- **b**\n\n| t |\n| --- |\n| u |\n\n# Last\n");
    // A heading before the new text does not make it a heading, and bold text does not make it bold.
    append(&mut document, "plain\n");
    assert!(read(&document).ends_with("# Last\n\nplain\n"), "{}", read(&document));
}

#[test]
fn hundred_generated_documents_are_stable() {
    let mut random = Random::new();
    for round in 0..100 {
        let blocks = generated(&mut random);
        let markdown = render(&blocks);
        let again = round_trip(&markdown);
        assert_eq!(again, markdown, "round {round}: {blocks:#?}");
        assert_eq!(words(&blocks), words(&parse(&markdown)), "round {round}");
    }
}

/// All text of blocks, without its form.
fn words(blocks: &[Block]) -> String {
    let text = |spans: &[Span]| spans.iter().map(|span| span.text.clone()).collect::<String>();
    let all = blocks.iter().map(|block| match block {
        Block::Paragraph { spans, .. } | Block::ListItem { spans, .. } | Block::Footnote { spans, .. } => {
            text(spans)
        }
        Block::Code(code) => code.clone(),
        Block::Rule => String::new(),
        Block::Table(rows) => rows.iter().flatten().map(|cell| text(cell)).collect::<Vec<_>>().join(" "),
    });
    all.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

const WORDS: &[&str] = &[
    "alpha",
    "Straße",
    "日本",
    "👩\u{200d}🚀",
    "a_b_c",
    "*",
    "**",
    "1.",
    "#",
    "-",
    "[x](y)",
    "<b>",
    "&amp;",
    "`",
    "|",
    "~~",
    "\\",
    "end.",
    "(brackets)",
    "𝄞",
    "!",
    "x=1",
    ">",
    "+",
    "http://example.org",
    "\"quoted\"",
];

fn spans(random: &mut Random, in_line: bool) -> Vec<Span> {
    let count = random.below(4) + 1;
    let mut spans = Vec::new();
    for _ in 0..count {
        let text: Vec<&str> = (0..random.below(3) + 1).map(|_| WORDS[random.below(WORDS.len())]).collect();
        let mut span = Span::plain(text.join(" "));
        match random.below(8) {
            0 => span.bold = true,
            1 => span.italic = true,
            2 => (span.bold, span.italic) = (true, true),
            3 => span.strike = true,
            4 => span.code = true,
            5 => span.link = Some("https://example.org/a_(b)".to_owned()),
            _ => {}
        }
        if random.below(3) > 0 || span.code {
            spans.push(Span::plain(" "));
        }
        if !in_line && random.below(10) == 0 {
            spans.push(Span::plain("\u{b}"));
        }
        spans.push(span);
    }
    spans
}

fn generated(random: &mut Random) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut level = None;
    for _ in 0..random.below(8) + 1 {
        let kind = random.below(9);
        if !(3..=5).contains(&kind) {
            level = None;
        }
        blocks.push(match kind {
            0 => Block::Paragraph {
                spans: spans(random, true),
                heading: 1 + random.below(6) as u8,
                is_quote: false,
            },
            1 => Block::Paragraph { spans: spans(random, false), heading: 0, is_quote: true },
            3..=5 => {
                let deepest = level.map_or(0, |level: u8| (level + 1).min(4));
                let own = random.below(usize::from(deepest) + 1) as u8;
                level = Some(own);
                Block::ListItem { spans: spans(random, false), level: own, is_ordered: false }
            }
            6 => Block::Code(["let a = 1;", "", "    ``` b", "\tc"][..random.below(4) + 1].join("\n")),
            7 => Block::Rule,
            8 => {
                let columns = random.below(3) + 1;
                let row = |random: &mut Random| (0..columns).map(|_| spans(random, false)).collect();
                Block::Table((0..random.below(3) + 1).map(|_| row(random)).collect())
            }
            _ => Block::Paragraph { spans: spans(random, false), heading: 0, is_quote: false },
        });
    }
    blocks
}

#[test]
fn elements_of_real_documents_are_read() {
    let document: Document = serde_json::from_value(json!({
        "title": "Plan",
        "tabs": [{
            "tabProperties": {"tabId": "t.0", "title": "Main"},
            "documentTab": {
                "body": {"content": [
                    {"endIndex": 1, "sectionBreak": {}},
                    {"startIndex": 1, "endIndex": 9, "paragraph": {
                        "paragraphStyle": {"namedStyleType": "TITLE"},
                        "elements": [{"textRun": {"content": "The \u{e907}plan\n", "textStyle": {"link": {"headingId": "h.1"}}}}],
                    }},
                    {"startIndex": 9, "endIndex": 20, "paragraph": {
                        "paragraphStyle": {"namedStyleType": "NORMAL_TEXT"},
                        "elements": [
                            {"person": {"personProperties": {"name": "Ann", "email": "ann@a.example"}}},
                            {"textRun": {"content": " met "}},
                            {"richLink": {"richLinkProperties": {"title": "Doc", "uri": "https://docs.google.com/d/1"}}},
                            {"inlineObjectElement": {"inlineObjectId": "o1"}},
                            {"dateElement": {"dateElementProperties": {"displayText": "Nov 18"}}},
                            {"horizontalRule": {}},
                            {"equation": {}},
                            {"somethingNew": {}},
                        ],
                    }},
                    {"startIndex": 20, "endIndex": 30, "tableOfContents": {"content": []}},
                ]},
                "inlineObjects": {"o1": {"inlineObjectProperties": {"embeddedObject": {"title": "Chart"}}}},
            },
            "childTabs": [{
                "tabProperties": {"tabId": "t.1", "title": "Child"},
                "documentTab": {"body": {"content": [{"paragraph": {"elements": [
                    {"textRun": {"content": "inside", "textStyle": {"link": {"url": "https://a.example"}}}},
                ]}}]}},
            }],
        }],
    }))
    .unwrap();
    let tabs = tabs(&document);
    assert_eq!(
        render(&tabs[0].blocks),
        "# The plan\n\n---\n\nAnn \\<ann@a.example> met [Doc](https://docs.google.com/d/1)(image: Chart)Nov 18(equation)\n"
    );
    assert_eq!(
        (tabs[1].title.as_str(), render(&tabs[1].blocks).as_str()),
        ("Child", "[inside](https://a.example)\n")
    );
    assert_eq!((document.occurrences("inside"), document.occurrences("x")), (1, 0));
}
