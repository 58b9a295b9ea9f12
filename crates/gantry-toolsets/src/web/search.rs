//! Searching the web: the providers that are set up are asked one after the other until one answers. How each speaks is
//! its own file; who was asked in vain, and why, goes along with the answer.

mod ask;
mod brave;
mod duckduckgo;
mod results;
mod searxng;
mod settings;
mod tavily;

use std::time::Duration;

use gantry_net::{NetError, NetworkPolicy, StatusCode};
use gantry_tool::{Call, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::Machine;
use crate::web::{Web, deadline, is_denial};
use ask::{Ask, Reply};
pub(crate) use results::Found;
use results::Page;
pub use settings::{SearchEndpoints, SearchKey, SearchSettings};

/// For each provider; a slow one must leave time for the next.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(15);

/// What the providers take: longer queries are refused by some and cut by others.
pub(crate) const MAX_QUERY_CHARS: usize = 400;
pub(crate) const DEFAULT_RESULTS: usize = 5;

/// In the order in which they are asked, unless configured otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SearchProvider {
    Tavily,
    Brave,
    Searxng,
    Duckduckgo,
}

impl SearchProvider {
    pub const ALL: [SearchProvider; 4] =
        [SearchProvider::Tavily, SearchProvider::Brave, SearchProvider::Searxng, SearchProvider::Duckduckgo];

    pub fn name(self) -> &'static str {
        match self {
            SearchProvider::Tavily => "tavily",
            SearchProvider::Brave => "brave",
            SearchProvider::Searxng => "searxng",
            SearchProvider::Duckduckgo => "duckduckgo",
        }
    }
}

/// What to look for.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) text: String,
    pub(crate) max_results: usize,
    pub(crate) topic: Topic,
    pub(crate) time_range: Option<TimeRange>,
    /// The pages' own text as well, from providers that have it.
    pub(crate) with_content: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Topic {
    #[default]
    General,
    News,
    Finance,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum TimeRange {
    Day,
    Week,
    Month,
    Year,
}

/// The text of a query, or why it is none.
pub(crate) fn query_text(text: &str) -> Result<String, ToolError> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err(ToolError::input("query is empty")),
        length if length > MAX_QUERY_CHARS => Err(ToolError::input(format!(
            "query has {length} characters, at most {MAX_QUERY_CHARS} (shorten it, or search in several steps)"
        ))),
        _ => Ok(text.to_owned()),
    }
}

/// What one provider answered, and who was asked before in vain.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) provider: SearchProvider,
    pub(crate) results: Vec<Found>,
    pub(crate) fallbacks: Vec<Fallback>,
    /// What the answer leaves out of what was asked for.
    pub(crate) notes: Vec<String>,
}

/// A provider that did not serve.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Fallback {
    provider: SearchProvider,
    error: String,
}

impl std::fmt::Display for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.provider.name(), self.error)
    }
}

/// Why a provider did not serve.
#[derive(Debug, thiserror::Error)]
enum SearchError {
    #[error("is not set up; {0}")]
    NotSetUp(&'static str),
    #[error("is left out by web.search.order")]
    LeftOut,
    #[error("the address \"{0}\" cannot be used")]
    Address(String),
    #[error("the key cannot be sent: it holds characters that no header may")]
    UnusableKey,
    #[error("refuses the key ({status}){detail}")]
    KeyRefused { status: StatusCode, detail: String },
    #[error("its quota is used up, or it is asked too often ({status}){detail}")]
    Quota { status: StatusCode, detail: String },
    #[error("answered {status}{detail}")]
    Status { status: StatusCode, detail: String },
    #[error("wants to know whether a human asks, and sends no results for now")]
    Challenge,
    #[error("its answer is not understood: {0}")]
    Odd(String),
    #[error("{0}")]
    Net(#[from] NetError),
}

/// Asks the wanted provider, then the others in their order, until one answers.
pub(crate) async fn search(
    machine: &Machine,
    call: &Call,
    query: &Query,
    wanted: Option<SearchProvider>,
) -> Result<Served, ToolError> {
    let (web, policy) = (machine.web(), machine.reachable(call));
    let others = web.search.order.iter().copied().filter(|provider| {
        // Nobody asked for these: that they are not set up is no news.
        Some(*provider) != wanted && web.search.is_set_up(*provider)
    });
    let (mut fallbacks, mut all_denied) = (Vec::new(), true);
    for provider in wanted.into_iter().chain(others) {
        if call.deadline.is_some_and(|deadline| Instant::now() >= deadline.into()) {
            // Nobody is asked without time to answer, nor named as having failed.
            break;
        }
        let asking = ask(web, &policy, provider, query, deadline(call, PROVIDER_TIMEOUT));
        let answer = tokio::select! {
            answer = asking => answer,
            () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
        };
        match answer {
            Ok(Page { mut results, notes }) => {
                results.truncate(query.max_results);
                let results = results.into_iter().map(|found| found.masked_and_cut(&web.masker)).collect();
                return Ok(Served { provider, results, fallbacks, notes });
            }
            Err(err) => {
                all_denied &= matches!(&err, SearchError::Net(err) if is_denial(err));
                fallbacks.push(Fallback { provider, error: err.to_string() });
            }
        }
    }
    Err(nobody_served(&fallbacks, all_denied))
}

/// How a provider's answer is read.
type Read = fn(&Query, &Reply) -> Result<Page, SearchError>;

async fn ask(
    web: &Web,
    policy: &NetworkPolicy,
    provider: SearchProvider,
    query: &Query,
    deadline: Instant,
) -> Result<Page, SearchError> {
    let settings = &web.search;
    if !settings.order.contains(&provider) {
        return Err(SearchError::LeftOut);
    }
    let (ask, read): (Ask, Read) = match provider {
        SearchProvider::Tavily => (tavily::ask(settings, query)?, tavily::read),
        SearchProvider::Brave => (brave::ask(settings, query)?, brave::read),
        SearchProvider::Searxng => (searxng::ask(settings, query)?, searxng::read),
        SearchProvider::Duckduckgo => (duckduckgo::ask(settings, query)?, duckduckgo::read),
    };
    // What opens the operator's own instance opens nothing for the others.
    let own = settings.client.as_ref().filter(|_| provider == SearchProvider::Searxng);
    let client = own.unwrap_or(&web.client);
    let reply = ask.send(client, policy, &web.masker, deadline).await?;
    let query = query.clone();
    // A page that is made to be hard to read holds up nobody else.
    let reading = tokio::task::spawn_blocking(move || read(&query, &reply)).await;
    reading.unwrap_or_else(|_| Err(SearchError::Odd("reading it failed".to_owned())))
}

fn nobody_served(fallbacks: &[Fallback], all_denied: bool) -> ToolError {
    if fallbacks.is_empty() {
        return ToolError::failed("no search provider is set up").with_hint(
            "the operator sets TAVILY_API_KEY or BRAVE_API_KEY, or web.search.searxngUrl, or adds \"duckduckgo\" to \
             web.search.order",
        );
    }
    let reasons: Vec<String> = fallbacks.iter().map(Fallback::to_string).collect();
    let text = format!("no search provider answered: {}", reasons.join("; "));
    if all_denied {
        ToolError::denied(text).with_hint(
            "the operator decides by the agent's isolation and by web.allowedHosts, and restarts the gateway",
        )
    } else {
        ToolError::failed(text)
    }
}

#[cfg(test)]
pub(crate) mod tests;
