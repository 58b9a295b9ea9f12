//! Tavily: `POST /search` with JSON and a bearer token.

use gantry_net::header;
use serde_json::json;

use super::provider_request::{ProviderRequest, Reply};
use super::results::{Fields, Markup, Page, parse_list};
use super::{Query, SearchError, SearchSettings, TimeRange, Topic};

const FIELDS: Fields =
    Fields { content: "content", published: "published_date", page: "raw_content", markup: Markup::Stray };

pub(super) fn request(settings: &SearchSettings, query: &Query) -> Result<ProviderRequest, SearchError> {
    let key = settings.tavily_key.as_ref().ok_or(SearchError::NotConfigured(
        "ask the operator to set TAVILY_API_KEY or web.search.tavilyKey",
    ))?;
    let mut body = json!({
        "query": query.text,
        "max_results": query.max_results,
        "search_depth": "basic",
        "topic": match query.topic {
            Topic::General => "general",
            Topic::News => "news",
            Topic::Finance => "finance",
        },
    });
    if let Some(range) = query.time_range {
        body["time_range"] = match range {
            TimeRange::Day => "day",
            TimeRange::Week => "week",
            TimeRange::Month => "month",
            TimeRange::Year => "year",
        }
        .into();
    }
    if query.with_content {
        body["include_raw_content"] = "markdown".into();
    }
    ProviderRequest::get(&settings.endpoints.tavily, "search")?
        .post("application/json", body.to_string().into_bytes())
        .key(header::AUTHORIZATION, "Bearer ", key)
}

pub(super) fn parse(_: &Query, reply: &Reply) -> Result<Page, SearchError> {
    parse_list(reply.json()?.get("results"), &FIELDS)
}
