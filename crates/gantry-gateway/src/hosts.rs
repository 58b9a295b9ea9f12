//! Checks the `Host` and `Origin` headers, so that a web page in a browser cannot reach the gateway by DNS rebinding.

use std::collections::BTreeSet;
use std::net::IpAddr;

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// `Hosts` holds the accepted host names and origins.
#[derive(Debug, Clone)]
pub struct Hosts {
    names: BTreeSet<String>,
    /// Whether any IP address is accepted, because the gateway listens on all. Addresses cannot be rebound as names can.
    any_address: bool,
    /// Names and ports of proxies in front of the gateway, which may forward another `Host`.
    fronts: BTreeSet<(String, u16)>,
}

impl Hosts {
    /// Accepts loopback names and the given ones: public, configured, the listening address and the machine's name.
    pub fn new(others: impl IntoIterator<Item = String>) -> Hosts {
        let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut names: BTreeSet<String> =
            loopback.into_iter().chain(others).map(|name| name.to_ascii_lowercase()).collect();
        let any_address = names.remove("0.0.0.0") | names.remove("::");
        Hosts { names, any_address, fronts: BTreeSet::new() }
    }

    /// Accepts pages of this name, at the default ports and at the given one.
    pub fn fronted_by(mut self, name: &str, port: Option<u16>) -> Hosts {
        let ports = [HTTP_PORT, HTTPS_PORT].into_iter().chain(port);
        self.fronts.extend(ports.map(|port| (name.to_ascii_lowercase(), port)));
        self
    }

    /// Returns whether a `Host` header is accepted.
    pub fn allows_host(&self, header: &str) -> bool {
        authority(header).is_some_and(|(host, _)| self.knows(&host))
    }

    /// Returns whether an `Origin` header is accepted: an accepted name with the port of the request, because other ports
    /// belong to other servers. `null` is rejected.
    pub fn allows_origin(&self, header: &str, asked: &str) -> bool {
        let (usual, rest) = match (header.strip_prefix("http://"), header.strip_prefix("https://")) {
            (Some(rest), _) => (HTTP_PORT, rest),
            (_, Some(rest)) => (HTTPS_PORT, rest),
            _ => return false,
        };
        let Some((host, port)) = authority(rest) else { return false };
        let port = port.unwrap_or(usual);
        let asked_port = authority(asked).and_then(|(_, port)| port).unwrap_or(usual);
        (port == asked_port && self.knows(&host)) || self.fronts.contains(&(host, port))
    }

    fn knows(&self, host: &str) -> bool {
        self.names.contains(host) || (self.any_address && host.parse::<IpAddr>().is_ok())
    }
}

/// Splits `host`, `host:port` or `[v6]:port` into host and port.
fn authority(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']')?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map(str::parse::<u16>).transpose().ok()?;
    (!host.is_empty()).then(|| (host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_names_are_accepted() {
        let hosts = Hosts::new(["gantry.example.com".to_owned()]);
        for good in
            ["localhost", "localhost:7770", "127.0.0.1:7770", "[::1]:7770", "[::1]", "Gantry.Example.com:443"]
        {
            assert!(hosts.allows_host(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7770",
            "10.0.0.1",
            "localhost:x",
            "localhost:7770:1",
            "[::1",
            "[::1]x",
            "a@localhost",
            "localhost/",
            ":7770",
        ] {
            assert!(!hosts.allows_host(bad), "{bad}");
        }
    }

    #[test]
    fn only_own_origins_are_accepted() {
        let hosts = Hosts::new([]);
        let asked = "localhost:7770";
        for good in
            ["http://localhost:7770", "http://127.0.0.1:7770", "https://[::1]:7770", "http://LOCALHOST:7770"]
        {
            assert!(hosts.allows_origin(good, asked), "{good}");
        }
        assert!(
            hosts.allows_origin("http://localhost", "localhost")
                && hosts.allows_origin("https://localhost:443", "localhost")
        );
        for bad in [
            "null",
            "",
            "http://evil.example",
            "http://evil.example:7770",
            "file://localhost",
            "localhost:7770",
            "http://localhost.evil.example:7770",
            "http://localhost",
            "https://127.0.0.1",
            "http://localhost:3000",
            "http://[::1]:80",
            "http://localhost:77700",
        ] {
            assert!(!hosts.allows_origin(bad, asked), "{bad}");
        }
    }

    #[test]
    fn origin_of_a_proxy_is_accepted() {
        let hosts = Hosts::new(["gantry.example".to_owned()]).fronted_by("Gantry.example", Some(8443));
        for good in ["https://gantry.example", "https://gantry.example:8443", "http://gantry.example"] {
            assert!(hosts.allows_origin(good, "127.0.0.1:7770"), "{good}");
        }
        for bad in ["https://gantry.example:9000", "https://other.example", "https://localhost"] {
            assert!(!hosts.allows_origin(bad, "127.0.0.1:7770"), "{bad}");
        }
    }

    #[test]
    fn listening_everywhere_accepts_addresses_but_no_names() {
        let hosts = Hosts::new(["0.0.0.0".to_owned()]);
        assert!(hosts.allows_host("192.0.2.7:7770") && hosts.allows_host("[2001:db8::1]:7770"));
        assert!(!hosts.allows_host("evil.example"));
    }
}
