//! Parses the address of a gateway, as operators write it.

use std::net::IpAddr;

/// `GatewayUrl` is scheme, host and port. The gateway defines the paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayUrl {
    pub secure: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid gateway address \"{text}\": {reason}; write http://HOST:PORT or https://HOST")]
pub struct UrlError {
    text: String,
    reason: &'static str,
}

impl GatewayUrl {
    /// The port of a gateway that is configured for none.
    pub const DEFAULT_PORT: u16 = 7770;

    /// Accepts `http`, `https`, `ws` and `wss`, or just `HOST:PORT`.
    pub fn parse(text: &str) -> Result<GatewayUrl, UrlError> {
        let failed = |reason| UrlError { text: shown(text), reason };
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" | "ws" => false,
            "https" | "wss" => true,
            _ => return Err(failed("the scheme must be http, https, ws or wss")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !matches!(path.trim_end_matches('/'), "" | "ws") {
            return Err(failed("it has a path"));
        }
        if authority.contains(['@', '?', '#']) || path.contains(['?', '#']) {
            return Err(failed("it has more than a host and a port; it must not contain a token"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) =
                    bracketed.split_once(']').ok_or_else(|| failed("a bracket is not closed"))?;
                host.parse::<std::net::Ipv6Addr>()
                    .map_err(|_| failed("the brackets must contain an IPv6 address"))?;
                (host, after.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
        if host.is_empty() || !host.bytes().all(sound) {
            return Err(failed("it has no host"));
        }
        let port = match port {
            Some(port) => port.parse().map_err(|_| failed("the port must be a number up to 65535"))?,
            // Without a scheme, the default port is the gateway's own. A full https address is a
            // proxy in front of it.
            None if secure => 443,
            None if text.contains("://") => 80,
            None => GatewayUrl::DEFAULT_PORT,
        };
        Ok(GatewayUrl { secure, host: host.to_ascii_lowercase(), port })
    }

    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost" || self.host.ends_with(".localhost"),
        }
    }

    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns the address of the protocol's WebSocket.
    pub fn socket(&self) -> String {
        format!("{}://{}/ws", if self.secure { "wss" } else { "ws" }, self.authority())
    }
}

/// Displays the address as it is stored.
impl std::fmt::Display for GatewayUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.authority())
    }
}

/// Returns the address for an error message: shortened, without user, password and query, because
/// people put tokens there.
fn shown(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let (rest, asks) = rest.split_once(['?', '#']).map_or((rest, false), |(rest, _)| (rest, true));
    let (authority, path) =
        rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
    let authority = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("…@{host}"));
    let separator = if scheme.is_empty() { "" } else { "://" };
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    let end = if asks { "?…" } else { "" };
    format!("{scheme}{separator}{authority}{path}{end}").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_addresses_are_parsed() {
        for (text, expected) in [
            ("http://127.0.0.1:7770", "http://127.0.0.1:7770"),
            ("ws://LocalHost:7770/ws", "http://localhost:7770"),
            ("https://gantry.example.com", "https://gantry.example.com:443"),
            ("wss://gantry.example.com/", "https://gantry.example.com:443"),
            ("box", "http://box:7770"),
            ("box:80", "http://box:80"),
            ("http://[::1]:7770", "http://[::1]:7770"),
        ] {
            assert_eq!(GatewayUrl::parse(text).map(|url| url.to_string()).as_deref(), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "ftp://x",
            "http://",
            "http://a:b",
            "http://a:70000",
            "http://a/b",
            "http://user@a",
            "http://a/?token=x",
            "http://a?token=x",
            "http://[::1",
            "http://[x]:1",
            "http://a b",
            "http://a#x",
        ] {
            assert!(GatewayUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_do_not_contain_possible_secrets() {
        for (text, expected) in [
            ("http://user:pass@a", "\"http://…@a\""),
            ("user:pass@a:b", "\"…@a:b\""),
            ("ftp://a/b?token=SECRET", "\"ftp://a/b?…\""),
            ("http://a#SECRET", "\"http://a?…\""),
            ("http://a/b", "\"http://a/b\""),
        ] {
            let error = GatewayUrl::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("invalid gateway address {expected}:")), "{error}");
        }
    }

    #[test]
    fn loopback_addresses_are_recognized() {
        let loopback = |text: &str| GatewayUrl::parse(text).unwrap().is_loopback();
        assert!(loopback("http://127.1.2.3:1") && loopback("localhost:1") && loopback("http://[::1]:1"));
        assert!(
            !loopback("http://10.0.0.1:1") && !loopback("example.com") && !loopback("localhost.example.com")
        );
    }
}
