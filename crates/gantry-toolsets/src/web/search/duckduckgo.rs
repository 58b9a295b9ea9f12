//! DuckDuckGo: the page of results that is made for browsers without scripts. There is no key and no JSON, and once it has
//! been asked too often it wants to see a human.

use dom_query::{Document, Selection};
use gantry_net::{StatusCode, Url};

use super::ask::{Ask, Reply};
use super::results::{Found, Page, address, one_line};
use super::{Query, SearchError, SearchSettings, TimeRange, Topic};

/// A page has some forty kilobytes and a dozen results. More is not looked at, since results that stand in one another are
/// looked through again and again.
const MAX_PAGE_BYTES: usize = 256 * 1024;
const MAX_LOOKED_AT: usize = 100;

pub(super) fn ask(settings: &SearchSettings, query: &Query) -> Result<Ask, SearchError> {
    let mut ask =
        Ask::get(&settings.endpoints.duckduckgo, "html/")?.accept("text/html").parameter("q", &query.text);
    if let Some(range) = query.time_range {
        let range = match range {
            TimeRange::Day => "d",
            TimeRange::Week => "w",
            TimeRange::Month => "m",
            TimeRange::Year => "y",
        };
        ask = ask.parameter("df", range);
    }
    Ok(ask)
}

pub(super) fn read(query: &Query, reply: &Reply) -> Result<Page, SearchError> {
    if reply.body.len() > MAX_PAGE_BYTES {
        return Err(SearchError::Odd(format!("the page is longer than {MAX_PAGE_BYTES} bytes")));
    }
    let document = Document::from(String::from_utf8_lossy(&reply.body).into_owned());
    let is_there = |selector: &str| document.select(selector).exists();
    // The challenge comes as a success.
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
            false => Err(SearchError::Odd(
                "the page holds no results and does not say that there are none".to_owned(),
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
    Page(Box<Found>),
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
    Link::Page(Box::new(Found {
        title: if title.is_empty() { url.clone() } else { title },
        content: one_line(&result.select_single(".result__snippet").text()),
        published: None,
        page: None,
        url,
    }))
}

/// Where a link leads: some go through `/l/?uddg=…` first.
fn target(href: &str) -> Option<Url> {
    let url = Url::parse("https://duckduckgo.com/html/").ok()?.join(href).ok()?;
    if is_own(&url) && url.path() == "/l/" {
        let (_, target) = url.query_pairs().find(|(name, _)| name == "uddg")?;
        return Url::parse(&target).ok();
    }
    Some(url)
}

/// Advertisements are counted by `/y.js` on their way.
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
        read(&query("q"), &reply)
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
    fn links_lead_where_they_really_go_and_ads_are_left_out() {
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
    fn no_results_a_challenge_and_an_unknown_page_are_three_things() {
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
            assert!(matches!(check(200, html), Err(SearchError::Odd(_))), "{html}");
        }
    }

    #[test]
    fn a_page_that_talks_about_challenges_is_none() {
        let html = result(
            "web-result",
            "https://a.example/",
            "anomaly-modal",
            "Unfortunately, bots use DuckDuckGo too. challenge-form",
        );
        assert_eq!(check(200, &html).unwrap().results.len(), 1);
    }

    #[test]
    fn hostile_pages_end_in_time() {
        let started = std::time::Instant::now();
        let nested = format!("{}{}", "<div class=result>".repeat(5_000), "<b>".repeat(20_000));
        for html in [nested, "<a class=result__a href=//".repeat(8_000), "\0\u{fffd}<".repeat(10_000)] {
            assert!(check(200, &html).is_err());
        }
        assert!(matches!(check(200, &" ".repeat(MAX_PAGE_BYTES + 1)), Err(SearchError::Odd(_))));
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }
}
