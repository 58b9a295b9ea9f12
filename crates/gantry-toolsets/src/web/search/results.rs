//! Normalizes the results of all providers: plain text, valid addresses, and notes on unusable
//! ones.

use dom_query::Document;
use gantry_net::Url;
use gantry_tool::Masker;
use serde_json::{Map, Value};

use super::SearchError;

/// Longer than usual titles and snippets; longer text is truncated with a note.
const TITLE_CHARS: usize = 300;
const CONTENT_CHARS: usize = 4_000;
const PUBLISHED_CHARS: usize = 40;

/// One search result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchResult {
    pub(crate) title: String,
    pub(crate) url: String,
    /// A summary of the page, or the matching passage.
    pub(crate) content: String,
    /// The date as the provider writes it.
    pub(crate) published: Option<String>,
    /// The page's own text.
    pub(crate) page: Option<String>,
}

impl SearchResult {
    /// Masks before truncation: the gate would not recognize a part of a secret.
    pub(super) fn masked_and_cut(mut self, masker: &Masker) -> SearchResult {
        let published = self.published.iter_mut().map(|text| (text, PUBLISHED_CHARS));
        let texts = [(&mut self.title, TITLE_CHARS), (&mut self.content, CONTENT_CHARS)];
        for (text, limit) in texts.into_iter().chain(published) {
            masker.mask_text(text);
            *text = cut(text, limit);
        }
        self.page.iter_mut().for_each(|page| masker.mask_text(page));
        self
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) results: Vec<SearchResult>,
    pub(super) notes: Vec<String>,
}

/// The names of a provider's result fields.
pub(super) struct Fields {
    pub(super) content: &'static str,
    pub(super) published: &'static str,
    pub(super) page: &'static str,
    pub(super) markup: Markup,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Markup {
    /// The provider sends HTML.
    Html,
    /// The provider sends text that sometimes contains stray tags.
    Stray,
}

/// Parses a JSON list of results. Unusable ones are left out and counted in a note.
pub(super) fn parse_list(list: Option<&Value>, fields: &Fields) -> Result<Page, SearchError> {
    let Some(Value::Array(items)) = list else {
        return Err(SearchError::Unexpected("it has no list of results".to_owned()));
    };
    let mut page = Page::default();
    let (mut unusable, mut odd) = (0, 0);
    for item in items {
        match item.as_object().and_then(|item| Some((item, address(item.get("url")?.as_str()?)?))) {
            Some((item, url)) => page.results.push(found(item, url, fields, &mut odd)),
            None => unusable += 1,
        }
    }
    // An answer without any usable result counts as a failure.
    if page.results.is_empty() && unusable > 0 {
        return Err(SearchError::Unexpected(format!("none of its {unusable} results has an address")));
    }
    page.note_left_out(unusable);
    if odd > 0 {
        page.notes.push(format!("{odd} result fields were not text and are left empty"));
    }
    Ok(page)
}

impl Page {
    pub(super) fn note_left_out(&mut self, unusable: usize) {
        if unusable > 0 {
            self.notes.push(format!("{unusable} results without a usable address were left out"));
        }
    }
}

fn found(item: &Map<String, Value>, url: String, fields: &Fields, odd: &mut usize) -> SearchResult {
    let mut text = |name: &str| match item.get(name) {
        Some(Value::String(text)) => Some(text.as_str()),
        None | Some(Value::Null) => None,
        Some(_) => {
            *odd += 1;
            None
        }
    };
    let title = text("title").map(|title| plain(title, fields.markup)).unwrap_or_default();
    SearchResult {
        title: if title.is_empty() { url.clone() } else { title },
        content: text(fields.content).map(|content| plain(content, fields.markup)).unwrap_or_default(),
        published: text(fields.published).filter(|text| !text.is_empty()).map(str::to_owned),
        page: text(fields.page).filter(|text| !text.trim().is_empty()).map(str::to_owned),
        url,
    }
}

/// Returns a normalized http or https address.
pub(super) fn address(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then(|| url.into())
}

/// Returns text without tags and entities, on one line.
fn plain(text: &str, markup: Markup) -> String {
    const TAGS: [&str; 8] = ["</b>", "</strong>", "</em>", "</i>", "</span>", "</a>", "</p>", "<br"];
    let has_tags = || TAGS.iter().any(|tag| text.contains(tag));
    match markup {
        Markup::Stray if !has_tags() => one_line(text),
        Markup::Html | Markup::Stray => one_line(&Document::fragment(text).text()),
    }
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => {
            format!("{}… [truncated, {} characters in all]", &text[..end], text.chars().count())
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FIELDS: Fields = Fields { content: "text", published: "date", page: "page", markup: Markup::Stray };

    #[test]
    fn missing_and_invalid_fields_are_noted() {
        let list = json!([
            {"url": "https://a.example/", "title": "A", "text": "about", "date": "2026", "page": "all of it"},
            {"url": "https://b.example"},
            {"url": "https://c.example/", "title": 7, "text": ["x"], "date": null},
            {"title": "no address"}, {"url": 5}, {"url": "javascript:alert(1)"}, {"url": "/relative"}, "text", null,
        ]);
        let page = parse_list(Some(&list), &FIELDS).unwrap();
        let seen: Vec<_> =
            page.results.iter().map(|found| (&*found.url, &*found.title, &*found.content)).collect();
        assert_eq!(
            seen,
            [
                ("https://a.example/", "A", "about"),
                ("https://b.example/", "https://b.example/", ""),
                ("https://c.example/", "https://c.example/", ""),
            ]
        );
        assert_eq!(page.results[0].published.as_deref(), Some("2026"));
        assert_eq!(page.results[0].page.as_deref(), Some("all of it"));
        assert_eq!(
            page.notes,
            [
                "6 results without a usable address were left out",
                "2 result fields were not text and are left empty"
            ]
        );
    }

    #[test]
    fn empty_list_is_an_answer_and_a_missing_list_is_an_error() {
        assert_eq!(parse_list(Some(&json!([])), &FIELDS).unwrap(), Page::default());
        for list in [None, Some(json!({})), Some(json!("x")), Some(json!([{"title": "x"}, 1]))] {
            assert!(
                matches!(parse_list(list.as_ref(), &FIELDS), Err(SearchError::Unexpected(_))),
                "{list:?}"
            );
        }
    }

    #[test]
    fn tags_and_entities_are_removed_only_from_markup() {
        for (text, markup, shown) in [
            ("a <strong>b</strong> &amp; c&#x27;s", Markup::Html, "a b & c's"),
            ("Vec&lt;T&gt; <b>x", Markup::Html, "Vec<T> x"),
            ("Vec<T> & a<b", Markup::Stray, "Vec<T> & a<b"),
            ("a <b>b</b>\n\n c", Markup::Stray, "a b c"),
            ("", Markup::Html, ""),
            ("<<<>&#xffffffff;&nosuch;", Markup::Html, "<<<>\u{fffd}&nosuch;"),
        ] {
            assert_eq!(plain(text, markup), shown, "{text}");
        }
    }

    #[test]
    fn long_text_is_truncated_between_characters_with_a_note() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöü€", 3), "äöü… [truncated, 4 characters in all]");
    }
}
