//! Which names this gateway answers to. A page in somebody's browser must not reach it by a name of its own.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// The accepted hosts, without ports.
#[derive(Debug, Clone)]
pub struct Hosts {
    names: BTreeSet<String>,
    /// Listening on every address: any of them may be named. A number cannot be rebound as a name can.
    any_address: bool,
}

impl Hosts {
    /// Loopback names, and those given: the public name, configured ones, the listening address and the machine's name.
    pub fn new(others: impl IntoIterator<Item = String>) -> Hosts {
        let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut names: BTreeSet<String> =
            loopback.into_iter().chain(others).map(|name| name.to_ascii_lowercase()).collect();
        let any_address = names.remove("0.0.0.0") | names.remove("::");
        Hosts { names, any_address }
    }

    /// Whether a `Host` header names us.
    pub fn allows_host(&self, header: &str) -> bool {
        host_of(header).is_some_and(|host| self.knows(&host))
    }

    /// Whether an `Origin` header is one of our own pages. `null` is nobody's.
    pub fn allows_origin(&self, header: &str) -> bool {
        let authority = header.strip_prefix("http://").or_else(|| header.strip_prefix("https://"));
        authority.and_then(host_of).is_some_and(|host| self.knows(&host))
    }

    fn knows(&self, host: &str) -> bool {
        self.names.contains(host) || (self.any_address && host.parse::<IpAddr>().is_ok())
    }
}

/// The host of `host`, `host:port` or `[v6]:port`.
fn host_of(authority: &str) -> Option<String> {
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
    let port_is_sound = port.is_none_or(|port| port.parse::<u16>().is_ok());
    (port_is_sound && !host.is_empty()).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_answered() {
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
    fn origins_are_pages_of_our_own() {
        let hosts = Hosts::new([]);
        assert!(hosts.allows_origin("http://localhost:7770") && hosts.allows_origin("https://127.0.0.1"));
        for bad in [
            "null",
            "",
            "http://evil.example",
            "file://localhost",
            "localhost",
            "http://localhost.evil.example",
        ] {
            assert!(!hosts.allows_origin(bad), "{bad}");
        }
    }

    #[test]
    fn listening_everywhere_accepts_addresses_but_no_names() {
        let hosts = Hosts::new(["0.0.0.0".to_owned()]);
        assert!(hosts.allows_host("192.0.2.7:7770") && hosts.allows_host("[2001:db8::1]:7770"));
        assert!(!hosts.allows_host("evil.example"));
    }
}
