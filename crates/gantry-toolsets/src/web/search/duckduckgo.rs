//! DuckDuckGo: the HTML results page for browsers without scripts. It has no key and no JSON. After
//! too many requests it returns a CAPTCHA.

use dom_query::{Document, Selection};
use gantry_net::{StatusCode, Url};

use super::provider_request::{ProviderRequest, Reply};
use super::results::{Page, SearchResult, address, one_line};
use super::{Query, SearchError, SearchSettings, TimeRange, Topic};

/// A page has about forty kilobytes and a dozen results. Larger pages are rejected, because nested
/// results would be searched again and again.
const MAX_PAGE_BYTES: usize = 256 * 1024;
const MAX_LOOKED_AT: usize = 100;

pub(super) fn request(settings: &SearchSettings, query: &Query) -> Result<ProviderRequest, SearchError> {
    let mut request = ProviderRequest::get(&settings.endpoints.duckduckgo, "html/")?
        .accept("text/html")
        .parameter("q", &query.text);
    if let Some(range) = query.time_range {
        let range = match range {
            TimeRange::Day => "d",
            TimeRange::Week => "w",
            TimeRange::Month => "m",
            TimeRange::Year => "y",
        };
        request = request.parameter("df", range);
    }
    Ok(request)
}

pub(super) fn parse(query: &Query, reply: &Reply) -> Result<Page, SearchError> {
    if reply.body.len() > MAX_PAGE_BYTES {
        return Err(SearchError::Unexpected(format!("the page has more than {MAX_PAGE_BYTES} bytes")));
    }
    let document = Document::from(String::from_utf8_lossy(&reply.body).into_owned());
    let is_there = |selector: &str| document.select(selector).exists();
    // The CAPTCHA page has a success status.
    if reply.status == StatusCode::ACCEPTED
        || is_there(".anomaly-modal, .anomaly-modal__modal, #challenge-form")
    {
        return Err(SearchError::Challenge);
    }
    let mut page = Page::default();
    let mut unusable = 0;
    for result in document.select("div.result").iter().take(MAX_LOOKED_AT) {
        if result.has_class("result--ad") || result.has_class("result--no-result") {
            continue;
        }
        match found(&result) {
            Link::Page(found) => page.results.push(*found),
            Link::Ad => {}
            Link::Unusable => unusable += 1,
        }
    }
    if page.results.is_empty() {
        return match is_there(".no-results, .result--no-result") {
            true => Ok(Page::default()),
            false => Err(SearchError::Unexpected(
                "the page has no results and no \"no results\" message".to_owned(),
            )),
        };
    }
    page.note_left_out(unusable);
    if query.topic != Topic::General {
        page.notes.push("duckduckgo has no topics: this is a general search".to_owned());
    }
    Ok(page)
}

enum Link {
    Page(Box<SearchResult>),
    Ad,
    Unusable,
}

fn found(result: &Selection<'_>) -> Link {
    let link = result.select_single("a.result__a");
    let Some(target) = link.attr("href").and_then(|href| target(&href)) else { return Link::Unusable };
    if is_ad(&target) {
        return Link::Ad;
    }
    let Some(url) = address(target.as_str()) else { return Link::Unusable };
    let title = one_line(&link.text());
    Link::Page(Box::new(SearchResult {
        title: if title.is_empty() { url.clone() } else { title },
        content: one_line(&result.select_single(".result__snippet").text()),
        published: None,
        page: None,
        url,
    }))
}

/// Returns the target of a link; some go through `/l/?uddg=…` first.
fn target(href: &str) -> Option<Url> {
    let url = Url::parse("https://duckduckgo.com/html/").ok()?.join(href).ok()?;
    if is_own(&url) && url.path() == "/l/" {
        let (_, target) = url.query_pairs().find(|(name, _)| name == "uddg")?;
        return Url::parse(&target).ok();
    }
    Some(url)
}

/// Links of advertisements go through `/y.js`.
fn is_ad(url: &Url) -> bool {
    is_own(url) && url.path() == "/y.js"
}

