//! `[web]`: how tools reach the outside, and with whom they search.

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
    /// Hosts that tools reach though their addresses are not public, such as a lab server: names, addresses, `*.domain`.
    allowed_hosts: Vec<String>,
    /// Ranges of addresses that count as public, such as `192.168.7.0/24`. Metadata services stay closed.
    allowed_ranges: Vec<String>,
    /// A proxy for all of them, as `http://HOST:PORT`; the environment's is not used. Names are then looked up by the proxy, so
    /// what they lead to is its business to guard.
    proxy: Option<String>,
    /// Bytes of an answer that `http_request` shows.
    http_response_limit: Option<usize>,
    search: SearchConfig,
}

/// Whom `tool::web_search` and `web_research` ask.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct SearchConfig {
    /// In place of the variable `TAVILY_API_KEY`.
    tavily_key: Option<String>,
    /// In place of the variable `BRAVE_API_KEY`.
    brave_key: Option<String>,
    /// A SearXNG instance that answers in JSON. It may be on a private address.
    searxng_url: Option<String>,
    /// Who is asked, in this order, and nobody else.
    order: Option<Vec<SearchProvider>>,
}

impl ConfigSection for WebConfig {
    fn violations(&self, _: &str) -> Vec<Violation> {
        WebConfig::violations(self)
    }

    fn secrets(&self) -> Vec<String> {
        WebConfig::secrets(self).collect()
    }
}

impl WebConfig {
    /// `variable` is the environment.
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

    /// How the guarded client is set up for everybody.
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

    /// Values that must not be shown; a proxy's address may hold a password.
    pub(super) fn secrets(&self) -> impl Iterator<Item = String> {
        let proxy = self.proxy.iter().filter(|proxy| proxy.contains('@'));
        [&self.search.tavily_key, &self.search.brave_key].into_iter().flatten().chain(proxy).cloned()
    }

    /// What the types cannot say.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let hosts = self.allowed_hosts.iter().filter_map(|host| HostPattern::parse(host).err());
        let hosts = hosts.map(|err| Violation { path: "web.allowedHosts".into(), message: err.to_string() });
        let ranges = self.allowed_ranges.iter().filter(|range| range.parse::<IpNet>().is_err());
        let ranges = ranges.map(|range| Violation {
            path: "web.allowedRanges".into(),
            message: format!("{range:?} is no range; write it as 192.168.7.0/24"),
        });
        let is_proxy =
            |text: &&String| text.parse::<Url>().is_ok_and(|url| url.scheme() == "http" && url.has_host());
        let proxy = self.proxy.iter().filter(|text| !is_proxy(text)).map(|_| Violation {
            path: "web.proxy".into(),
            // Not quoted: it may hold credentials.
            message: "that is no proxy; write it as http://HOST:PORT".into(),
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
                violations.push(violation(key, "is no key: it holds characters that cannot be sent"));
            }
        }
        if let Some(Err(message)) = self.searxng_url.as_deref().map(instance) {
            violations.push(violation("searxngUrl", message));
        }
        let order = self.order.as_deref().unwrap_or(&[SearchProvider::Duckduckgo]);
        if order.is_empty() {
            violations.push(violation("order", "is empty; leave it out for the usual order"));
        }
        if order.iter().enumerate().any(|(index, provider)| order[..index].contains(provider)) {
            violations.push(violation("order", "names a provider twice"));
        }
        violations
    }
}

/// Where a SearXNG instance is.
fn instance(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "is no address; write it as https://searx.example.org")?;
    match url.scheme() {
        "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
            Err("must not hold a user or a password")
        }
        "http" | "https" if url.query().is_some() || url.fragment().is_some() => {
            Err("is the instance's address alone, without ? and #")
        }
        "http" | "https" if names_metadata(&url) => {
            Err("is a cloud's metadata service, which no search instance is")
        }
        "http" | "https" => Ok(url),
        _ => Err("must begin with https:// or http://"),
    }
}

/// The operator has named the instance, so searching may reach it wherever it is, short of a metadata service; other tools
/// may not.
fn reaching(options: &ClientOptions, instance: &Url) -> ClientOptions {
    let mut options = options.clone();
    options.private_hosts.extend(instance.host_str().and_then(|host| HostPattern::parse(host).ok()));
    options
}

/// Keys under the names that other assistants' configurations have for them, put where they belong. What cannot be is told
/// under the name that was written.
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
    // Where there is an order, the provider only says whose key it is.
    let is_ordered = root.get("web").is_some_and(|web| web.pointer("/search/order").is_some());
    let order = named.filter(|_| !is_ordered).map(first_of);
    wrong.extend(place(root, &["web", "search"], "order", order, "search_provider"));
    wrong
}

/// All providers, one of them first.
fn first_of(first: &str) -> Value {
    let others = SearchProvider::ALL.map(SearchProvider::name).into_iter().filter(|name| *name != first);
    std::iter::once(first).chain(others).collect()
}

/// Puts a value where it belongs; the error is that there is one already.
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
            // Not a table: said when the whole is checked.
            _ => return None,
        }
    }
    if table.contains_key(name) {
        // Not at the name of a secret, of which nothing is told but that.
        let message = format!("{written} is given twice, also as {}.{name}: keep one", tables.join("."));
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
            "an empty variable is none"
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
        let told = wrong.unwrap_err();
        for part in [
            "web.allowedHosts: \"a b\" is not a valid host",
            "web.allowedRanges: \"x\" is no range",
            "web.search.tavilyKey: is no key",
            "web.search.braveKey: is no key",
            "web.search.searxngUrl: must begin with https://",
            "web.search.order: names a provider twice",
        ] {
            assert!(told.contains(part), "{part} not in {told}");
        }
        for (search, part) in [
            (
                json!({"order": ["google"]}),
                "is not one of \"tavily\", \"brave\", \"searxng\", \"duckduckgo\"",
            ),
            (json!({"order": []}), "is empty"),
            (json!({"searxngUrl": "https://user:pass@searx.example"}), "must not hold a user"),
            (json!({"searxngUrl": "https://searx.example/?q=1"}), "without ? and #"),
            (json!({"searxngUrl": "searx.example"}), "is no address"),
            (json!({"searxngUrl": "http://169.254.169.254/"}), "is a cloud's metadata service"),
            (json!({"searxngUrl": "http://0xa9fea9fe/"}), "is a cloud's metadata service"),
            (json!({"searxngUrl": "http://[::ffff:100.100.100.200]:8080/"}), "is a cloud's metadata service"),
            (json!({"searxngUrl": "http://Metadata.google.internal./"}), "is a cloud's metadata service"),
            (json!({"tavilykey": "x"}), "did you mean \"tavilyKey\"?"),
        ] {
            let told = read(json!({"web": {"search": search}})).unwrap_err();
            assert!(told.contains(part), "{part} not in {told}");
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
        assert_eq!(
            both,
            "web: web.http_response_limit is given twice, also as web.httpResponseLimit: keep one\n"
        );
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
            "the order is the newer word"
        );
        let order = json!({"search": {"order": ["brave"]}});
        for config in [json!({"search_provider": "bing"}), json!({"search_provider": "bing", "web": order})] {
            let told = read(config).unwrap_err();
            assert!(told.starts_with("search_provider: \"bing\" is not one of \"tavily\""), "{told}");
        }
        let twice = read(json!({"search_api_key": "t", "web": {"search": {"tavilyKey": "u"}}})).unwrap_err();
        assert_eq!(
            twice,
            "web.search: search_api_key is given twice, also as web.search.tavilyKey: keep one\n"
        );
    }
}
