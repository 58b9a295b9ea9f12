use proptest::prelude::*;

use super::telegram::Entity;
use super::*;

const SAMPLE: &str = "# Title\n\nHello **bold _both_** and `code`, see [the page](https://example.com/a_b_c).\n\n\
- one\n- two\n  1. deep\n\n> quoted\n> text\n\n```rust\nfn main() {}\n```\n\n| a | b |\n|---|---|\n| 1 | *2* |\n";

/// All text of a document. Headers of a table that is continued count once.
fn visible(blocks: &[Block], header_before: &mut Vec<Rich>, out: &mut String) {
    for block in blocks {
        match block {
            Block::Paragraph(text) | Block::Heading { text, .. } => out.push_str(&text.text),
            Block::Code { text, .. } => out.push_str(text),
            Block::Quote(blocks) => visible(blocks, header_before, out),
            Block::List { items, .. } => items.iter().for_each(|item| visible(item, header_before, out)),
            Block::Table { header, rows } => {
                if header_before != header {
                    header.iter().for_each(|cell| out.push_str(&cell.text));
                }
                header_before.clone_from(header);
                rows.iter().flatten().for_each(|cell| out.push_str(&cell.text));
            }
            Block::Rule => {}
        }
    }
}

fn visible_of<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let (mut header, mut out) = (Vec::new(), String::new());
    for part in parts {
        visible(&blocks(part), &mut header, &mut out);
    }
    // The headers of generated tables may be repeated. Cells of a row that is too long are joined with bars, and addresses that are too long for a link are written.
    let out = out.replace("(pic.png)", "");
    out.chars().filter(|c| !c.is_whitespace() && !matches!(c, '|' | 'ⓗ')).collect()
}

fn utf16(text: &str) -> usize {
    telegram::measure(text)
}

#[track_caller]
fn check_split(markdown: &str, limit: usize) -> Vec<String> {
    let parts = split(markdown, limit, &utf16);
    for part in &parts {
        assert!(utf16(part) <= limit, "{} > {limit}: {part:?}\nof {markdown:?}", utf16(part));
        assert!(!part.trim().is_empty());
    }
    let joined = visible_of(parts.iter().map(String::as_str));
    assert_eq!(joined, visible_of([markdown]), "{parts:#?}\nof {markdown:?}");
    parts
}

fn texts(parts: &[String]) -> Vec<String> {
    parts.iter().map(|part| telegram::render(part).text).collect()
}

#[test]
fn short_text_is_one_part_and_empty_text_has_none() {
    assert_eq!(split(SAMPLE, 4096, &utf16), [SAMPLE]);
    assert_eq!(split(" \n\n", 10, &utf16), Vec::<String>::new());
}

#[test]
fn text_is_cut_at_the_largest_boundary() {
    let paragraphs = "First paragraph here.\n\nSecond paragraph.";
    assert_eq!(check_split(paragraphs, 30), ["First paragraph here.", "Second paragraph."]);
    assert_eq!(check_split("line number one\nline number two", 20), ["line number one", "line number two"]);
    let sentences = "This is short. And this is the second sentence.";
    assert_eq!(check_split(sentences, 25)[0], "This is short.");
    assert_eq!(check_split("word another more", 10), ["word", "another", "more"]);
    assert_eq!(check_split("abcdefghij", 4), ["abcd", "efgh", "ij"]);
}

#[test]
fn heading_stays_with_its_text() {
    let markdown = "Some introduction of the topic.\n\n## Part\n\nThe text of the part.";
    assert_eq!(check_split(markdown, 40)[1], "## Part\n\nThe text of the part.");
}

#[test]
fn code_that_is_cut_is_closed_and_opened_with_its_language() {
    let code = "Text before\n\n```rust\nlet a = 1;\nlet b = 2;\n\nlet c = \"```\";\n```\n\nafter";
    let parts = check_split(code, 36);
    assert!(parts.len() > 1, "{parts:?}");
    let with_code =
        parts.iter().flat_map(|part| blocks(part)).filter(|block| matches!(block, Block::Code { .. }));
    assert!(with_code.clone().count() > 1);
    for block in with_code {
        assert!(matches!(&block, Block::Code { language, .. } if language == "rust"), "{block:?}");
    }
    let nested = "- item\n\n  ```sh\n  one\n  two\n  three\n  ```\n- last";
    assert!(check_split(nested, 14).len() > 1);
}

