//! Says in a few lines what the shells of Gantry's own agents can reach, and what is closed to them.

use gantry_net::NetworkPolicy;
use gantry_toolsets::{IsolationLevel, SandboxMode};

use crate::config::Config;

/// Describes agents' shells. `no_namespaces` is why this system cannot isolate them.
pub(crate) fn agent_shells_summary(config: &Config, no_namespaces: Option<&str>) -> [String; 2] {
    let shell = config.shell.settings();
    let unsupported = gantry_process::sandbox_support().reason;
    let isolation = config.isolation.settings();
    let network = match isolation.network {
        _ if isolation.level == IsolationLevel::AirGapped => "no network",
        NetworkPolicy::DenyAll => "no network",
        NetworkPolicy::AllowList(_) if shell.isolated => "no hosts except isolation.allowedHosts",
        NetworkPolicy::AllowList(_) => {
            "no network, because only isolated shells can be limited to some hosts"
        }
        NetworkPolicy::AllowAll if shell.isolated => {
            "hosts beyond package sources and egress.allow are asked about"
        }
        NetworkPolicy::AllowAll => "every host is reachable",
    };
    match (shell.sandbox, unsupported) {
        (SandboxMode::Off, _) => [
            "not confined: they run with your rights, because shell.sandbox is \"off\"".to_owned(),
            network.to_owned(),
        ],
        (SandboxMode::Required, Some(reason)) => {
            let hint = "`gantry config set shell.sandbox off` runs them unconfined".to_owned();
            [format!("refused, because this system cannot confine them: {reason}"), hint]
        }
        (SandboxMode::Required, None) => match (shell.isolated, no_namespaces) {
            (true, None) => [
                "isolated: they write the workspace and package caches of their own".to_owned(),
                format!("no credentials; {network}"),
            ],
            (true, Some(reason)) => [
                format!("not isolated, because this system allows no namespaces: {reason}"),
                "no credentials, no data directory, no network; the rest of your files is open".to_owned(),
            ],
            (false, _) => [
                "not isolated (shell.isolated is false): they read and write your files".to_owned(),
                format!("no credentials, no data directory; {network}"),
            ],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(text: &str, no_namespaces: Option<&str>) -> String {
        let config: Config = toml::from_str(text).unwrap();
        agent_shells_summary(&config, no_namespaces).join(" | ")
    }

    #[test]
    fn summary_follows_the_settings() {
        if gantry_process::sandbox_support().reason.is_some() {
            assert!(summary("", None).contains("refused"));
            return;
        }
        for (text, no_namespaces, parts) in [
            ("[shell]\nisolated = true\n", None, ["isolated: they write", "asked about"]),
            ("[shell]\nisolated = true\n", Some("no"), ["allows no namespaces: no", "no network"]),
            ("[shell]\nisolated = false\n", None, ["shell.isolated is false", "every host is reachable"]),
            ("[shell]\nsandbox = \"off\"\n", None, ["with your rights", ""]),
            (
                "[shell]\nisolated = true\n[isolation]\nnetworkPolicy = \"deny-all\"\n",
                None,
                ["isolated: they write", "no network"],
            ),
            (
                "[shell]\nisolated = true\n[isolation]\nnetworkPolicy = \"allow-list\"\nallowedHosts = [\"x.example\"]\n",
                None,
                ["isolated: they write", "isolation.allowedHosts"],
            ),
        ] {
            let found = summary(text, no_namespaces);
            assert!(parts.iter().all(|part| found.contains(part)), "{text}: {found}");
        }
    }
}
