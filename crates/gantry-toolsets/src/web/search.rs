//! Web search: tries the configured providers in order until one answers. Each provider's protocol
//! has its own file. The result lists the providers that failed, with reasons.

mod brave;
mod duckduckgo;
mod provider_request;
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
use provider_request::{ProviderRequest, Reply};
use results::Page;
pub(crate) use results::SearchResult;
pub use settings::{SearchEndpoints, SearchKey, SearchSettings};

/// The limit for each provider; a slow one must leave time for the next.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(15);

/// The longest query. Some providers reject longer ones, others truncate them.
pub(crate) const MAX_QUERY_CHARS: usize = 400;
pub(crate) const DEFAULT_RESULTS: usize = 5;

/// The search providers, in their default order.
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

/// A search query.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) text: String,
    pub(crate) max_results: usize,
    pub(crate) topic: Topic,
    pub(crate) time_range: Option<TimeRange>,
    /// Also return the text of the pages, from providers that have it.
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

/// Returns the trimmed text of a query, or an error.
pub(crate) fn query_text(text: &str) -> Result<String, ToolError> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err(ToolError::input("query must not be empty")),
        length if length > MAX_QUERY_CHARS => Err(ToolError::input(format!(
            "query has {length} characters, at most {MAX_QUERY_CHARS} (shorten it, or search in several steps)"
        ))),
        _ => Ok(text.to_owned()),
    }
}

/// The answer of one provider, and the providers that failed before.
#[derive(Debug)]
pub(crate) struct SearchAnswer {
    pub(crate) provider: SearchProvider,
    pub(crate) results: Vec<SearchResult>,
    pub(crate) fallbacks: Vec<Fallback>,
    /// The parts of the query that the provider could not apply.
    pub(crate) notes: Vec<String>,
}

/// A provider that failed.
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

/// The reason why a provider failed.
#[derive(Debug, thiserror::Error)]
enum SearchError {
    #[error("is not configured; {0}")]
    NotConfigured(&'static str),
    #[error("is not in web.search.order")]
    NotInOrder,
    #[error("the address \"{0}\" is invalid")]
    Address(String),
    #[error("the key contains characters that are invalid in a header")]
    InvalidKey,
    #[error("rejected the key ({status}){detail}")]
    KeyRejected { status: StatusCode, detail: String },
    #[error("its quota or rate limit is exceeded ({status}){detail}")]
    Quota { status: StatusCode, detail: String },
    #[error("answered {status}{detail}")]
    Status { status: StatusCode, detail: String },
    #[error("requires a human check (CAPTCHA) and returned no results")]
    Challenge,
    #[error("returned an unexpected answer: {0}")]
    Unexpected(String),
    #[error("{0}")]
    Net(#[from] NetError),
}

/// Tries the wanted provider, then the others in order, until one answers.
pub(crate) async fn search(
    machine: &Machine,
    call: &Call,
    query: &Query,
    wanted: Option<SearchProvider>,
) -> Result<SearchAnswer, ToolError> {
    let (settings, policy) = (machine.settings(), machine.reachable(call));
    let web = &settings.web;
    let others = web.search.order.iter().copied().filter(|provider| {
        // The caller did not name these providers, so a missing configuration is not reported.
        Some(*provider) != wanted && web.search.has_settings(*provider)
    });
    let (mut fallbacks, mut all_denied) = (Vec::new(), true);
    for provider in wanted.into_iter().chain(others) {
        if call.deadline.is_some_and(|deadline| Instant::now() >= deadline.into()) {
            // A provider without time to answer is not tried and not reported as failed.
            break;
        }
        let request = query_provider(web, &policy, provider, query, deadline(call, PROVIDER_TIMEOUT));
        let answer = tokio::select! {
            answer = request => answer,
            () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
        };
        match answer {
            Ok(Page { mut results, notes }) => {
                results.truncate(query.max_results);
                let results = results.into_iter().map(|found| found.masked_and_cut(&web.masker)).collect();
                return Ok(SearchAnswer { provider, results, fallbacks, notes });
            }
            Err(err) => {
                all_denied &= matches!(&err, SearchError::Net(err) if is_denial(err));
                fallbacks.push(Fallback { provider, error: err.to_string() });
            }
        }
    }
    Err(no_provider_answered(&fallbacks, all_denied))
}

/// Parses a provider's response.
type Parse = fn(&Query, &Reply) -> Result<Page, SearchError>;

async fn query_provider(
    web: &Web,
    policy: &NetworkPolicy,
    provider: SearchProvider,
    query: &Query,
    deadline: Instant,
) -> Result<Page, SearchError> {
    let settings = &web.search;
    if !settings.order.contains(&provider) {
        return Err(SearchError::NotInOrder);
    }
    let (request, parse): (ProviderRequest, Parse) = match provider {
        SearchProvider::Tavily => (tavily::request(settings, query)?, tavily::parse),
        SearchProvider::Brave => (brave::request(settings, query)?, brave::parse),
        SearchProvider::Searxng => (searxng::request(settings, query)?, searxng::parse),
        SearchProvider::Duckduckgo => (duckduckgo::request(settings, query)?, duckduckgo::parse),
    };
    // The client of the operator's own instance may reach private addresses, so only that provider
    // uses it.
    let own = settings.client.as_ref().filter(|_| provider == SearchProvider::Searxng);
    let client = own.unwrap_or(&web.client);
    let reply = request.send(client, policy, &web.masker, deadline).await?;
    let query = query.clone();
    // A blocking thread parses the response, because a hostile page may take long.
    let parsed = tokio::task::spawn_blocking(move || parse(&query, &reply)).await;
    parsed.unwrap_or_else(|_| Err(SearchError::Unexpected("parsing it panicked".to_owned())))
}

fn no_provider_answered(fallbacks: &[Fallback], all_denied: bool) -> ToolError {
    if fallbacks.is_empty() {
        return ToolError::failed("no search provider is configured").with_hint(
            "ask the operator to set TAVILY_API_KEY, BRAVE_API_KEY or web.search.searxngUrl, or to add \"duckduckgo\" to \
             web.search.order",
        );
    }
    let reasons: Vec<String> = fallbacks.iter().map(Fallback::to_string).collect();
    let text = format!("no search provider answered: {}", reasons.join("; "));
    if all_denied {
        ToolError::denied(text).with_hint(
            "ask the operator to change the agent's isolation or web.allowedHosts and to restart the gateway",
        )
    } else {
        ToolError::failed(text)
    }
}

#[cfg(test)]
pub(crate) mod tests;
