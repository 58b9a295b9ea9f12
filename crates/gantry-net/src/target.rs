//! The host and port of a URL that requests may be sent to. The guard decides which addresses it
//! may lead to.

use std::net::{IpAddr, Ipv6Addr};

use url::{Host, Url};

use crate::client::NetError;

pub(crate) const MAX_URL_BYTES: usize = 8 * 1024;
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Ports of services that would take a request for something else, as the Fetch standard lists
/// them.
const BAD_PORTS: &[u16] = &[
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
    104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514,
    515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723,
    2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) secure: bool,
    /// In the form of URLs: lower case, IPv6 in brackets, no dot at the end.
    pub(crate) host: String,
    /// Set if the host is itself an address.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

impl Target {
    /// Removes the dot at the end of the URL's host.
    pub(crate) fn of(url: &mut Url) -> Result<Target, NetError> {
        match check(url) {
            Ok(target) => Ok(target),
            Err(reason) => Err(NetError::BadUrl { url: shown(url), reason }),
        }
    }

    /// A host and port that speak another protocol than HTTP, so every port but 0 is possible.
    pub(crate) fn of_stream(host: &str, port: u16, secure: bool) -> Result<Target, NetError> {
        let refused = |reason| NetError::BadUrl { url: format!("{}:{port}", shortened(host)), reason };
        let bracketed = host.parse::<Ipv6Addr>().map(|address| format!("[{address}]"));
        let host = bracketed.as_deref().unwrap_or(host);
        // The parser would take some of these for other parts of a URL, and remove others.
        let is_foreign = |c: char| c.is_control() || c.is_whitespace() || "/\\?#@%".contains(c);
        let has_port = host.rfind(':') > host.rfind(']');
        if host.contains(is_foreign) || has_port {
            return Err(refused("its host is not a valid name"));
        }
        let mut url = Url::parse(&format!("https://{host}/")).map_err(|_| refused("it has no host"))?;
        if port == 0 {
            return Err(refused("it has no port"));
        }
        let target = check(&mut url).map_err(refused)?;
        Ok(Target { secure, port, ..target })
    }

    /// Returns the form in a request: with the port only if it is not the scheme's default.
    pub(crate) fn authority(&self) -> String {
        match (self.secure, self.port) {
            (false, 80) | (true, 443) => self.host.clone(),
            _ => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Reports whether requests to this URL are ever sent, wherever its host is. It looks nothing up.
pub fn check_address(url: &Url) -> Result<(), NetError> {
    Target::of(&mut url.clone()).map(|_| ())
}

/// Returns a URL for display: shortened, without credentials.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both calls fail if there is no host, and then there is nothing to remove.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    shortened(url.as_str())
}

fn shortened(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some((end, _)) = text.char_indices().nth(200) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn check(url: &mut Url) -> Result<Target, &'static str> {
    let secure = match url.scheme() {
        "http" => false,
        "https" => true,
        _ => return Err("only http and https are supported"),
    };
    if url.as_str().len() > MAX_URL_BYTES {
        return Err("it is longer than 8192 bytes");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL must not contain credentials");
    }
    let address = match url.host().ok_or("it has no host")? {
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(IpAddr::V6(address)),
        Host::Domain(name) => {
            let trimmed = name.strip_suffix('.').unwrap_or(name).to_owned();
            check_name(&trimmed)?;
            if trimmed.len() != name.len() {
                url.set_host(Some(&trimmed)).map_err(|_| "its host is not a valid name")?;
            }
            None
        }
    };
    let host = url.host_str().ok_or("it has no host")?.to_owned();
    let port = url.port_or_known_default().ok_or("it has no port")?;
    if BAD_PORTS.contains(&port) {
        return Err("its port belongs to another protocol");
    }
    Ok(Target { secure, host, address, port })
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("it has no host");
    }
    if name.len() > MAX_NAME_BYTES || name.split('.').any(|label| label.len() > MAX_LABEL_BYTES) {
        return Err("its host is too long for a name");
    }
    if name.split('.').any(str::is_empty) {
        return Err("its host has an empty part between dots");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> String {
        let mut url = Url::parse(url).unwrap();
        match Target::of(&mut url) {
            Ok(target) => format!("{} {} {}", target.authority(), target.port, url),
            Err(err) => err.to_string(),
        }
    }

    #[test]
    fn hosts_are_normalized() {
        assert_eq!(check("HTTP://Example.COM./a?b#c"), "example.com 80 http://example.com/a?b#c");
        assert_eq!(
            check("https://[::FFFF:1.2.3.4]:444/"),
            "[::ffff:102:304]:444 444 https://[::ffff:102:304]:444/"
        );
        assert_eq!(check("http://0x7f.1/"), "127.0.0.1 80 http://127.0.0.1/");
        assert_eq!(check("http://127.0.0.1./"), "127.0.0.1 80 http://127.0.0.1/");
    }

    #[test]
    fn invalid_urls_are_rejected_with_a_reason() {
        for (url, reason) in [
            ("ftp://a/", "only http and https are supported"),
            ("file:///etc/passwd", "only http and https are supported"),
            ("http://u@a/", "a URL must not contain credentials"),
            ("http://:p@a/", "a URL must not contain credentials"),
            ("http://a..b/", "its host has an empty part between dots"),
            ("http://.a/", "its host has an empty part between dots"),
            ("http://a../", "its host has an empty part between dots"),
            ("http://./", "it has no host"),
            ("http://a:22/", "its port belongs to another protocol"),
            ("https://a:6667/", "its port belongs to another protocol"),
            ("http://a:0/", "its port belongs to another protocol"),
        ] {
            let message = check(url);
            assert!(message.ends_with(&format!("cannot be reached: {reason}")), "{url}: {message}");
        }
        assert!(check(&format!("http://{}.b/", "a".repeat(64))).contains("too long"));
        assert!(check(&format!("http://{}b/", "a.".repeat(130))).contains("too long"));
        assert!(check(&format!("http://a/{}", "b".repeat(9000))).contains("longer"));
        for host in ["", "a/b", "a:1", "u@a", "a?b", "a#b", "a..b", "a b", "\r\na", "[::1"] {
            assert!(Target::of_stream(host, 993, true).is_err(), "{host:?}");
        }
        assert!(Target::of_stream("a", 0, true).is_err());
        let target = Target::of_stream("::1", 993, true).unwrap();
        assert_eq!((target.host.as_str(), target.port, target.address.is_some()), ("[::1]", 993, true));
        assert_eq!(Target::of_stream("Mail.Example.COM.", 25, false).unwrap().host, "mail.example.com");
        assert!(!check("ftp://user:password@a/").contains("password"), "credentials are not shown");
    }
}
