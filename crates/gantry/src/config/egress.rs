//! `[egress]`: the hosts that isolated commands of agents may reach.

use gantry_domain::ConfigSection;
use gantry_net::ClientOptions;
use gantry_tool::Violation;
use gantry_toolsets::{EgressHost, EgressHostError, EgressSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Connections of agents' isolated commands.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct EgressConfig {
    /// Hosts that commands may reach without a question: names, `*.domain`, and `host.gantry.internal:PORT` for a
    /// service on this machine's loopback.
    allow: Vec<String>,
}

impl EgressConfig {
    fn hosts(&self) -> impl Iterator<Item = Result<EgressHost, EgressHostError>> {
        self.allow.iter().map(|host| EgressHost::parse(host))
    }

    pub(crate) fn settings(&self, network: ClientOptions) -> EgressSettings {
        EgressSettings { allow: self.hosts().flatten().collect(), network }
    }
}

impl ConfigSection for EgressConfig {
    fn needs_restart(&self) -> bool {
        false
    }

    fn violations(&self, at: &str) -> Vec<Violation> {
        let wrong = self.hosts().filter_map(Result::err);
        wrong.map(|err| Violation { path: format!("{at}.allow"), message: err.to_string() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hosts_are_checked_when_the_configuration_is_read() {
        let config = json!({"allow": ["api.example.com", "*.example.org", "host.gantry.internal:5432"]});
        let config: EgressConfig = gantry_tool::parse_checked(config).unwrap();
        assert!(config.violations("egress").is_empty());
        assert_eq!(config.settings(ClientOptions::default()).allow.len(), 3);
        let wrong = EgressConfig { allow: vec!["host.gantry.internal".into(), "https://x.example".into()] };
        let messages: Vec<String> = wrong.violations("egress").iter().map(ToString::to_string).collect();
        assert!(
            messages[0].contains("egress.allow") && messages[0].contains("name one port"),
            "{messages:?}"
        );
        assert!(messages[1].contains("is not a valid host"), "{messages:?}");
    }
}
