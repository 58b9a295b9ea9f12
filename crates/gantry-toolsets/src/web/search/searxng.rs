//! SearXNG: `GET /search?format=json` of an instance, which queries other search engines.

use serde_json::Value;

use super::provider_request::{ProviderRequest, Reply};
use super::results::{Fields, Markup, Page, cut, parse_list};
use super::{Query, SearchError, SearchSettings, TimeRange, Topic};

const FIELDS: Fields =
    Fields { content: "content", published: "publishedDate", page: "", markup: Markup::Stray };

pub(super) fn request(settings: &SearchSettings, query: &Query) -> Result<ProviderRequest, SearchError> {
    let base = settings.searxng_url.as_ref().ok_or(SearchError::NotConfigured(
        "ask the operator to set web.search.searxngUrl to the URL of an instance",
    ))?;
    let category = match query.topic {
        Topic::News => "news",
        Topic::General | Topic::Finance => "general",
    };
    let mut request = ProviderRequest::get(base, "search")?
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
        request = request.parameter("time_range", range);
    }
    Ok(request)
}

pub(super) fn parse(query: &Query, reply: &Reply) -> Result<Page, SearchError> {
    let value = reply.json()?;
    let mut page = parse_list(value.get("results"), &FIELDS)?;
    let silent = failed_engines(&value);
    if !silent.is_empty() {
        let engines = cut(&silent.join(", "), 300);
        if page.results.is_empty() {
            return Err(SearchError::Unexpected(format!(
                "no results, and these engines did not answer: {engines}"
            )));
        }
        page.notes.push(format!("engines that did not answer: {engines}"));
    }
    if query.topic == Topic::Finance {
        page.notes.push("searxng has no topic \"finance\": this is a general search".to_owned());
    }
    Ok(page)
}

/// Parses `[["google", "CAPTCHA"], …]` into one text per engine.
fn failed_engines(value: &Value) -> Vec<String> {
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
