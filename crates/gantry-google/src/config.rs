//! The `[google]` section of `gantry.toml`.

use gantry_domain::ConfigSection;
use gantry_net::Url;
use gantry_tool::Violation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::oauth::is_address;
use crate::scopes;

/// The prefix of a reference to a stored secret.
const SECRET: &str = "secret:";

/// Google Workspace. The variables `GOOGLE_CLIENT_ID`, `GOOGLE_CLIENT_SECRET` and `GOOGLE_SERVICE_ACCOUNT_KEY` are used
/// where a key is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct GoogleConfig {
    /// The id of a client of the type "Desktop app".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its secret, as `secret:NAME`, stored for oauth2.googleapis.com.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The id of a client of the type "TVs and Limited Input devices", for `gantry google auth --device`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_client_id: Option<String>,
    /// Its secret, as `secret:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_client_secret: Option<String>,
    /// The key of a service account: the path of its file, or `secret:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_key: Option<String>,
    /// The user that the service account acts for. Needs domain-wide delegation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_user: Option<String>,
    /// The scopes of sign-ins and of the service account, such as `gmail.send`. Empty means scopes that only read.
    #[serde(skip_serializing_if = "Vec::is_empty", alias = "google_oauth_scopes")]
    pub scopes: Vec<String>,
    /// One server in place of Google's, for tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
}

impl GoogleConfig {
    /// The name of the secret that a value refers to.
    pub fn secret_name(value: &str) -> Option<&str> {
        value.strip_prefix(SECRET).filter(|name| !name.is_empty())
    }
}

impl ConfigSection for GoogleConfig {
    fn violations(&self, at: &str) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut add =
            |key: &str, message: String| violations.push(Violation { path: format!("{at}.{key}"), message });
        for (key, value) in
            [("clientSecret", &self.client_secret), ("deviceClientSecret", &self.device_client_secret)]
        {
            if value.as_deref().is_some_and(|value| GoogleConfig::secret_name(value).is_none()) {
                let store = "store the value with `gantry secrets set GOOGLE --host oauth2.googleapis.com`";
                add(key, format!("must be written as secret:NAME; {store}"));
            }
        }
        if self.client_id.is_some() != self.client_secret.is_some() {
            add("clientId", "clientId and clientSecret belong together; set both or none".to_owned());
        }
        if self.device_client_id.is_some() != self.device_client_secret.is_some() {
            add(
                "deviceClientId",
                "deviceClientId and deviceClientSecret belong together; set both or none".to_owned(),
            );
        }
        if self.service_account_user.as_deref().is_some_and(|user| !is_address(user)) {
            add("serviceAccountUser", "must be an address such as ann@example.com".to_owned());
        }
        for scope in &self.scopes {
            if let Err(problem) = scopes::check(scope) {
                add("scopes", problem);
            }
        }
        if let Some(url) = &self.api_url {
            let is_valid = Url::parse(url).is_ok_and(|url| {
                url.scheme() == "https"
                    || (url.scheme() == "http" && matches!(url.host_str(), Some("127.0.0.1" | "localhost")))
            });
            if !is_valid {
                add("apiUrl", "must be an https URL, or an http URL of this machine".to_owned());
            }
        }
        violations
    }

    fn warnings(&self, at: &str) -> Vec<String> {
        let tests = "sends all requests and tokens of Google accounts to that server instead of Google";
        self.api_url.as_ref().map(|url| format!("{at}.apiUrl = {url:?} {tests}")).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_named() {
        let config = GoogleConfig {
            client_id: Some("x".into()),
            device_client_secret: Some("plain".into()),
            service_account_user: Some("nobody".into()),
            scopes: vec!["gmail.sent".into(), "gmail.send".into()],
            api_url: Some("http://evil.example".into()),
            ..GoogleConfig::default()
        };
        let found: Vec<String> = config.violations("google").into_iter().map(|one| one.to_string()).collect();
        let keys =
            ["deviceClientSecret", "clientId", "deviceClientId", "serviceAccountUser", "scopes", "apiUrl"];
        assert_eq!(found.len(), keys.len(), "{found:?}");
        for (line, key) in found.iter().zip(keys) {
            assert!(line.contains(&format!("google.{key}")), "{line}");
        }
        assert!(found[4].contains("did you mean gmail.send?"), "{}", found[4]);
        assert_eq!(GoogleConfig::default().violations("google"), []);
    }
}
