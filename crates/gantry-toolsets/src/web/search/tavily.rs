//! Tavily: `POST /search` with JSON and a bearer token.

use gantry_net::header;
use serde_json::json;

use super::ask::{Ask, Reply};
use super::results::{Fields, Markup, Page, listed};
use super::{Query, SearchError, SearchSettings, TimeRange, Topic};

const FIELDS: Fields =
    Fields { content: "content", published: "published_date", page: "raw_content", markup: Markup::Stray };

pub(super) fn ask(settings: &SearchSettings, query: &Query) -> Result<Ask, SearchError> {
    let key = settings
        .tavily_key
        .as_ref()
        .ok_or(SearchError::NotSetUp("the operator sets TAVILY_API_KEY or web.search.tavilyKey"))?;
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
    Ask::get(&settings.endpoints.tavily, "search")?
        .post("application/json", body.to_string().into_bytes())
        .key(header::AUTHORIZATION, "Bearer ", key)
}

pub(super) fn read(_: &Query, reply: &Reply) -> Result<Page, SearchError> {
    listed(reply.json()?.get("results"), &FIELDS)
}
