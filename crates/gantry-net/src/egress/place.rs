//! The host and port that a client wants. There is one way to write each host; others are refused,
//! so that the judge, the guard, the Host header and the TLS server name are compared as text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::refusal::Refusal;
use crate::target::Target;

/// The name of this machine's loopback, for clients in a network namespace. `NAME:PORT` is the
/// service on that port.
pub const LOOPBACK_SERVICE: &str = "host.gantry.internal";

const HTTPS: u16 = 443;
const HTTP: u16 = 80;
const SSH: u16 = 22;
const GIT: u16 = 9418;
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// In the form of URLs: lower case, IPv6 in brackets.
    pub(super) host: String,
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
}

/// `Protocol` is what a connection to a place must speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Tls,
    Http,
    /// Anything: a service on the loopback of this machine.
    Any,
}

impl Place {
    /// Parses `HOST:PORT`, or `HOST` if there is a default port.
    pub(super) fn parse(text: &str, default_port: Option<u16>) -> Result<Place, Refusal> {
        let bad = |reason: &str| Refusal::invalid(format!("\"{}\" is not valid: {reason}", shown(text)));
        if text.contains('@') {
            return Err(Refusal::invalid("a host must not contain credentials (user@host)"));
        }
        let (host, port) = match text.rfind(':') {
            Some(colon) if !text[colon..].contains(']') => (&text[..colon], Some(&text[colon + 1..])),
            _ => (text, None),
        };
        let port = match port {
            None => default_port.ok_or_else(|| bad("the port is missing"))?,
            Some(digits) => port_number(digits).ok_or_else(|| bad("the port must be a decimal number"))?,
        };
        match host.strip_prefix('[') {
            None => Place::of_name(host, port),
            Some(rest) => {
                let inner = rest.strip_suffix(']').ok_or_else(|| bad("a bracket is missing"))?;
                let address: Ipv6Addr =
                    inner.parse().map_err(|_| bad("brackets must hold an IPv6 address without a zone"))?;
                Ok(Place::of_address(address.into(), port))
            }
        }
    }

    /// Takes a name or an IPv4 address.
    pub(super) fn of_name(name: &str, port: u16) -> Result<Place, Refusal> {
        let bad =
            |reason: &str| Refusal::invalid(format!("\"{}\" is not a valid host: {reason}", shown(name)));
        if name.is_empty() {
            return Err(bad("it is empty"));
        }
        if let Some(without) = name.strip_suffix('.') {
            return Err(bad(&format!("write {} without the dot at the end", shown(without))));
        }
        if let Some(ch) = name.chars().find(|ch| !ch.is_ascii_alphanumeric() && !['-', '_', '.'].contains(ch))
        {
            return Err(bad(&format!("it contains {ch:?}")));
        }
        if name.len() > MAX_NAME_BYTES || name.split('.').any(|label| label.len() > MAX_LABEL_BYTES) {
            return Err(bad("it is too long"));
        }
        if name.split('.').any(str::is_empty) {
            return Err(bad("it has an empty part between dots"));
        }
        if ends_in_number(name) {
            // The system's resolver also takes octal, hexadecimal and shortened forms.
            let address: Ipv4Addr =
                name.parse().map_err(|_| bad("write an address as four decimal numbers"))?;
            return Ok(Place::of_address(address.into(), port));
        }
        Ok(Place { host: name.to_ascii_lowercase(), address: None, port })
    }

