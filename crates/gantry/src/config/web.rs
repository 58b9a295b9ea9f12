//! `[web]` configures network access of tools and the search providers.

use gantry_domain::ConfigSection;
use gantry_net::{Client, ClientOptions, HostPattern, IpNet, Trust, Url, names_metadata};
use gantry_tool::Violation;
use gantry_toolsets::{SearchKey, SearchProvider, SearchSettings, Web};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct WebConfig {
    /// Hosts with private addresses that tools may reach, such as a lab server: names, addresses, `*.domain`.
    allowed_hosts: Vec<String>,
    /// Address ranges that tools may reach, such as `192.168.7.0/24`. Metadata services stay closed.
    allowed_ranges: Vec<String>,
    /// A proxy for all requests, as `http://HOST:PORT`; the environment's proxy is not used. The proxy looks up names, so it
    /// must also guard against private addresses.
    proxy: Option<String>,
    /// Maximum bytes of a response that `http_request` returns.
    http_response_limit: Option<usize>,
    search: SearchConfig,
}

/// `SearchConfig` lists the providers of `tool::web_search` and `web_research`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct SearchConfig {
    /// Overrides the variable `TAVILY_API_KEY`.
    tavily_key: Option<String>,
    /// Overrides the variable `BRAVE_API_KEY`.
    brave_key: Option<String>,
    /// URL of a SearXNG instance with JSON output. Its address may be private.
    searxng_url: Option<String>,
    /// The providers to use, in this order.
    order: Option<Vec<SearchProvider>>,
}

impl ConfigSection for WebConfig {
    fn needs_restart(&self) -> bool {
        false
    }

    fn violations(&self, _: &str) -> Vec<Violation> {
        WebConfig::violations(self)
    }

    fn secrets(&self) -> Vec<String> {
        WebConfig::secrets(self).collect()
    }
}

impl WebConfig {
    /// Builds the settings. `variable` reads the environment.
    pub(crate) fn settings(&self, variable: &dyn Fn(&str) -> Option<String>, trust: Trust) -> Web {
        let options = self.network(trust);
        let allowed_hosts = options.allowed_hosts.clone();
        let usual = Web::default();
        Web {
            search: self.search.settings(&options, variable),
            client: Client::new(options),
            http_response_limit: self.http_response_limit.unwrap_or(usual.http_response_limit),
            plain_hosts: allowed_hosts,
            ..usual
        }
    }

    /// Builds the settings of the guarded client.
    pub(crate) fn network(&self, trust: Trust) -> ClientOptions {
        ClientOptions {
            allowed_hosts: self
                .allowed_hosts
                .iter()
                .filter_map(|host| HostPattern::parse(host).ok())
                .collect(),
            allowed_ranges: self.allowed_ranges.iter().filter_map(|range| range.parse().ok()).collect(),
            proxy: self.proxy.as_ref().and_then(|proxy| proxy.parse().ok()),
            trust,
            ..ClientOptions::default()
        }
    }

    /// Returns values that must not be shown. A proxy's URL may contain a password.
    pub(super) fn secrets(&self) -> impl Iterator<Item = String> {
        let proxy = self.proxy.iter().filter(|proxy| proxy.contains('@'));
        [&self.search.tavily_key, &self.search.brave_key].into_iter().flatten().chain(proxy).cloned()
    }

    /// Returns the errors that the types cannot express.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let hosts = self.allowed_hosts.iter().filter_map(|host| HostPattern::parse(host).err());
        let hosts = hosts.map(|err| Violation { path: "web.allowedHosts".into(), message: err.to_string() });
        let ranges = self.allowed_ranges.iter().filter(|range| range.parse::<IpNet>().is_err());
        let ranges = ranges.map(|range| Violation {
            path: "web.allowedRanges".into(),
            message: format!("{range:?} is not an address range; write it as 192.168.7.0/24"),
        });
        let is_proxy =
            |text: &&String| text.parse::<Url>().is_ok_and(|url| url.scheme() == "http" && url.has_host());
        let proxy = self.proxy.iter().filter(|text| !is_proxy(text)).map(|_| Violation {
            path: "web.proxy".into(),
            // The value is not quoted, because it may contain credentials.
            message: "is not a valid proxy; write it as http://HOST:PORT".into(),
        });
        hosts.chain(ranges).chain(proxy).chain(self.search.violations()).collect()
    }
}

