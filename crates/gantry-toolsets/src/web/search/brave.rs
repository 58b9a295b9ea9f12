//! Brave: `GET /res/v1/web/search`, or `/res/v1/news/search`, with the key in a header of its own.

use gantry_net::HeaderName;
use serde_json::Value;

use super::provider_request::{ProviderRequest, Reply};
use super::results::{Fields, Markup, Page, parse_list};
use super::{Query, SearchError, SearchSettings, TimeRange, Topic};

const FIELDS: Fields = Fields {
    content: "description",
    published: "page_age",
    // Brave returns no page text.
    page: "",
    markup: Markup::Html,
};

pub(super) fn request(settings: &SearchSettings, query: &Query) -> Result<ProviderRequest, SearchError> {
    let key = settings
        .brave_key
        .as_ref()
        .ok_or(SearchError::NotConfigured("ask the operator to set BRAVE_API_KEY or web.search.braveKey"))?;
    let path = match query.topic {
        Topic::News => "res/v1/news/search",
        Topic::General | Topic::Finance => "res/v1/web/search",
    };
    let mut request = ProviderRequest::get(&settings.endpoints.brave, path)?
        .parameter("q", &query.text)
        .parameter("count", &query.max_results.to_string());
    if query.topic != Topic::News {
        request = request.parameter("text_decorations", "false").parameter("result_filter", "web");
    }
    if let Some(range) = query.time_range {
        let freshness = match range {
            TimeRange::Day => "pd",
            TimeRange::Week => "pw",
            TimeRange::Month => "pm",
            TimeRange::Year => "py",
        };
        request = request.parameter("freshness", freshness);
    }
    request.key(HeaderName::from_static("x-subscription-token"), "", key)
}

pub(super) fn parse(query: &Query, reply: &Reply) -> Result<Page, SearchError> {
    let value = reply.json()?;
    let mut page = match (query.topic, value.get("web")) {
        (Topic::News, _) => parse_list(value.get("results"), &FIELDS)?,
        (_, Some(web)) => parse_list(web.get("results"), &FIELDS)?,
        // Without results Brave omits the whole field.
        (_, None) if value.get("type").and_then(Value::as_str) == Some("search") => Page::default(),
        (_, None) => return Err(SearchError::Unexpected("it has no list of results".to_owned())),
    };
    if query.topic == Topic::Finance {
        page.notes.push("brave has no topic \"finance\": this is a general search".to_owned());
    }
    Ok(page)
}
