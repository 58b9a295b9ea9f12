//! Pages that are built to do harm: no panic, no overflow, and a cost that is linear in the length
//! of the page.

use std::time::{Duration, Instant};

use gantry_page::{article, html_to_text};
use gantry_testkit::{is_soak, seed};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use url::Url;

fn runner(full: u32) -> TestRunner {
    let cases = if is_soak() { full } else { full / 20 };
    let rng_seed = RngSeed::Fixed(seed());
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() })
}

/// Generates pieces of markup, complete and torn.
fn piece() -> impl Strategy<Value = String> {
    const NAMES: [&str; 44] = [
        "a",
        "p",
        "div",
        "span",
        "b",
        "i",
        "code",
        "pre",
        "ul",
        "ol",
        "li",
        "table",
        "tr",
        "td",
        "th",
        "thead",
        "tbody",
        "caption",
        "blockquote",
        "h1",
        "h2",
        "h6",
        "br",
        "hr",
        "img",
        "q",
        "del",
        "sup",
        "svg",
        "math",
        "foreignObject",
        "template",
        "noscript",
        "script",
        "style",
        "title",
        "textarea",
        "select",
        "option",
        "dl",
        "dt",
        "dd",
        "body",
        "plaintext",
    ];
    const ATTRIBUTES: [&str; 14] = [
        "",
        " hidden",
        " href=/x",
        " href='y é'",
        " href=\"#z\"",
        " style='display:none'",
        " alt='a \u{e9}'",
        " colspan=9999999999",
        " start=-9223372036854775808",
        " value=9223372036854775807",
        " class='language-x'",
        " aria-hidden=true",
        " open",
        " x=\"",
    ];
    const OTHERS: [&str; 18] = [
        "text ",
        "é€😀",
        "\u{a0}\u{ad}",
        "\n\n",
        "|",
        "`",
        "```",
        "&amp;",
        "&#x1F600;",
        "&notit;",
        "&",
        "<",
        "</",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "\0",
    ];
    prop_oneof![
        4 => (prop::sample::select(&NAMES[..]), prop::sample::select(&ATTRIBUTES[..])).prop_map(|(name, attribute)| format!("<{name}{attribute}>")),
        3 => prop::sample::select(&NAMES[..]).prop_map(|name| format!("</{name}>")),
        3 => prop::sample::select(&OTHERS[..]).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
    ]
}

#[test]
fn no_page_causes_a_panic() {
    let base = Url::parse("https://example.com/a/").unwrap();
    let pages = proptest::collection::vec(piece(), 0..120);
    runner(40_000)
        .run(&pages, |pieces| {
            let html = pieces.concat();
            let text = html_to_text(&html, Some(&base));
            // Markup adds signs and addresses, but never much more than its own length.
            prop_assert!(text.len() <= 60 * html.len() + 100, "{} became {}", html.len(), text.len());
            Ok(())
        })
        .unwrap();
    runner(1_000)
        .run(&proptest::collection::vec(piece(), 0..60), |pieces| {
            let _ = article(&pieces.concat(), Some(&base));
            Ok(())
        })
        .unwrap();
}

#[test]
fn hidden_text_is_never_shown() {
    let hidden = prop::sample::select(
        &[
            "<script>SECRET</script>",
            "<style>SECRET</style>",
            "<template>SECRET</template>",
            "<div hidden>SECRET</div>",
            "<p style='display:none'>SECRET</p>",
            "<span aria-hidden=true>SECRET<b>SECRET</b></span>",
            "<div hidden><table><tr><td>SECRET</td></tr></table></div>",
            "<ul hidden><li>SECRET<li>SECRET</ul>",
            "<svg><text>SECRET</text></svg>",
            "<!-- SECRET -->",
            "<input type=hidden value=SECRET>",
        ][..],
    );
    // The surrounding markup is well-formed. Torn markup may reveal the text, in a browser too.
    let sound = prop::sample::select(
        &[
            "<div>x</div>",
            "<p>y",
            "<b>z</b>",
            "<ul><li>a<li>b</ul>",
            "<table><tr><td>1<td>2</table>",
            "<h2>h</h2>",
            "<div>",
            "</div>",
            "<td>",
            "<a href=/x>l</a>",
            "<br>",
        ][..],
    );
    let around = proptest::collection::vec(sound, 0..20);
    runner(20_000)
        .run(&(around.clone(), hidden, around), |(before, hidden, after)| {
            let html = [before.concat(), hidden.to_owned(), after.concat()].concat();
            prop_assert!(!html_to_text(&html, None).contains("SECRET"), "{html}");
            Ok(())
        })
        .unwrap();
}

const SIZE: usize = 200_000;

/// Each is repeated to fill a page.
const COSTLY: [&str; 28] = [
    "<div>",
    "<p>",
    "<b>",
    "<ul><li>",
    "<ol><li>x",
    "<blockquote>",
    "<blockquote>x",
    "<table><tr><td>",
    "<table><tr><td>x<td>y",
    "<a href=/x>",
    "<a href=x>y",
    "</div>",
    "<div></span>",
    "<div></b></p>",
    "<p><b x=1>",
    "<svg>",
    "<svg><desc>",
    "<code>`",
    "<sup>1",
    "<!--",
    "--",
    "<!-- -",
    "<script><!--",
    "<pre>",
    "<li><p>",
    "&",
    "&#",
    "<td colspan=20>",
];

#[test]
fn cost_is_linear_for_costly_pages() {
    let base = Url::parse(&format!("https://example.com/{}/", "x".repeat(1_500))).unwrap();
    let ordinary = "<p>An ordinary <a href=/x>page</a> with <b>words</b>.</p>";
    let time = |piece: &str, size: usize| {
        let html = piece.repeat(size / piece.len());
        let started = Instant::now();
        let text = html_to_text(&html, Some(&base));
        assert!(text.len() <= 14 * html.len() + 200_000, "{piece}: {} became {}", html.len(), text.len());
        started.elapsed()
    };
    let allowed = 40 * time(ordinary, SIZE) + Duration::from_millis(200);
    for piece in COSTLY {
        let took = time(piece, SIZE);
        assert!(took < allowed, "{piece} took {took:?}, more than {allowed:?}");
    }
    let one_tag = format!("<a {}>x", (0..SIZE / 8).map(|at| format!("a{at} ")).collect::<String>());
    let (started, _) = (Instant::now(), html_to_text(&one_tag, None));
    assert!(started.elapsed() < allowed, "many attributes took {:?}", started.elapsed());
}

#[test]
fn deep_nesting_does_not_overflow() {
    for (open, close) in [
        ("<div>", "</div>"),
        ("<ul><li>", "</ul>"),
        ("<blockquote>", "</blockquote>"),
        ("<table><tr><td>", "</table>"),
        ("<b>", "</b>"),
        ("<svg>", "</svg>"),
    ] {
        let deep = format!("{}deep{}", open.repeat(100_000), close.repeat(100_000));
        let text = html_to_text(&deep, None);
        assert!(open == "<svg>" || text.ends_with("deep"), "{open}");
        assert!(text.len() < 4_000_000, "{open}: {}", text.len());
    }
}

#[test]
fn article_search_in_costly_pages_is_short() {
    for piece in COSTLY {
        let html = piece.repeat(SIZE / 2 / piece.len());
        let started = Instant::now();
        let _ = article(&html, None);
        assert!(started.elapsed() < Duration::from_secs(10), "{piece} took {:?}", started.elapsed());
    }
}