#[test]
fn links_and_graphemes_are_not_cut() {
    let link = "Please read [the manual of this](https://example.com/x?a=1&amp=2) now";
    for part in check_split(link, 24) {
        let message = telegram::render(&part);
        if part.contains("manual") {
            assert_eq!(message.entities[0].url.as_deref(), Some("https://example.com/x?a=1&amp=2"), "{part}");
            assert!(message.text.contains("the manual of this"), "{part}");
        }
    }
    let family = "👨‍👩‍👧‍👦".repeat(5);
    assert_eq!(check_split(&family, 25), ["👨‍👩‍👧‍👦".repeat(2), "👨‍👩‍👧‍👦".repeat(2), "👨‍👩‍👧‍👦".to_owned()]);
    // A character with more marks than a message has room for is cut rather than lost.
    let marks = format!("a{}", "\u{301}".repeat(50));
    assert!(check_split(&marks, 20).len() == 3);
}

#[test]
fn styles_continue_in_the_next_part() {
    for part in check_split("**all of this is bold and long**", 14) {
        assert_eq!(telegram::render(&part).entities[0].kind, "bold", "{part}");
    }
}

#[test]
fn numbers_of_a_list_go_on() {
    let list = "1. one one\n2. two two\n3. three three\n4. four";
    let shown = texts(&check_split(list, 24)).join("\n");
    assert_eq!(shown, "1. one one\n2. two two\n3. three three\n4. four");
}

#[test]
fn table_parts_repeat_the_header() {
    let rows: String = (0..20).map(|row| format!("| {row} | value {row} |\n")).collect();
    let parts = check_split(&format!("| id | text |\n|---|---|\n{rows}"), 120);
    assert!(parts.len() > 2);
    assert!(parts.iter().all(|part| part.starts_with("| id | text |")), "{parts:?}");
    check_split(&format!("| h |\n|---|\n| {} |\n| b |", "long ".repeat(50)), 60);
}

#[test]
fn million_characters_are_split_in_time() {
    for text in
        ["x".repeat(1 << 20), "word ".repeat(1 << 16), "* a\n".repeat(1 << 13), "> ".repeat(1 << 13) + "a"]
    {
        let begin = std::time::Instant::now();
        let parts = split(&text, 4096, &utf16);
        assert!(parts.iter().all(|part| utf16(part) <= 4096));
        assert!(begin.elapsed().as_secs() < 60, "{:?} for {:?}", begin.elapsed(), &text[..10]);
    }
}

#[test]
fn telegram_gets_text_and_entities() {
    let message = telegram::render(SAMPLE);
    assert_eq!(
        message.text,
        "Title\n\nHello bold both and code, see the page.\n\n• one\n• two\n  1. deep\n\nquoted\ntext\n\n\
         fn main() {}\n\na | b\n--+--\n1 | 2"
    );
    let units: Vec<u16> = message.text.encode_utf16().collect();
    let part =
        |entity: &Entity| String::from_utf16(&units[entity.offset..entity.offset + entity.length]).unwrap();
    let found: Vec<_> = message.entities.iter().map(|entity| (entity.kind, part(entity))).collect();
    let expected = [
        ("bold", "Title"),
        ("bold", "bold both"),
        ("italic", "both"),
        ("code", "code"),
        ("text_link", "the page"),
        ("blockquote", "quoted\ntext"),
        ("pre", "fn main() {}"),
        ("pre", "a | b\n--+--\n1 | 2"),
    ];
    assert_eq!(found, expected.map(|(kind, text)| (kind, text.to_owned())));
    assert_eq!(message.entities[6].language.as_deref(), Some("rust"));
}

#[test]
fn entity_offsets_count_utf16_units() {
    let message = telegram::render("😀 **ä😀**");
    assert_eq!((message.entities[0].offset, message.entities[0].length), (3, 3));
}

#[test]
fn addresses_keep_every_character() {
    let url = "https://example.com/a_b_c/*x*/~y~?q=1&r=_2_";
    for markdown in [url.to_owned(), format!("[page]({url})"), format!("<{url}>")] {
        assert!(plain::render(&markdown).contains(url) || !markdown.contains('<'), "{markdown}");
    }
    assert!(whatsapp::render(&format!("[page](<{url}>)")).contains(url));
    assert_eq!(plain::render("[page](https://x.y/a_b)"), "page (https://x.y/a_b)");
    assert_eq!(plain::render("[https://x.y](https://x.y/)"), "https://x.y");
}

#[test]
fn whatsapp_gets_its_own_markup() {
    assert_eq!(
        whatsapp::render(SAMPLE),
        "*Title*\n\nHello *bold _both_* and `code`, see the page (https://example.com/a_b_c).\n\n\
         • one\n• two\n  1. deep\n\n> quoted\n> text\n\n```fn main() {}```\n\n• *a*: 1, *b*: _2_"
    );
    assert_eq!(whatsapp::render("in**side** and 2*3"), "inside and 2*3");
    assert_eq!(whatsapp::render("a \\*literal\\* star"), "a *\u{2060}literal* star");
    assert_eq!(whatsapp::render("**two\nlines**"), "*two*\n*lines*");
}

