//! Which search providers there are, as the operator has set them up.

use gantry_net::Client;

use super::SearchProvider;

#[derive(Debug, Clone)]
pub struct SearchSettings {
    pub tavily_key: Option<SearchKey>,
    pub brave_key: Option<SearchKey>,
    /// A SearXNG instance.
    pub searxng_url: Option<String>,
    /// Who is asked, in this order. Others never are.
    pub order: Vec<SearchProvider>,
    pub endpoints: SearchEndpoints,
    /// Reaches a SearXNG instance on a private address, which other tools may not; none when the common one will do.
    pub client: Option<Client>,
}

/// Where the providers are.
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
    /// Whether a provider has what it needs. DuckDuckGo needs nothing.
    pub fn is_set_up(&self, provider: SearchProvider) -> bool {
        match provider {
            SearchProvider::Tavily => self.tavily_key.is_some(),
            SearchProvider::Brave => self.brave_key.is_some(),
            SearchProvider::Searxng => self.searxng_url.is_some(),
            SearchProvider::Duckduckgo => true,
        }
    }

    /// Those that are asked, in order.
    pub fn usable(&self) -> impl Iterator<Item = SearchProvider> {
        self.order.iter().copied().filter(|provider| self.is_set_up(*provider))
    }

    /// Whether the operator has chosen a provider, rather than only DuckDuckGo being there.
    pub fn is_configured(&self) -> bool {
        self.usable().any(|provider| provider != SearchProvider::Duckduckgo)
    }
}

/// A key of a provider; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SearchKey(String);

impl SearchKey {
    /// None for a key that is empty, as an unset variable may be.
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
