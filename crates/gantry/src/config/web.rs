//! `[web]`: how tools reach the outside.

use gantry_net::{Client, ClientOptions, HostPattern, IpNet};
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
    /// Bytes of an answer that `http_request` shows.
    #[serde(alias = "http_response_limit")]
    http_response_limit: Option<usize>,
}

impl WebConfig {
    pub(crate) fn settings(&self) -> Web {
        let allowed_hosts: Vec<HostPattern> =
            self.allowed_hosts.iter().filter_map(|host| HostPattern::parse(host).ok()).collect();
        let client = Client::new(ClientOptions {
            allowed_hosts: allowed_hosts.clone(),
            allowed_ranges: self.allowed_ranges.iter().filter_map(|range| range.parse().ok()).collect(),
            ..ClientOptions::default()
        });
        let usual = Web::default();
        Web {
            client,
            http_response_limit: self.http_response_limit.unwrap_or(usual.http_response_limit),
            plain_hosts: allowed_hosts,
            ..usual
        }
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
        hosts.chain(ranges).collect()
    }
}