#[test]
fn html_escapes_everything() {
    assert_eq!(
        html::render("a <script>x</script> & **b** [l](javascript:alert(1)) [m](https://x.y/?a=\"&b)"),
        "<p>a &lt;script&gt;x&lt;/script&gt; &amp; <strong>b</strong> l (javascript:alert(1)) \
         <a href=\"https://x.y/?a=&quot;&amp;b\">m</a></p>"
    );
    assert_eq!(
        html::render(SAMPLE),
        "<h1>Title</h1><p>Hello <strong>bold <em>both</em></strong> and <code>code</code>, see \
         <a href=\"https://example.com/a_b_c\">the page</a>.</p><ul><li>one</li><li>two<ol><li>deep</li></ol></li></ul>\
         <blockquote><p>quoted<br>text</p></blockquote><pre><code class=\"language-rust\">fn main() {}\n</code></pre>\
         <table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><em>2</em></td></tr></tbody></table>"
    );
}

/// Pieces of Markdown that are hard to cut.
fn piece() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[a-z]{1,12}",
        "[A-Za-z0-9_*~`\\[\\]()<>&;#!|.\\\\-]{1,12}",
        Just("👨‍👩‍👧‍👦".to_owned()),
        Just("🇩🇪e\u{301}".to_owned()),
        Just("日本語。".to_owned()),
        "[a-z]{60,200}",
        Just("https://example.com/a_b_c?x=1&y=2".to_owned()),
        Just("&amp;".to_owned()),
    ];
    let words = proptest::collection::vec(word, 1..12).prop_map(|words| words.join(" "));
    (words, 0..14_u8).prop_map(|(words, kind)| match kind {
        0 => format!("**{words}**"),
        1 => format!("[{words}](https://example.com/{})", words.len()),
        2 => format!("```sh\n{}\n```\n\n", words.replace(' ', "\n")),
        3 => format!("| ⓗ | ⓗ |\n|---|---|\n| {words} | x |\n| y | {words} |\n\n"),
        4 => words.split(' ').map(|word| format!("- {word}\n")).collect(),
        5 => format!("> {words}\n> - {words}\n\n"),
        6 => format!("1. {words}\n2. {words}\n\n   {words}\n\n"),
        7 => format!("`{words}` "),
        8 => format!("# {words}\n\n"),
        9 => format!("*{words}* ~~{words}~~\n"),
        10 => format!("    {words}\n\n"),
        11 => format!("![{words}](pic.png)\n\n---\n\n"),
        _ => format!("{words}. {words}\n\n"),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn nothing_is_lost_when_text_is_split(
        pieces in proptest::collection::vec(piece(), 1..8),
        limit in 40..300_usize,
    ) {
        check_split(&pieces.concat(), limit);
    }

    #[test]
    fn written_markdown_reads_the_same(pieces in proptest::collection::vec(piece(), 1..6)) {
        let markdown = pieces.concat();
        let written = markdown::write(&blocks(&markdown));
        prop_assert_eq!(visible_of([written.as_str()]), visible_of([markdown.as_str()]), "{}", written);
    }

    #[test]
    fn renderers_show_all_text(pieces in proptest::collection::vec(piece(), 1..6)) {
        let markdown = pieces.concat();
        let message = telegram::render(&markdown);
        let length = message.text.encode_utf16().count();
        prop_assert!(message.entities.iter().all(|entity| entity.offset + entity.length <= length && entity.length > 0));
        let joined = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
        let expected = joined(&visible_of([markdown.as_str()]));
        for shown in [message.text, whatsapp::render(&markdown), html::render(&markdown), discord::render(&markdown)] {
            let shown = joined(&shown);
            let mut rest = shown.chars();
            // Renderers add markers, numbers and addresses, but leave nothing out.
            let lost = expected.chars().filter(|wanted| !rest.any(|c| c == *wanted)).count();
            prop_assert!(lost == 0 || markdown.contains('|'), "{} characters of {}", lost, markdown);
        }
    }

    #[test]
    fn html_has_only_known_tags(markdown in "([a-z<>&\"*_`#|\\[\\]()!\n -]|https://x\\.y/){0,80}") {
        let html = html::render(&markdown);
        let known = [
            "p", "br", "hr", "a", "em", "strong", "del", "code", "pre", "ul", "ol", "li", "blockquote", "table", "thead",
            "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6",
        ];
        let mut rest = html.as_str();
        while let Some((_, after)) = rest.split_once('<') {
            let (tag, next) = after.split_once('>').unwrap();
            let name = tag.trim_start_matches('/').split_whitespace().next().unwrap_or_default();
            prop_assert!(known.contains(&name), "{} in {}", name, html);
            rest = next;
        }
    }

    #[test]
    fn any_text_is_split(text in "\\PC{0,300}", limit in 20..60_usize) {
        check_split(&text, limit);
    }
}