fn is_own(url: &Url) -> bool {
    url.host_str().is_some_and(|host| host == "duckduckgo.com" || host.ends_with(".duckduckgo.com"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::search::tests::query;

    fn check(status: u16, html: &str) -> Result<Page, SearchError> {
        let reply = Reply { status: StatusCode::from_u16(status).unwrap(), body: html.as_bytes().to_vec() };
        parse(&query("q"), &reply)
    }

    fn result(class: &str, href: &str, title: &str, snippet: &str) -> String {
        format!(
            r#"<div class="result results_links results_links_deep {class}"><div class="links_main links_deep result__body">
            <h2 class="result__title"><a rel="nofollow" class="result__a" href="{href}">{title}</a></h2>
            <div class="result__extras"><a class="result__url" href="{href}">shown.example</a></div>
            <a class="result__snippet" href="{href}">{snippet}</a></div></div>"#
        )
    }

    #[test]
    fn links_are_unwrapped_and_ads_left_out() {
        let html = [
            result("web-result", "https://direct.example/a?b=1&amp;c=2", "Direct &amp; <b>bold</b>", "One\n  two <b>three</b>"),
            result(
                "web-result",
                "//duckduckgo.com/l/?uddg=https%3A%2F%2Fwrapped.example%2Fp%3Fq%3D%26%2361%3B%2520x&amp;rut=abc",
                "Wrapped",
                "",
            ),
            result("result--ad", "https://shop.example/", "An ad by its class", "buy"),
            result("web-result", "https://duckduckgo.com/y.js?ad_domain=x&amp;u3=https%3A%2F%2Fads.example", "An ad by its link", ""),
            result(
                "web-result",
                "//duckduckgo.com/l/?uddg=https%3A%2F%2Fduckduckgo.com%2Fy.js%3Fad_domain%3Dx",
                "A wrapped ad",
                "",
            ),
            result("web-result", "https://duckduckgo.com/about", "About the engine itself", "kept"),
            result("web-result", "javascript:alert(1)", "No page", ""),
            result("web-result", "//duckduckgo.com/l/?nothing=1", "Nowhere", ""),
            result("web-result", "https://untitled.example/", "", ""),
        ]
        .concat();
        let page =
            check(200, &format!("<html><body><div id='links' class='results'>{html}</div></body></html>"))
                .unwrap();
        let seen: Vec<_> =
            page.results.iter().map(|found| (&*found.url, &*found.title, &*found.content)).collect();
        assert_eq!(
            seen,
            [
                ("https://direct.example/a?b=1&c=2", "Direct & bold", "One two three"),
                ("https://wrapped.example/p?q=&#61;%20x", "Wrapped", ""),
                ("https://duckduckgo.com/about", "About the engine itself", "kept"),
                ("https://untitled.example/", "https://untitled.example/", ""),
            ]
        );
        assert_eq!(page.notes, ["2 results without a usable address were left out"]);
    }

    #[test]
    fn no_results_captcha_and_unknown_pages_are_distinguished() {
        let none = r#"<div class="result results_links result--no-result"><div class="no-results">No results.</div></div>"#;
        assert_eq!(check(200, none).unwrap(), Page::default());
        let challenge = r#"<form id="challenge-form" action="//duckduckgo.com/anomaly.js?cc=botnet"><div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div></form>"#;
        for (status, html) in
            [(202, challenge), (200, challenge), (202, ""), (200, "<div class='anomaly-modal'></div>")]
        {
            assert!(matches!(check(status, html), Err(SearchError::Challenge)), "{status} {html}");
        }
        for html in [
            "",
            "<html><body>hello</body></html>",
            "{\"results\": []}",
            "<div class=result><a>no link</a></div>",
        ] {
            assert!(matches!(check(200, html), Err(SearchError::Unexpected(_))), "{html}");
        }
    }

    #[test]
    fn page_that_mentions_captchas_is_not_one() {
        let html = result(
            "web-result",
            "https://a.example/",
            "anomaly-modal",
            "Unfortunately, bots use DuckDuckGo too. challenge-form",
        );
        assert_eq!(check(200, &html).unwrap().results.len(), 1);
    }

    #[test]
    fn hostile_pages_are_parsed_in_time() {
        let before = cpu_seconds();
        let nested = format!("{}{}", "<div class=result>".repeat(5_000), "<b>".repeat(20_000));
        for html in [nested, "<a class=result__a href=//".repeat(8_000), "\0\u{fffd}<".repeat(10_000)] {
            assert!(check(200, &html).is_err());
        }
        assert!(matches!(check(200, &" ".repeat(MAX_PAGE_BYTES + 1)), Err(SearchError::Unexpected(_))));
        // Processor time does not depend on what else runs on the machine.
        let took = cpu_seconds() - before;
        assert!(took < 20.0, "{took} s");
    }

    /// The processor time of this thread.
    #[expect(clippy::disallowed_methods, reason = "reads this thread's own statistics")]
    fn cpu_seconds() -> f64 {
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        statistics.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
    }
}