impl SearchConfig {
    fn settings(&self, options: &ClientOptions, variable: &dyn Fn(&str) -> Option<String>) -> SearchSettings {
        let key = |configured: &Option<String>, name: &str| {
            let configured = configured.as_deref().and_then(SearchKey::new);
            configured.or_else(|| SearchKey::new(&variable(name)?))
        };
        let usual = SearchSettings::default();
        SearchSettings {
            tavily_key: key(&self.tavily_key, "TAVILY_API_KEY"),
            brave_key: key(&self.brave_key, "BRAVE_API_KEY"),
            client: self.instance().map(|url| Client::new(reaching(options, &url))),
            searxng_url: self.instance().map(String::from),
            order: self.order.clone().unwrap_or(usual.order),
            endpoints: usual.endpoints,
        }
    }

    fn instance(&self) -> Option<Url> {
        self.searxng_url.as_deref().and_then(|url| instance(url).ok())
    }

    fn violations(&self) -> Vec<Violation> {
        let violation = |key: &str, message: &str| Violation {
            path: format!("web.search.{key}"),
            message: message.to_owned(),
        };
        let mut violations = Vec::new();
        for (key, value) in [("tavilyKey", &self.tavily_key), ("braveKey", &self.brave_key)] {
            if value.as_ref().is_some_and(|value| value.trim().chars().any(|c| !c.is_ascii_graphic())) {
                violations
                    .push(violation(key, "is not a valid key: it contains characters that cannot be sent"));
            }
        }
        if let Some(Err(message)) = self.searxng_url.as_deref().map(instance) {
            violations.push(violation("searxngUrl", message));
        }
        let order = self.order.as_deref().unwrap_or(&[SearchProvider::Duckduckgo]);
        if order.is_empty() {
            violations.push(violation("order", "is empty; leave it out for the default order"));
        }
        if order.iter().enumerate().any(|(index, provider)| order[..index].contains(provider)) {
            violations.push(violation("order", "names a provider twice"));
        }
        violations
    }
}

/// Parses the URL of a SearXNG instance.
fn instance(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL; write it as https://searx.example.org")?;
    match url.scheme() {
        "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
            Err("must not contain a user or a password")
        }
        "http" | "https" if url.query().is_some() || url.fragment().is_some() => {
            Err("must be the instance's URL alone, without ? and #")
        }
        "http" | "https" if names_metadata(&url) => {
            Err("is a cloud's metadata service, not a search instance")
        }
        "http" | "https" => Ok(url),
        _ => Err("must start with https:// or http://"),
    }
}

/// Allows searches to reach the instance even at a private address, because the operator named it. Metadata services and
/// other tools stay excluded.
fn reaching(options: &ClientOptions, instance: &Url) -> ClientOptions {
    let mut options = options.clone();
    options.private_hosts.extend(instance.host_str().and_then(|host| HostPattern::parse(host).ok()));
    options
}

/// Converts keys that other assistants' configurations use to Gantry's own. Errors quote the name that was written.
pub(super) fn accept_older_names(config: &mut Value) -> Vec<Violation> {
    let Value::Object(root) = config else { return Vec::new() };
    let mut wrong = Vec::new();
    let web = root.get_mut("web").and_then(Value::as_object_mut);
    let within = web.and_then(|web| web.remove("http_response_limit"));
    for (limit, written) in
        [(within, "web.http_response_limit"), (root.remove("http_response_limit"), "http_response_limit")]
    {
        wrong.extend(place(root, &["web"], "httpResponseLimit", limit, written));
    }
    let provider = root.remove("search_provider");
    let known = SearchProvider::ALL.map(SearchProvider::name);
    let named = provider.as_ref().and_then(Value::as_str).filter(|name| known.contains(name));
    if let (Some(provider), None) = (&provider, named) {
        let known = known.map(|name| format!("{name:?}")).join(", ");
        let message = format!("{provider} is not one of {known}");
        wrong.push(Violation { path: "search_provider".into(), message });
    }
    let key_name = if named == Some("brave") { "braveKey" } else { "tavilyKey" };
    let key = root.remove("search_api_key");
    wrong.extend(place(root, &["web", "search"], key_name, key, "search_api_key"));
    // With an order, the provider only says which key it is.
    let is_ordered = root.get("web").is_some_and(|web| web.pointer("/search/order").is_some());
    let order = named.filter(|_| !is_ordered).map(first_of);
    wrong.extend(place(root, &["web", "search"], "order", order, "search_provider"));
    wrong
}

