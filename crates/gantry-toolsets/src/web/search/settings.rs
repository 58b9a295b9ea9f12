//! The operator's settings for search providers.

use gantry_net::Client;

use super::SearchProvider;

#[derive(Debug, Clone)]
pub struct SearchSettings {
    pub tavily_key: Option<SearchKey>,
    pub brave_key: Option<SearchKey>,
    /// A SearXNG instance.
    pub searxng_url: Option<String>,
    /// The providers to try, in this order. Others are never used.
    pub order: Vec<SearchProvider>,
    pub endpoints: SearchEndpoints,
    /// A client for a SearXNG instance on a private address, which other tools may not reach;
    /// `None` for the common client.
    pub client: Option<Client>,
}

/// The base URLs of the providers.
#[derive(Debug, Clone)]
pub struct SearchEndpoints {
    pub tavily: String,
    pub brave: String,
    pub duckduckgo: String,
}

impl Default for SearchSettings {
    fn default() -> Self {
        SearchSettings {
            tavily_key: None,
            brave_key: None,
            searxng_url: None,
            order: SearchProvider::ALL.to_vec(),
            endpoints: SearchEndpoints {
                tavily: "https://api.tavily.com".to_owned(),
                brave: "https://api.search.brave.com".to_owned(),
                duckduckgo: "https://html.duckduckgo.com".to_owned(),
            },
            client: None,
        }
    }
}

impl SearchSettings {
    /// Whether a provider has the settings that it needs. DuckDuckGo needs none.
    pub fn has_settings(&self, provider: SearchProvider) -> bool {
        match provider {
            SearchProvider::Tavily => self.tavily_key.is_some(),
            SearchProvider::Brave => self.brave_key.is_some(),
            SearchProvider::Searxng => self.searxng_url.is_some(),
            SearchProvider::Duckduckgo => true,
        }
    }

    /// Returns the configured providers, in order.
    pub fn usable(&self) -> impl Iterator<Item = SearchProvider> {
        self.order.iter().copied().filter(|provider| self.has_settings(*provider))
    }

    /// Whether the operator configured a provider other than DuckDuckGo, which needs no
    /// configuration.
    pub fn is_configured(&self) -> bool {
        self.usable().any(|provider| provider != SearchProvider::Duckduckgo)
    }
}

/// The key of a provider; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SearchKey(String);

impl SearchKey {
    /// Returns `None` for an empty key, such as an unset variable.
    pub fn new(text: &str) -> Option<SearchKey> {
        let text = text.trim();
        (!text.is_empty()).then(|| SearchKey(text.to_owned()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for SearchKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SearchKey([masked])")
    }
}