    /// An IPv4 address in IPv6 form counts as the IPv4 address.
    pub(super) fn of_address(address: IpAddr, port: u16) -> Place {
        let address = address.to_canonical();
        let host = match address {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        Place { host, address: Some(address), port }
    }

    pub(super) fn is_loopback_service(&self) -> bool {
        self.host == LOOPBACK_SERVICE
    }

    /// Returns the protocol for this port, or why the port is closed.
    pub(super) fn protocol(&self) -> Result<Protocol, Refusal> {
        match self.port {
            _ if self.is_loopback_service() => Ok(Protocol::Any),
            // Clients send no server name for an address, so nothing could be compared.
            HTTPS if self.address.is_some() => Err(Refusal::closed(format!(
                "https to the address {} is closed, because its TLS server name cannot be checked; use the host's name",
                self.host
            ))),
            HTTPS => Ok(Protocol::Tls),
            HTTP => Ok(Protocol::Http),
            SSH => Err(Refusal::closed(format!(
                "port 22 (ssh) of {} is closed; use https, for example: git remote set-url origin https://{}/PATH",
                self.host, self.host
            ))),
            GIT => Err(Refusal::closed(format!("port 9418 (git) of {} is closed; use https", self.host))),
            port => Err(Refusal::closed(format!(
                "port {port} of {} is closed; only 443 (https) and 80 (http) are open",
                self.host
            ))),
        }
    }

    pub(super) fn target(&self) -> Target {
        Target { secure: self.port == HTTPS, host: self.host.clone(), address: self.address, port: self.port }
    }

    /// Returns the form for a Host header: the port only if it is not HTTP's.
    pub(super) fn host_header(&self) -> String {
        match self.port {
            HTTP => self.host.clone(),
            port => format!("{}:{port}", self.host),
        }
    }
}

fn port_number(digits: &str) -> Option<u16> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| plain && *port != 0)
}

/// Reports whether resolvers would take a name for an IPv4 address.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns untrusted text for display, in one short line.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(100).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        let place = Place::parse(text, None).map_err(|refusal| refusal.outcome.reason().to_owned())?;
        Ok(format!("{} {} {}", place.host, place.port, place.address.is_some()))
    }

    #[test]
    fn hosts_have_one_form() {
        for (text, expected) in [
            ("Example.COM:443", "example.com 443 false"),
            ("_x.a-b.example:80", "_x.a-b.example 80 false"),
            ("1.2.3.4:80", "1.2.3.4 80 true"),
            ("[2606:2800::1]:80", "[2606:2800::1] 80 true"),
            ("[2606:2800:0:0:0:0:0:1]:80", "[2606:2800::1] 80 true"),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1 80 true"),
            ("[::FFFF:7f00:1]:80", "127.0.0.1 80 true"),
            ("0xdead.example:80", "0xdead.example 80 false"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:+80",
            "example.com:65616",
            "example.com:080x",
            "example.com.:443",
            "example.com..:443",
            ".example.com:443",
            "a..b:443",
            "user@example.com:443",
            "user:pass@example.com:443",
            "example.com:443@evil.example:443",
            "example.com/:443",
            "example.com%00.evil:443",
            "example.com\0:443",
            "exa mple.com:443",
            "bücher.example:443",
            "２.example:443",
            "2130706433:80",
            "0x7f000001:80",
            "0x7f.1:80",
            "0177.0.0.1:80",
            "127.1:80",
            "127.0.0.01:80",
            "1.2.3.4.5:80",
            "1.2.3.256:80",
            "0x:80",
            "[::1%lo]:80",
            "[::1%25lo]:80",
            "[fe80::1%eth0]:80",
            "[127.0.0.1]:80",
            "[::1:80",
            "::1:80",
            "[::1]x:80",
            "[v1.x]:80",
            ":80",
            "",
        ] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
        assert!(parse(&format!("{}.example:80", "a".repeat(64))).is_err());
        assert!(parse(&format!("{}example:80", "a.".repeat(130))).is_err());
    }

    #[test]
    fn closed_ports_say_what_to_use() {
        let refused = |text: &str| {
            let refusal = Place::parse(text, None).unwrap().protocol().unwrap_err();
            refusal.outcome.reason().to_owned()
        };
        assert!(refused("github.com:22").contains("use https"));
        assert!(refused("github.com:9418").contains("use https"));
        assert!(refused("example.com:8080").contains("only 443 (https) and 80 (http) are open"));
        assert!(refused("1.2.3.4:443").contains("use the host's name"));
        let service = Place::parse("host.gantry.internal:5432", None).unwrap();
        assert_eq!(service.protocol().unwrap(), Protocol::Any);
    }
}
