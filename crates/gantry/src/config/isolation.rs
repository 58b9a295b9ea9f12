//! `[isolation]` configures the environment and the network of agents' commands, for all agents or for one.

use std::collections::BTreeMap;

use gantry_domain::ConfigSection;
use gantry_net::{HostPattern, HostPatternError, NetworkPolicy};
use gantry_tool::{Masker, Violation};
use gantry_toolsets::{Isolation, IsolationLevel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `IsolationConfig` is the environment and the network of an agent's commands.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct IsolationConfig {
    level: LevelConfig,
    /// Variables for commands of sandboxed agents.
    env_vars: BTreeMap<String, String>,
    /// `allow-all`, `allow-list` or `deny-all`. With `deny-all`, commands have no network; with `allow-list`, isolated commands
    /// reach the listed hosts and others have no network. Any other value means `deny-all`.
    network_policy: NetworkConfig,
    /// Hosts that `allow-list` lets the web tools and isolated commands reach.
    allowed_hosts: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum LevelConfig {
    #[default]
    Shared,
    Scoped,
    Sandboxed,
    AirGapped,
}

/// Any text is accepted: a misspelled policy must neither open the network nor prevent the gateway's start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(with = "String")]
enum NetworkConfig {
    #[default]
    AllowAll,
    AllowList,
    DenyAll,
    Unknown(String),
}

impl From<String> for NetworkConfig {
    fn from(text: String) -> NetworkConfig {
        match text.as_str() {
            "allow-all" => NetworkConfig::AllowAll,
            "allow-list" => NetworkConfig::AllowList,
            "deny-all" => NetworkConfig::DenyAll,
            _ => NetworkConfig::Unknown(text),
        }
    }
}

impl From<NetworkConfig> for String {
    fn from(policy: NetworkConfig) -> String {
        match policy {
            NetworkConfig::AllowAll => "allow-all".to_owned(),
            NetworkConfig::AllowList => "allow-list".to_owned(),
            NetworkConfig::DenyAll => "deny-all".to_owned(),
            NetworkConfig::Unknown(text) => text,
        }
    }
}

impl ConfigSection for IsolationConfig {
    fn needs_restart(&self) -> bool {
        false
    }

    fn violations(&self, at: &str) -> Vec<Violation> {
        let wrong = self.hosts().filter_map(Result::err);
        let wrong =
            wrong.map(|err| Violation { path: format!("{at}.allowedHosts"), message: err.to_string() });
        wrong.collect()
    }

    /// Returns the values of variables whose names look secret.
    fn secrets(&self) -> Vec<String> {
        let secret = self.env_vars.iter().filter(|(name, _)| Masker::is_secret_name(name));
        secret.map(|(_, value)| value.clone()).collect()
    }

    fn warnings(&self, at: &str) -> Vec<String> {
        match &self.network_policy {
            NetworkConfig::Unknown(text) => vec![format!(
                "{at}.networkPolicy is {text:?}, which is not allow-all, allow-list or deny-all; it is treated as deny-all"
            )],
            NetworkConfig::AllowAll | NetworkConfig::AllowList | NetworkConfig::DenyAll => Vec::new(),
        }
    }
}

impl IsolationConfig {
    fn hosts(&self) -> impl Iterator<Item = Result<HostPattern, HostPatternError>> {
        self.allowed_hosts.iter().map(|host| HostPattern::parse(host))
    }

    pub(crate) fn settings(&self) -> Isolation {
        Isolation {
            level: match self.level {
                LevelConfig::Shared => IsolationLevel::Shared,
                LevelConfig::Scoped => IsolationLevel::Scoped,
                LevelConfig::Sandboxed => IsolationLevel::Sandboxed,
                LevelConfig::AirGapped => IsolationLevel::AirGapped,
            },
            variables: self.env_vars.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            network: match &self.network_policy {
                NetworkConfig::AllowAll => NetworkPolicy::AllowAll,
                NetworkConfig::AllowList => NetworkPolicy::AllowList(self.hosts().flatten().collect()),
                NetworkConfig::DenyAll | NetworkConfig::Unknown(_) => NetworkPolicy::DenyAll,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn network(policy: &str) -> NetworkPolicy {
        let config = json!({"networkPolicy": policy, "allowedHosts": ["api.example.com", "*.example.org"]});
        gantry_tool::parse_checked::<IsolationConfig>(config).unwrap().settings().network
    }

    #[test]
    fn the_list_is_exact_hosts_and_whole_domains() {
        let list = network("allow-list");
        for (host, allowed) in [
            ("api.example.com", true),
            ("a.b.example.org", true),
            ("x.api.example.com", false),
            ("example.org", false),
            ("example.com", false),
        ] {
            assert_eq!(list.allows(host), allowed, "{host}");
        }
        assert_eq!(network("allow-all"), NetworkPolicy::AllowAll);
        assert_eq!(network("deny-all"), NetworkPolicy::DenyAll);
    }

    #[test]
    fn unknown_policy_denies_with_a_warning() {
        for policy in ["", "allow", "Allow-All", "allow_all", " allow-all", "allowall", "none"] {
            assert_eq!(network(policy), NetworkPolicy::DenyAll, "{policy}");
            let config: IsolationConfig = serde_json::from_value(json!({ "networkPolicy": policy })).unwrap();
            assert!(config.warnings("isolation")[0].contains("is treated as deny-all"), "{policy}");
            assert_eq!(serde_json::to_value(&config).unwrap()["networkPolicy"], policy, "shown as written");
        }
        assert!(IsolationConfig::default().warnings("isolation").is_empty());
    }
}
