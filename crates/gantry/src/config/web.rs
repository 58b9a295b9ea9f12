//! `[web]`: how tools reach the outside.

use gantry_net::{Client, ClientOptions, HostPattern, IpNet, Url};
use gantry_tool::Violation;
use gantry_toolsets::Web;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    #[serde(alias = "http_response_limit")]
    http_response_limit: Option<usize>,
}

impl WebConfig {
    pub(crate) fn settings(&self) -> Web {
        let client = Client::new(ClientOptions {
            allowed_hosts: self
                .allowed_hosts
                .iter()
                .filter_map(|host| HostPattern::parse(host).ok())
                .collect(),
            allowed_ranges: self.allowed_ranges.iter().filter_map(|range| range.parse().ok()).collect(),
            proxy: self.proxy.as_ref().and_then(|proxy| proxy.parse().ok()),
            ..ClientOptions::default()
        });
        let usual = Web::default();
        Web { client, http_response_limit: self.http_response_limit.unwrap_or(usual.http_response_limit) }
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
        hosts.chain(ranges).chain(proxy).collect()
    }
}
