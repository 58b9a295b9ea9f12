//! Decides which hosts a caller may reach, by name. The guard checks what a name resolves to, for
//! every caller.

use std::fmt;

/// `HostPattern` is one entry of a list of hosts: a name, an address, or `*.domain` for everything
/// below a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Exact(String),
    Below(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a valid host; write a name such as api.example.com, an address, or *.example.com")]
pub struct HostPatternError(String);

impl HostPattern {
    pub fn parse(text: &str) -> Result<HostPattern, HostPatternError> {
        let refused = || HostPatternError(text.chars().take(200).collect());
        let (below, name) = match text.strip_prefix("*.") {
            Some(domain) => (true, domain),
            None => (false, text),
        };
        let name = host(name).ok_or_else(refused)?;
        Ok(if below { HostPattern::Below(name) } else { HostPattern::Exact(name) })
    }

    /// Reports whether this pattern includes every host of the other one.
    fn covers(&self, other: &HostPattern) -> bool {
        match other {
            HostPattern::Exact(name) => self.matches(name),
            HostPattern::Below(domain) => {
                self == other || matches!(self, HostPattern::Below(_)) && self.matches(domain)
            }
        }
    }

    /// Reports whether the pattern matches a host, in the form of [`url::Url`].
    pub fn matches(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        match self {
            HostPattern::Exact(name) => host.eq_ignore_ascii_case(name),
            HostPattern::Below(domain) => host
                .to_ascii_lowercase()
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => f.write_str(name),
            HostPattern::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

/// Normalizes a host as URLs do: lower case, punycode, canonical addresses, no dot at the end.
fn host(text: &str) -> Option<String> {
    if text.is_empty() || text.contains(['/', '@', '?', '#', '*', '\\', ' ']) {
        return None;
    }
    // The parsed URL would not contain the scheme's default port.
    let has_port = text.rfind(':') > text.rfind(']') && text.parse::<std::net::Ipv6Addr>().is_err();
    let bracketed = text.parse::<std::net::Ipv6Addr>().map(|address| format!("[{address}]"));
    let url = url::Url::parse(&format!("http://{}/", bracketed.unwrap_or_else(|_| text.to_owned()))).ok()?;
    let name = url.host_str()?.trim_end_matches('.').to_owned();
    (!has_port && !name.is_empty()).then_some(name)
}

/// `NetworkPolicy` says which hosts an agent may reach with its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkPolicy {
    #[default]
    AllowAll,
    /// Only these hosts.
    AllowList(Vec<HostPattern>),
    DenyAll,
}

impl NetworkPolicy {
    /// Returns the policy that allows what both policies allow.
    pub fn within(&self, other: &NetworkPolicy) -> NetworkPolicy {
        match (self, other) {
            (NetworkPolicy::DenyAll, _) | (_, NetworkPolicy::DenyAll) => NetworkPolicy::DenyAll,
            (NetworkPolicy::AllowAll, only) | (only, NetworkPolicy::AllowAll) => only.clone(),
            (NetworkPolicy::AllowList(ours), NetworkPolicy::AllowList(theirs)) => {
                let covered =
                    |one: &HostPattern, by: &[HostPattern]| by.iter().any(|other| other.covers(one));
                let mut both: Vec<HostPattern> =
                    ours.iter().filter(|one| covered(one, theirs)).cloned().collect();
                both.extend(theirs.iter().filter(|one| covered(one, ours) && !ours.contains(one)).cloned());
                NetworkPolicy::AllowList(both)
            }
        }
    }

    pub fn allows(&self, host: &str) -> bool {
        match self {
            NetworkPolicy::AllowAll => true,
            NetworkPolicy::AllowList(hosts) => hosts.iter().any(|pattern| pattern.matches(host)),
            NetworkPolicy::DenyAll => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> NetworkPolicy {
        NetworkPolicy::AllowList(patterns.iter().map(|text| HostPattern::parse(text).unwrap()).collect())
    }

    #[test]
    fn combined_policies_allow_what_both_allow() {
        let (all, none) = (NetworkPolicy::AllowAll, NetworkPolicy::DenyAll);
        let ours = list(&["a.example.com", "*.example.org", "b.net", "*.deep.example.net"]);
        let theirs = list(&["*.example.com", "x.example.org", "*.example.org", "*.example.net"]);
        let both = list(&["a.example.com", "*.example.org", "*.deep.example.net", "x.example.org"]);
        for (one, other, expected) in [
            (&all, &ours, &ours),
            (&ours, &all, &ours),
            (&none, &all, &none),
            (&ours, &none, &none),
            (&ours, &theirs, &both),
            (&ours, &list(&["c.net"]), &list(&[])),
        ] {
            assert_eq!(one.within(other), *expected, "{one:?} within {other:?}");
        }
        let hosts = [
            "a.example.com",
            "b.example.com",
            "x.example.org",
            "b.net",
            "x.deep.example.net",
            "y.example.net",
        ];
        for host in hosts {
            let expected = ours.allows(host) && theirs.allows(host);
            assert_eq!(
                (ours.within(&theirs).allows(host), theirs.within(&ours).allows(host)),
                (expected, expected),
                "{host}"
            );
        }
    }

    #[test]
    fn allow_list_matches_hosts_and_subdomains() {
        let patterns = ["api.example.com", "*.Example.org", "10.0.0.1", "::1", "bücher.example"];
        let list =
            NetworkPolicy::AllowList(patterns.iter().map(|text| HostPattern::parse(text).unwrap()).collect());
        for host in [
            "api.example.com",
            "api.example.com.",
            "a.example.org",
            "a.b.example.org",
            "10.0.0.1",
            "[::1]",
            "xn--bcher-kva.example",
        ] {
            assert!(list.allows(host), "{host}");
        }
        for host in
            ["example.com", "x.api.example.com", "example.org", ".example.org", "badexample.org", "10.0.0.2"]
        {
            assert!(!list.allows(host), "{host}");
        }
        assert!(
            NetworkPolicy::AllowAll.allows("any.example") && !NetworkPolicy::DenyAll.allows("any.example")
        );
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        for text in [
            "",
            "*.",
            "*",
            "http://a",
            "a/b",
            "a b",
            "u@a",
            "a:80",
            "a:443",
            "[::1]:80",
            "10.0.0.1:8080",
            "*.*.a",
            "a?b",
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }
}
