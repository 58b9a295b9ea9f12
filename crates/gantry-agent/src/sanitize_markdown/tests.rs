use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};

use super::*;

const WHY: &str = "the run holds both";

fn whole(text: &str) -> String {
    super::whole(text, WHY)
}

/// As [`whole`], without the note, which must be present exactly if the text was changed.
fn sanitized(text: &str) -> String {
    let output = whole(text);
    match output.split_once("\n\n[images") {
        Some((before, _)) => {
            assert_ne!(before, text, "the text was changed, or the note is wrong");
            before.to_owned()
        }
        None => {
            assert_eq!(output, text, "a change has a note");
            output
        }
    }
}

/// Returns what Markdown parsers would fetch.
fn fetched(markdown: &str, options: Options) -> Vec<String> {
    let fetches = |event| match event {
        Event::Start(Tag::Image { dest_url, .. }) => Some(format!("picture {dest_url}")),
        Event::Html(html) | Event::InlineHtml(html) => {
            let is_tag = |(at, _)| html[at + 1..].starts_with(|c: char| c.is_ascii_alphabetic());
            html.match_indices('<').any(is_tag).then(|| format!("tag {html}"))
        }
        _ => None,
    };
    Parser::new_ext(markdown, options).filter_map(fetches).collect()
}

/// Parsers support different extensions.
fn dialects() -> [Options; 4] {
    let all = Options::all();
    [Options::empty(), all, all - Options::ENABLE_OLD_FOOTNOTES, Options::ENABLE_TABLES | Options::ENABLE_GFM]
}

#[test]
fn images_and_tags_become_text() {
    for (text, expected) in [
        ("![x](http://c/?k)", r"!\[x](http://c/?k)"),
        ("a ![x](<http://c/?k> \"t\") b", "a !\\[x](< http://c/?k> \"t\") b"),
        ("![x][r]\n\n[r]: http://c/?k", "!\\[x][r]\n\n[r]: http://c/?k"),
        ("![r]\n[r]: http://c", "!\\[r]\n[r]: http://c"),
        ("\\\\![x](u)", "\\\\!\\[x](u)"),
        ("!\u{200b}[x](u)", "!\u{200b}\\[x](u)"),
        ("<img src=http://c>", "< img src=http://c>"),
        ("<IMG\nsrc=x>", "< IMG\nsrc=x>"),
        ("</p><!-- a --><?x?>", "< /p>< !-- a -->< ?x?>"),
        ("<svg><image href=u></svg>", "< svg>< image href=u>< /svg>"),
        ("<p style=\"background:url(u)\">", "< p style=\"background:url(u)\">"),
        ("> [^1]: \n```r\n<script>", "> [^1]: \n```r\n< script>"),
        ("```&#109;ermaid\nx\n```", "```text &#109;ermaid\nx\n```"),
        ("~~~ mer&#109;aid\nx", "~~~ text mer&#109;aid\nx"),
        ("``` {.mer\u{200b}maid}\nx", "``` text {.mer\u{200b}maid}\nx"),
        ("```mermaid\nA[<img src=u>]\n```", "```text mermaid\nA[< img src=u>]\n```"),
        ("- ~~~ {.Mermaid}\n  x\n", "- ~~~ text {.Mermaid}\n  x\n"),
        ("a\n```html\n<img src=u>\n```", "a\n```text html\n<img src=u>\n```"),
        // Ambiguous code.
        ("```\n![x](u)\n```", "```\n!\\[x](u)\n```"),
        ("`a\nb` ![x](u) `", "`a\nb` !\\[x](u) `"),
        ("\\` ![x](u) `", "\\` !\\[x](u) `"),
        ("a|b\n-|-\n` | ![x](u) `", "a|b\n-|-\n` | !\\[x](u) `"),
        ("http://c/`a ![x](u) `", "http://c/`a !\\[x](u) `"),
        ("- a\n\n  ```\n![x](u)\n", "- a\n\n  ```\n!\\[x](u)\n"),
        (" ```\na\n```\n![x](u)\n```\n", " ```\na\n```\n!\\[x](u)\n```\n"),
        ("```\n``` a\n![x](u)", "```\n``` a\n!\\[x](u)"),
        ("\n+++\n```a\n+++\n![x](u)", "\n+++\n```a\n+++\n!\\[x](u)"),
        ("$$\n```\n$$\n![x](u)", "$$\n```\n$$\n!\\[x](u)"),
    ] {
        assert_eq!(sanitized(text), expected, "{text:?}");
    }
}

