//! Tests single elements. `tests/it` has whole pages.

use url::Url;

use super::*;

fn text(html: &str) -> String {
    html_to_text(html, Some(&Url::parse("https://example.com/docs/page.html?q=1").unwrap()))
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<_> = cases.iter().filter(|(html, expected)| text(html) != *expected).collect();
    let found: Vec<_> = wrong.iter().map(|(html, _)| (html, text(html))).collect();
    assert!(wrong.is_empty(), "expected {wrong:#?}, but found {found:#?}");
}

#[test]
fn blocks_are_separated_and_white_space_collapses() {
    check(&[
        ("", ""),
        ("  plain \n\t text  ", "plain text"),
        ("<p>a<p>b</p>c", "a\n\nb\n\nc"),
        ("<div>a</div><div>b</div>c", "a\nb\nc"),
        ("a<br>b<br/>c<br><br>d</br>e", "a\nb\nc\n\nd\ne"),
        ("<b>a</b><i>b</i> <u>c</u>", "ab c"),
        ("<b>a </b> <i> b</i>", "a b"),
        ("a&nbsp;&nbsp;b co&shy;op", "a b coop"),
        ("<p></p><div> </div><p>x</p><p> </p>", "x"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<section><p>a</p></section><footer>b</footer>", "a\n\nb"),
        ("1 < 2 & 3 <> 4 <3", "1 < 2 & 3 <> 4 <3"),
    ]);
}

#[test]
fn headings_keep_their_level_on_one_line() {
    check(&[
        ("<h1>A</h1>x<h2>B</h2><h6>C</h6>", "# A\n\nx\n\n## B\n\n###### C"),
        ("<h2><div>A</div><p>B<br>C</h2>x", "## A B C\n\nx"),
        ("<h2></h2><h3> </h3>x", "x"),
        ("<h2>A</h3>x", "## A\n\nx"),
        ("<h2>A<h3>B</h3>", "## A\n\n### B"),
    ]);
}

#[test]
fn lists_are_nested_and_numbered() {
    check(&[
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ("<ol start=9><li>a<li>b<li value=20>c<li>d</ol>", "9. a\n10. b\n20. c\n21. d"),
        ("<ul><li>a<ul><li>b<ol><li>c</ol></ul><li>d</ul>", "- a\n  - b\n    1. c\n- d"),
        ("<ul><li><p>a</p><p>b</p></li></ul>", "- a\n\n  b"),
        ("<ul><li></li><li>x</li><li> </li></ul>y", "- x\n\ny"),
        ("<dl><dt>term<dd>what it is<dt>two<dd>more</dl>", "term\n  what it is\ntwo\n  more"),
        ("<li>stray", "- stray"),
    ]);
}

#[test]
fn links_become_absolute_or_stay_text() {
    check(&[
        ("<a href='a.html'>x</a>", "[x](https://example.com/docs/a.html)"),
        ("see<a href=/b> x </a>now", "see [x](https://example.com/b) now"),
        ("<a href='//cdn.example/c?a=1&amp;b=2&copy=3'>x</a>", "[x](https://cdn.example/c?a=1&b=2&copy=3)"),
        ("<a href='HTTPS://EXAMPLE.org/%7e x'>x</a>", "[x](https://example.org/%7e%20x)"),
        ("<a href='../../../up'>x</a>", "[x](https://example.com/up)"),
        ("<a href=' mailto:a@b.example '>mail</a>", "[mail](mailto:a@b.example)"),
        ("<a href='#part'>x</a><a href='page.html?q=1#part'>y</a>", "xy"),
        ("<a href='JavaScript:alert(1)'>x</a> <a href='java\nscript:y()'>y</a>", "x y"),
        ("<a href='data:text/html,x'>x</a> <a name=x>y</a> <a href=''>z</a>", "x y z"),
        ("<a href=/a></a><a href=/b> </a>x", "x"),
        ("<a href='https://a.example/'>https://a.example/</a>", "https://a.example/"),
        (
            "<a href=/a>one<a href=/b>two</a>three",
            "[one](https://example.com/a)[two](https://example.com/b)three",
        ),
        (
            "<a href=/a><h3>Title</h3><p>text</p></a>after",
            "### Title\n\ntext <https://example.com/a>\n\nafter",
        ),
        ("<a href=/a><img alt='a  logo'></a>", "[![a logo]](https://example.com/a)"),
        ("<base href=/other/><base href=/third/><a href=x>x</a>", "[x](https://example.com/other/x)"),
        ("<ul><li><a href=/a>x</a></ul>", "- [x](https://example.com/a)"),
        ("<p><a href=/a>x</p><p>y</a></p>", "[x](https://example.com/a)\n\ny"),
    ]);
    assert_eq!(html_to_text("<a href='b c'>x</a>", None), "[x](b%20c)");
}

#[test]
fn code_is_kept_byte_for_byte() {
    check(&[
        ("<pre>\n  fn main() {\n\n\t&lt;b&gt;  \n}\n</pre>x", "```\n  fn main() {\n\n\t<b>  \n}\n```\n\nx"),
        ("<pre><code class='hl language-rust'>let <b>x</b> = 1;</code></pre>", "```rust\nlet x = 1;\n```"),
        ("<pre>a\n```\nb</pre>", "````\na\n```\nb\n````"),
        ("<pre>a<br>b<div>c</div>d</pre>", "```\na\nb\nc\nd\n```"),
        ("<pre> </pre>x", "x"),
        ("<pre>\n\nb\r\nc</pre>", "```\n\nb\nc\n```"),
        ("<ul><li>x<pre>a\n\n b</pre></ul>", "- x\n\n  ```\n  a\n\n   b\n  ```"),
        ("<xmp><b>raw</b> &amp;</xmp>", "```\n<b>raw</b> &amp;\n```"),
        ("use <code>a  b</code> and <kbd>`</kbd>", "use `a b` and `` ` ``"),
        ("<code></code>x<code><b>y</b></code>", "x`y`"),
        ("<a href=/a><code>f()</code></a>", "[`f()`](https://example.com/a)"),
        ("<code><a href=/a>f</code>()</a>", "`[f](https://example.com/a)`()"),
        ("<textarea>a &lt;b&gt; <i></textarea>", "a <b> <i>"),
    ]);
}

#[test]
fn quotes_are_marked() {
    check(&[
        ("a<blockquote><p>b</p><p>c</p></blockquote>d", "a\n\n> b\n>\n> c\n\nd"),
        ("<blockquote>a<blockquote>b</blockquote></blockquote>", "> a\n>\n> > b"),
        ("<blockquote><ul><li>a<li>b</ul></blockquote>", "> - a\n> - b"),
        ("<blockquote><pre>x\n\ny</pre></blockquote>", "> ```\n> x\n>\n> y\n> ```"),
        ("he said <q>so <b>it</b> is </q> twice", "he said \"so it is\" twice"),
        ("<del>9 €</del> 7 €", "~~9 €~~ 7 €"),
        ("10<sup>6</sup>, x<sup>-n</sup>, 1<sup>st</sup>, a<sup>[1]</sup>", "10^6, x^-n, 1st, a[1]"),
    ]);
}

#[test]
fn data_tables_become_rows() {
    check(&[
        ("x<table><tr><th>a<th>b<tr><td>1<td>2</table>y", "x\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\ny"),
        (
            "<table><tr><td>1</td><td></td><td>a|b</td></tr></table>",
            "| 1 || a\\|b |".replace("||", "| |").as_str(),
        ),
        (
            "<table><caption>cap</caption><thead><tr><th colspan=2>ab</th></tr></thead><tbody><tr><td>1<td>2</table>",
            "cap\n| ab | |\n| --- | --- |\n| 1 | 2 |",
        ),
        (
            "<table><tr><td><a href=/a>x</a></td><td>l1<br>l2</td></tr></table>",
            "| [x](https://example.com/a) | l1 l2 |",
        ),
        ("<table><tr><td>only</td></tr><tr><td>one</td></tr></table>", "only\none"),
        ("<table><tr><td><h2>a</h2><p>b</p></td><td>c</td></tr></table>", "## a\n\nb\n\nc"),
        ("<table><tr><td><table><tr><td>1<td>2</table></td><td>c</td></tr></table>", "| 1 | 2 |\n\nc"),
        ("<table role=presentation><tr><td>a<td>b</table>", "a\nb"),
        ("<table><tr><td>a</td>stray<td>b</td></tr></table>", "a\nstray\nb"),
        (
            "<blockquote><table><tr><td>a<td>b<br>c<tr><td>d<td>e</table></blockquote>",
            "> | a | b c |\n> | d | e |",
        ),
        ("<ul><li><table><tr><td>a<td>b<tr><td>c<td>d</table></ul>", "- | a | b |\n  | c | d |"),
        ("<table></table><table><tr><td></td><td></td></tr></table>x", "x"),
        ("<a href=/x><table><tr><td>a</a><td>b</table>c", "| a | b |\n\nc"),
    ]);
}

#[test]
fn hidden_content_is_removed() {
    check(&[
        ("a<script>if (a < b) { x('</p>') }</script>b", "ab"),
        ("a<script><!-- <script> </script> x --></script>b", "ab"),
        ("a<SCRIPT>x</SCRIPT >b<style>p{}</style><template><p>x</p></template>c", "abc"),
        ("a<!-- x --><!--> b <!-- -- > x --!>c<!-->d<!--->e<!doctype x><?php x ?></ x>f", "a b cdef"),
        ("a<!-- never closed <p>x", "a"),
        ("<p hidden>x<p>a", "a"),
        ("<div hidden=until-found><p>x</p><div>y</div></div>a", "a"),
        ("<p aria-hidden=true>x</p><p aria-hidden=false>a</p>", "a"),
        ("<p style='color:red; DISPLAY : none !important'>x</p>a", "a"),
        ("<span style='visibility:hidden'>x<b>y</b></span>a<i style='display:block'>b</i>", "ab"),
        (
            "<p style='font-size:0'>x</p><p style='font-size: 0.0px !important'>y</p><p style=font-size:0.8em>a",
            "a",
        ),
        (
            "<i style='opacity:0'>x</i><i style='opacity: 0.00;'>y</i><i style=opacity:0%>z</i><i style=opacity:.5>a</i>",
            "a",
        ),
        ("<b><div hidden></b>x</div>a", "a"),
        ("<b hidden><div>x</b>y</div>", ""),
        ("<ul><li hidden>x<ul><li>y</ul><li>a</ul>", "- a"),
        ("<input type=hidden value=x><input value=y>a", "a"),
        ("<noscript>x</noscript>a<iframe>y</iframe><video>z<p>z</video><canvas>x</canvas>", "a"),
        ("<noscript><p>please turn scripts on</noscript>", "please turn scripts on"),
        ("<svg><title>x</title><text>y</text><style>z</style></svg>a<svg/>b", "ab"),
        ("<svg><path d='x'><p>left open", "left open"),
        ("<svg><foreignObject><p>x</p></foreignObject></svg>a", "a"),
        ("<dialog>x</dialog><dialog open>a</dialog>", "a"),
        ("<head><title>x</title><meta name=y content=z></head><body hidden>a", "a"),
        (
            "<math alttext='x^2'><mi>x</mi></math> <math><mi>y</mi><annotation>z</annotation></math>",
            "$x^2$ y",
        ),
        ("<img aria-hidden=true alt='E = mc^2'><img alt='' src=x><img hidden alt=x>", "![E = mc^2]"),
        ("a<div title='x' data-y='<p>z</p>'>b</div", "a\nb"),
    ]);
}

#[test]
fn broken_markup_is_read_like_in_browsers() {
    check(&[
        ("<div><p>a</div>b</p>c", "a\n\nb\n\nc"),
        ("<td>a</td></table></div></ul>b", "a\nb"),
        ("<table><tr><td></div>a</td><td>b</table>", "| a | b |"),
        ("<ul><li><b>a<li>b</b></ul>c", "- a\n- b\n\nc"),
        ("<p<b>a", "a"),
        ("<a href=\"x>a", ""),
        ("a<", "a<"),
        ("a</", "a</"),
        ("<plaintext>a<b>c", "```\na<b>c\n```"),
    ]);
}

#[test]
fn first_title_wins() {
    let page = page("<title> a &amp;\n b </title><svg><title>c</title></svg><title>d</title>", None);
    assert_eq!((page.title.as_deref(), page.text.as_str()), (Some("a & b"), ""));
    assert_eq!(super::page("<title> </title>x", None).title, None);
}

#[test]
fn costly_pages_are_detected() {
    assert!(is_bounded(&"<div><p>a<b>b</b><br><li>x</div>".repeat(10_000)));
    for costly in
        ["<div>".repeat(1_000), "<p><b x=1>".repeat(1_000), format!("<a {}>", "x y z ".repeat(1_000))]
    {
        assert!(!is_bounded(&costly));
    }
}
