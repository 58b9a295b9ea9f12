//! Credentials for a server with a URL: configured headers with secrets, and tokens of a login.

use std::sync::Arc;

use gantry_net::{HeaderMap, HeaderName, HeaderValue, HostPattern, Url, header};
use gantry_store::{Secrets, references};

use super::oauth::Login;

/// `Credentials` are resolved for each request, so that a changed or removed secret takes effect immediately.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) secrets: Secrets,
    /// Headers, with `secret:NAME` for secrets.
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) login: Option<Arc<Login>>,
}

impl Credentials {
    pub(super) async fn headers(&self, url: &Url) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, text) in &self.headers {
            let value = self.filled(text, url)?;
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| format!("the header {name} is invalid with its secret"))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        if let Some(login) = self.login.as_ref().filter(|_| !headers.contains_key(header::AUTHORIZATION))
            && let Some(token) = login.token().await?
        {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| "the login's token is not a valid header value".to_owned())?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(headers)
    }

    /// Renews the login's token. Returns whether there is a new one.
    pub(super) async fn renew(&self) -> bool {
        match &self.login {
            Some(login) => login.renew().await,
            None => false,
        }
    }

    fn filled(&self, text: &str, url: &Url) -> Result<String, String> {
        let stored = self.secrets.all().map_err(|err| err.to_string())?;
        let host = url.host_str().unwrap_or_default();
        let (mut filled, mut from) = (String::new(), 0);
        for reference in references(text) {
            let name = reference.name;
            let Some(secret) = stored.get(name) else {
                return Err(format!(
                    "unknown secret {name}; store it with `gantry secrets set {name} --host {host}`"
                ));
            };
            let mut patterns = secret.hosts.iter().filter_map(|host| HostPattern::parse(host).ok());
            if !patterns.any(|pattern| pattern.matches(host)) {
                return Err(format!(
                    "secret:{name} was stored for {}, not for {host}",
                    secret.hosts.join(", ")
                ));
            }
            if url.scheme() != "https" && !is_loopback(url) {
                return Err(format!("secret:{name} is sent only over https, and the URL is http"));
            }
            filled.push_str(&text[from..reference.range.start]);
            filled.push_str(secret.expose());
            from = reference.range.end;
        }
        filled.push_str(&text[from..]);
        Ok(filled)
    }
}

/// Returns whether a URL is on this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
            address.is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}
