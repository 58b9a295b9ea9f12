//! SearXNG: `GET /search?format=json` of an instance, which asks other search engines in turn.

use serde_json::Value;

use super::ask::{Ask, Reply};
use super::results::{Fields, Markup, Page, cut, listed};
use super::{Query, SearchError, SearchSettings, TimeRange, Topic};

const FIELDS: Fields =
    Fields { content: "content", published: "publishedDate", page: "", markup: Markup::Stray };

pub(super) fn ask(settings: &SearchSettings, query: &Query) -> Result<Ask, SearchError> {
    let base = settings
        .searxng_url
        .as_ref()
        .ok_or(SearchError::NotSetUp("the operator sets web.search.searxngUrl to the URL of an instance"))?;
    let category = match query.topic {
        Topic::News => "news",
        Topic::General | Topic::Finance => "general",
    };
    let mut ask = Ask::get(base, "search")?
        .parameter("q", &query.text)
        .parameter("format", "json")
        .parameter("categories", category);
    if let Some(range) = query.time_range {
        let range = match range {
            TimeRange::Day => "day",
            TimeRange::Week => "week",
            TimeRange::Month => "month",
            TimeRange::Year => "year",
        };
        ask = ask.parameter("time_range", range);
    }
    Ok(ask)
}

pub(super) fn read(query: &Query, reply: &Reply) -> Result<Page, SearchError> {
    let value = reply.json()?;
    let mut page = listed(value.get("results"), &FIELDS)?;
    let silent = silent_engines(&value);
    if !silent.is_empty() {
        let engines = cut(&silent.join(", "), 300);
        if page.results.is_empty() {
            return Err(SearchError::Odd(format!("no result, and engines did not answer: {engines}")));
        }
        page.notes.push(format!("engines that did not answer: {engines}"));
    }
    if query.topic == Topic::Finance {
        page.notes.push("searxng has no topic \"finance\": this is a general search".to_owned());
    }
    Ok(page)
}

/// `[["google", "CAPTCHA"], …]`, as a word each.
fn silent_engines(value: &Value) -> Vec<String> {
    let pairs = value.get("unresponsive_engines").and_then(Value::as_array).into_iter().flatten();
    let word = |pair: &Value| {
        let name = pair.get(0)?.as_str()?;
        Some(match pair.get(1).and_then(Value::as_str) {
            Some(reason) => format!("{name} ({reason})"),
            None => name.to_owned(),
        })
    };
    pairs.filter_map(word).collect()
}