/// Returns all providers, with one of them first.
fn first_of(first: &str) -> Value {
    let others = SearchProvider::ALL.map(SearchProvider::name).into_iter().filter(|name| *name != first);
    std::iter::once(first).chain(others).collect()
}

/// Sets a value. Fails if it is already set.
fn place(
    root: &mut Map<String, Value>,
    tables: &[&str],
    name: &str,
    value: Option<Value>,
    written: &str,
) -> Option<Violation> {
    let value = value?;
    let mut table = &mut *root;
    for step in tables {
        match table.entry(*step).or_insert_with(|| json!({})) {
            Value::Object(next) => table = next,
            // Not a table; the check of the whole configuration reports it.
            _ => return None,
        }
    }
    if table.contains_key(name) {
        // The error is not attached to the secret's key, because errors of secrets are redacted.
        let message = format!("{written} is also set as {}.{name}; remove one", tables.join("."));
        return Some(Violation { path: tables.join("."), message });
    }
    table.insert(name.to_owned(), value);
    None
}

#[cfg(test)]
mod tests {
    use gantry_tool::parse_checked;

    use super::*;

    fn read(mut config: Value) -> Result<WebConfig, String> {
        let listed = |violations: Vec<Violation>| violations.iter().map(|each| format!("{each}\n")).collect();
        let older = accept_older_names(&mut config);
        if !older.is_empty() {
            return Err(listed(older));
        }
        let web: WebConfig =
            parse_checked(config.get("web").cloned().unwrap_or_else(|| json!({}))).map_err(listed)?;
        match web.violations() {
            wrong if wrong.is_empty() => Ok(web),
            wrong => Err(listed(wrong)),
        }
    }

    fn none(_: &str) -> Option<String> {
        None
    }

    fn environment(name: &str) -> Option<String> {
        matches!(name, "TAVILY_API_KEY" | "BRAVE_API_KEY").then(|| format!("variable-{name}"))
    }

