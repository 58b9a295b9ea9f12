//! The environment variables that make clients use the proxy.

use std::net::SocketAddr;

/// Clients connect to these hosts directly, inside their own network namespace.
const DIRECT: &str = "localhost,127.0.0.1,::1";

/// Returns the variables for commands whose proxy listens on `address`.
pub fn proxy_environment(address: SocketAddr) -> Vec<(String, String)> {
    let http = format!("http://{address}");
    // The `h` means that the proxy looks up names.
    let socks = format!("socks5h://{address}");
    let variables: [(&str, &str); 17] = [
        // Some clients read upper case, some lower case. curl reads `http_proxy` in lower case only.
        ("HTTP_PROXY", &http),
        ("http_proxy", &http),
        ("HTTPS_PROXY", &http),
        ("https_proxy", &http),
        ("ALL_PROXY", &socks),
        ("all_proxy", &socks),
        ("NO_PROXY", DIRECT),
        ("no_proxy", DIRECT),
        // Node's own fetch and http modules read the variables above only with this.
        ("NODE_USE_ENV_PROXY", "1"),
        // These override a proxy in the tool's own configuration, which cannot be reached.
        ("CARGO_HTTP_PROXY", &http),
        ("npm_config_proxy", &http),
        ("npm_config_https_proxy", &http),
        ("npm_config_noproxy", DIRECT),
        ("PIP_PROXY", &http),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "http.proxy"),
        ("GIT_CONFIG_VALUE_0", &http),
    ];
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_find_the_proxy_in_upper_and_lower_case() {
        let variables = proxy_environment("127.0.0.1:3128".parse().unwrap());
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        for name in ["HTTP_PROXY", "HTTPS_PROXY"] {
            assert_eq!(value(name), Some("http://127.0.0.1:3128"));
            assert_eq!(value(&name.to_lowercase()), Some("http://127.0.0.1:3128"));
        }
        assert_eq!(value("ALL_PROXY"), Some("socks5h://127.0.0.1:3128"));
        assert_eq!(value("all_proxy"), Some("socks5h://127.0.0.1:3128"));
        assert_eq!(value("NO_PROXY"), Some("localhost,127.0.0.1,::1"));
        assert_eq!(value("NODE_USE_ENV_PROXY"), Some("1"));
        let v6 = proxy_environment("[::1]:3128".parse().unwrap());
        assert!(v6.contains(&("CARGO_HTTP_PROXY".to_owned(), "http://[::1]:3128".to_owned())));
    }
}
