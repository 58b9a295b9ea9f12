//! Which hosts somebody may speak to, by name. What a name resolves to is checked elsewhere, for everybody.

use std::fmt;

/// One entry of a list of hosts: a name, an address, or `*.domain` for everything below a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Exact(String),
    Below(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no host; write a name such as api.example.com, an address, or *.example.com")]
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

    /// Whether every host that the other one means is meant by this one.
    fn covers(&self, other: &HostPattern) -> bool {
        match other {
            HostPattern::Exact(name) => self.matches(name),
            HostPattern::Below(domain) => {
                self == other || matches!(self, HostPattern::Below(_)) && self.matches(domain)
            }
        }
    }

    /// Whether a host, as [`url::Url`] spells it, is meant.
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

/// A host as URLs spell it: lower case, punycode, addresses in their one form, no dot at the end.
fn host(text: &str) -> Option<String> {
    if text.is_empty() || text.contains(['/', '@', '?', '#', '*', '\\', ' ']) {
        return None;
    }
    // The scheme's own port would vanish from the parsed URL.
    let has_port = text.rfind(':') > text.rfind(']') && text.parse::<std::net::Ipv6Addr>().is_err();
    let bracketed = text.parse::<std::net::Ipv6Addr>().map(|address| format!("[{address}]"));
    let url = url::Url::parse(&format!("http://{}/", bracketed.unwrap_or_else(|_| text.to_owned()))).ok()?;
    let name = url.host_str()?.trim_end_matches('.').to_owned();
    (!has_port && !name.is_empty()).then_some(name)
}

/// Whom an agent may reach with its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkPolicy {
    #[default]
    AllowAll,
    /// These hosts alone.
    AllowList(Vec<HostPattern>),
    DenyAll,
}

impl NetworkPolicy {
    /// Whom this one and another one both let be reached.
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
    fn two_policies_together_allow_what_both_allow() {
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
    fn a_list_allows_its_hosts_and_what_is_below_its_domains() {
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
    fn what_is_no_host_is_refused() {
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