#[test]
fn code_and_text_that_fetches_nothing_stay_unchanged() {
    for text in [
        "Hello! [A link](http://c/), 1 < 2, a <- b, and so on!",
        "use `vec![1, 2](x)` here",
        "use ``a ` b![0]`` and `Vec<String>`, then `<img src=x>`",
        "Code:\n```rust\nlet v = vec![1, 2](x);\nlet w: Vec<String>;\n```\nand `m![x]`",
        "So:\n```\n![x](u)\n````\n",
        "one `a` two\nthree `b![c]`\n\nfour",
        "wow!\n[x]",
    ] {
        assert_eq!(whole(text), text);
    }
}

#[test]
fn only_ambiguous_spans_are_held_back() {
    let mut sanitizer = MarkdownSanitizer::new(true);
    for (text, now) in [
        ("Hel", "Hel"),
        ("lo!", "lo!"),
        (" `a!", " `a!"),
        ("[b", ""),
        ("]", ""),
        ("`.", "[b]`."),
        ("<", "<"),
        ("b", " b"),
    ] {
        assert_eq!(sanitizer.feed(text), now, "{text:?}");
    }
    let mut sanitizer = MarkdownSanitizer::new(true);
    sanitizer.feed("`![");
    let mut longest = 0;
    for _ in 0..10_000 {
        sanitizer.feed("a");
        longest = longest.max(sanitizer.held.as_ref().map_or(0, |(_, held)| held.len()));
    }
    assert!(longest <= HELD_BYTES + 2 && sanitizer.held.is_none(), "{longest}");
    assert!(sanitizer.finish(WHY).contains("an address could leak it"));
}

#[test]
fn text_does_not_complete_an_image_or_tag_of_earlier_text() {
    for (before, next) in
        [("look!", "[x](u)"), ("a <", "img src=u>"), ("a ", "```\n![x](u)\n```"), ("`", " ![x](u) `")]
    {
        let mut first = MarkdownSanitizer::new(true);
        let mut second = MarkdownSanitizer::new(false);
        let shown = first.feed(before) + &first.finish(WHY) + &second.feed(next) + &second.finish(WHY);
        assert_eq!(fetched(&shown, Options::all()), [""; 0], "{shown:?}");
    }
}

#[test]
fn note_names_the_steps_and_is_sanitized() {
    let mut sanitizer = MarkdownSanitizer::new(true);
    sanitizer.feed("![x](u)");
    let note = sanitizer.finish("both (web_fetch http://c/![y](http://c/))");
    assert!(note.contains(r"web_fetch http://c/!\[y]"), "{note}");
}

/// Pieces that have a meaning together.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "!",
        "[",
        "]",
        "(",
        ")",
        "![",
        "](http://c/)",
        "![x](http://c/)",
        "![r]",
        "[r]: http://c/\n",
        "`",
        "``",
        "```",
        "````",
        "~~~",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        " ",
        "   ",
        "    ",
        "\t",
        "> ",
        "- ",
        "1. ",
        "a",
        "b c",
        "<",
        ">",
        "<img src=http://c/>",
        "<div>",
        "</div>",
        "<!--",
        "-->",
        "<a@b.c>",
        "<`@b.c>",
        "<http://c/`>",
        "\\",
        "$",
        "$$",
        "|",
        "a|b\n-|-\n",
        "*",
        "_",
        "#",
        "---\n",
        "+++\n",
        "=",
        ":",
        ": ",
        ":::",
        "&lt;",
        "[^1]: ",
        "[[",
        "]]",
        "{",
        "}",
        "http://c/",
        "mermaid",
        "\u{200b}",
        "\u{a0}",
        "\"",
        "'",
        "| ",
        "==",
        "~",
        "^",
        "<script>",
        "- [ ] ",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: gantry_testkit::scaled(300_000, 20_000), ..ProptestConfig::default() })]

    #[test]
    fn sanitized_text_fetches_nothing(text in pieces()) {
        let shown = whole(&text);
        for options in dialects() {
            prop_assert_eq!(fetched(&shown, options), Vec::<String>::new(), "{:?}", shown);
        }
    }

    #[test]
    fn output_does_not_depend_on_how_the_stream_is_split(text in pieces(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).filter(|&at| text.is_char_boundary(at)).collect();
        at.extend([0, text.len()]);
        at.sort_unstable();
        let mut sanitizer = MarkdownSanitizer::new(true);
        let mut shown: String = at.windows(2).map(|cut| sanitizer.feed(&text[cut[0]..cut[1]])).collect();
        shown += &sanitizer.finish(WHY);
        prop_assert_eq!(shown, whole(&text));
    }
}