    fn usable(web: &Web) -> Vec<&'static str> {
        web.search.usable().map(SearchProvider::name).collect()
    }

    #[test]
    fn keys_come_from_the_configuration_or_else_from_the_environment() {
        let empty = read(json!({})).unwrap();
        assert_eq!(usable(&empty.settings(&none, Trust::System)), ["duckduckgo"]);
        assert!(!empty.settings(&none, Trust::System).search.is_configured());
        assert_eq!(
            usable(&empty.settings(&|_| Some("  ".into()), Trust::System)),
            ["duckduckgo"],
            "an empty variable counts as unset"
        );
        assert_eq!(usable(&empty.settings(&environment, Trust::System)), ["tavily", "brave", "duckduckgo"]);
        let own = read(
            json!({"web": {"search": {"tavilyKey": "configured", "searxngUrl": "http://10.0.0.1:8080/x"}}}),
        );
        let search = own.unwrap().settings(&environment, Trust::System).search;
        assert_eq!(search.tavily_key, SearchKey::new("configured"));
        assert_eq!(search.brave_key, SearchKey::new("variable-BRAVE_API_KEY"));
        assert_eq!(search.searxng_url.as_deref(), Some("http://10.0.0.1:8080/x"));
        assert!(search.is_configured() && !format!("{search:?}").contains("configured"), "{search:?}");
    }

    #[test]
    fn the_order_is_who_is_asked_and_nobody_else() {
        let web = read(json!({"web": {"search": {"order": ["brave", "searxng"]}}})).unwrap();
        assert_eq!(usable(&web.settings(&environment, Trust::System)), ["brave"]);
        assert_eq!(usable(&web.settings(&none, Trust::System)), [""; 0]);
    }

    #[test]
    fn everything_that_cannot_be_used_is_said() {
        let wrong = read(json!({"web": {"allowedHosts": ["a b"], "allowedRanges": ["x"], "search": {
            "tavilyKey": "two words", "braveKey": "line\nbreak", "searxngUrl": "ftp://x", "order": ["brave", "brave"]}}}));
        let error = wrong.unwrap_err();
        for part in [
            "web.allowedHosts: \"a b\" is not a valid host",
            "web.allowedRanges: \"x\" is not an address range",
            "web.search.tavilyKey: is not a valid key",
            "web.search.braveKey: is not a valid key",
            "web.search.searxngUrl: must start with https://",
            "web.search.order: names a provider twice",
        ] {
            assert!(error.contains(part), "{part} not in {error}");
        }
        for (search, part) in [
            (
                json!({"order": ["google"]}),
                "is not one of \"tavily\", \"brave\", \"searxng\", \"duckduckgo\"",
            ),
            (json!({"order": []}), "is empty"),
            (json!({"searxngUrl": "https://user:pass@searx.example"}), "must not contain a user"),
            (json!({"searxngUrl": "https://searx.example/?q=1"}), "without ? and #"),
            (json!({"searxngUrl": "searx.example"}), "is not a URL"),
            (json!({"searxngUrl": "http://169.254.169.254/"}), "is a cloud's metadata service"),
            (json!({"searxngUrl": "http://0xa9fea9fe/"}), "is a cloud's metadata service"),
            (json!({"searxngUrl": "http://[::ffff:100.100.100.200]:8080/"}), "is a cloud's metadata service"),
            (json!({"searxngUrl": "http://Metadata.google.internal./"}), "is a cloud's metadata service"),
            (json!({"tavilykey": "x"}), "did you mean \"tavilyKey\"?"),
        ] {
            let error = read(json!({"web": {"search": search}})).unwrap_err();
            assert!(error.contains(part), "{part} not in {error}");
        }
    }

    #[test]
    fn older_names_are_understood() {
        for config in [
            json!({"http_response_limit": 7}),
            json!({"web": {"http_response_limit": 7}}),
            json!({"web": {"httpResponseLimit": 7}}),
        ] {
            assert_eq!(
                read(config.clone()).unwrap().settings(&none, Trust::System).http_response_limit,
                7,
                "{config}"
            );
        }
        let both = read(json!({"web": {"httpResponseLimit": 7, "http_response_limit": 8}})).unwrap_err();
        assert_eq!(both, "web: web.http_response_limit is also set as web.httpResponseLimit; remove one\n");
        let search = |config| read(config).unwrap().settings(&none, Trust::System).search;
        let tavily = search(json!({"search_api_key": "tvly-1"}));
        assert_eq!(tavily.tavily_key, SearchKey::new("tvly-1"));
        let brave = search(json!({"search_api_key": "b-1", "search_provider": "brave"}));
        assert_eq!((brave.brave_key.clone(), brave.tavily_key), (SearchKey::new("b-1"), None));
        assert_eq!(brave.order[..2], [SearchProvider::Brave, SearchProvider::Tavily]);
        let ordered = search(json!({"search_api_key": "b-1", "search_provider": "brave",
            "web": {"search": {"order": ["searxng", "brave"]}}}));
        assert_eq!(ordered.brave_key, SearchKey::new("b-1"));
        assert_eq!(
            ordered.order,
            [SearchProvider::Searxng, SearchProvider::Brave],
            "the order has precedence"
        );
        let order = json!({"search": {"order": ["brave"]}});
        for config in [json!({"search_provider": "bing"}), json!({"search_provider": "bing", "web": order})] {
            let error = read(config).unwrap_err();
            assert!(error.starts_with("search_provider: \"bing\" is not one of \"tavily\""), "{error}");
        }
        let twice = read(json!({"search_api_key": "t", "web": {"search": {"tavilyKey": "u"}}})).unwrap_err();
        assert_eq!(twice, "web.search: search_api_key is also set as web.search.tavilyKey; remove one\n");
    }
}
