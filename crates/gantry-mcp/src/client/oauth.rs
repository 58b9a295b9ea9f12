//! Logins to servers: OAuth 2.1 as the protocol's authorization specification requires. Tokens are stored as secrets.
//!
//! [`Login`] is a stored login and renews its tokens; [`flow`] performs a new login with the operator and a browser.

use gantry_net::{
    Client, HeaderValue, Method, NetworkPolicy, Redirects, Request, Response, StatusCode, Url, header,
};
use gantry_store::{Secrets, ServerRecords};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

use super::credentials::is_loopback;
use super::sanitize::shown;

mod discovery;
pub(super) mod flow;

const REQUEST_LIMIT: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// A token that expires sooner than this is renewed before use.
const RENEW_BEFORE_MS: i64 = 30_000;

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("cannot reach {url}: {reason}")]
    Asking { url: String, reason: String },
    #[error("{url} returned an error: {reason}")]
    Refused { url: String, reason: String },
    #[error("{0}")]
    Metadata(String),
    #[error("{0} is neither https nor on this machine, so credentials are not sent there")]
    Insecure(String),
    #[error("the login failed: {0}")]
    Denied(String),
    #[error("the login was not completed in the browser within {0:?}")]
    TimedOut(Duration),
    #[error(transparent)]
    Page(#[from] gantry_net::LoginPageError),
    #[error(transparent)]
    Secrets(#[from] gantry_store::SecretsError),
    #[error(transparent)]
    Record(#[from] gantry_store::RecordError),
}

/// `LoginRecord` is how tokens are renewed. It contains no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoginRecord {
    pub issuer: String,
    pub token_endpoint: String,
    pub client_id: String,
    /// How the client authenticates.
    pub client_auth: ClientAuth,
    pub resource: String,
    pub scope: Option<String>,
    /// When the token expires, in milliseconds since 1970, if known.
    pub expires: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientAuth {
    #[default]
    None,
    ClientSecretBasic,
    ClientSecretPost,
}

/// The answer of a token endpoint.
#[derive(Debug, Deserialize)]
pub(crate) struct Tokens {
    access_token: String,
    #[serde(default)]
    token_type: String,
    refresh_token: Option<String>,
    expires_in: Option<f64>,
    scope: Option<String>,
}

/// `Login` is a server's stored login.
#[derive(Debug)]
pub struct Login {
    pub(super) server: String,
    pub(super) url: Url,
    pub(super) client: Client,
    pub(super) secrets: Secrets,
    pub(super) records: ServerRecords,
    /// Serializes renewals, because a refresh token works only once.
    pub(super) renewing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Access,
    Refresh,
    Client,
}

const KINDS: [Kind; 3] = [Kind::Access, Kind::Refresh, Kind::Client];

/// Returns the names of the secrets of a server's login.
pub(super) fn secret_names(server: &str) -> [String; 3] {
    KINDS.map(|kind| secret_name(server, kind))
}

fn secret_name(server: &str, kind: Kind) -> String {
    let kind = match kind {
        Kind::Access => "access",
        Kind::Refresh => "refresh",
        Kind::Client => "client",
    };
    format!("mcp-{server}-{kind}")
}

impl Login {
    pub(super) fn record(&self) -> Result<Option<LoginRecord>, LoginError> {
        let record = self.records.read(&self.server)?;
        Ok(record.login.and_then(|login| serde_json::from_value(login).ok()))
    }

    /// Returns the token to send, renewed if needed. `None` without a login.
    pub(super) async fn token(&self) -> Result<Option<String>, String> {
        let Some(record) = self.record().map_err(|err| err.to_string())? else { return Ok(None) };
        if !self.is_for_here().map_err(|err| err.to_string())? {
            return Ok(None);
        }
        let ends = record.expires.is_some_and(|expires| expires - now() < RENEW_BEFORE_MS);
        if ends {
            self.renew().await;
        }
        self.secret(Kind::Access, &self.url).map_err(|err| err.to_string())
    }

    /// Renews the token. Returns whether there is a new one.
    pub(super) async fn renew(&self) -> bool {
        let before = self.secret(Kind::Access, &self.url).ok().flatten();
        let _one = self.renewing.lock().await;
        // Another task may have renewed it meanwhile.
        if self.secret(Kind::Access, &self.url).ok().flatten() != before {
            return true;
        }
        self.refresh().await.is_ok()
    }

    async fn refresh(&self) -> Result<(), LoginError> {
        let missing = || LoginError::Metadata("the login has no refresh token".to_owned());
        if !self.is_for_here()? {
            return Err(missing());
        }
        let record = self.record()?.ok_or_else(missing)?;
        let endpoint = address(&record.token_endpoint)?;
        let refresh = self.secret(Kind::Refresh, &endpoint)?.ok_or_else(missing)?;
        let mut form = vec![
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", refresh),
            ("resource", record.resource.clone()),
        ];
        form.extend(record.scope.clone().map(|scope| ("scope", scope)));
        let client_secret = self.secret(Kind::Client, &endpoint)?;
        let tokens = token_request(&self.client, &record, client_secret.as_deref(), form).await?;
        self.keep(record, tokens, client_secret.as_deref())
    }

    /// Stores the tokens as secrets, each bound to the one URL it may be sent to.
    pub(super) fn keep(
        &self,
        mut record: LoginRecord,
        tokens: Tokens,
        client_secret: Option<&str>,
    ) -> Result<(), LoginError> {
        let now = now();
        let endpoint = address(&record.token_endpoint)?;
        let ends = |seconds: f64| now.saturating_add((seconds.clamp(0.0, 1e9) * 1000.0) as i64);
        record.expires = tokens.expires_in.map(ends);
        record.scope = tokens.scope.or(record.scope);
        let set = |kind, value: &str, to: &Url| {
            self.secrets.set(&self.secret_name(kind), value, &[self.bound_to(to)], now).map(drop)
        };
        set(Kind::Access, &tokens.access_token, &self.url)?;
        if let Some(refresh) = &tokens.refresh_token {
            set(Kind::Refresh, refresh, &endpoint)?;
        }
        if let Some(secret) = client_secret {
            set(Kind::Client, secret, &endpoint)?;
        }
        let login = serde_json::to_value(&record).ok();
        self.records.change(&self.server, |record| (record.login, record.wanted) = (login, None))?;
        Ok(())
    }

    /// Removes the login. Returns whether there was one.
    pub fn forget(&self) -> Result<bool, LoginError> {
        let mut any = false;
        for kind in KINDS {
            any |= self.secrets.remove(&self.secret_name(kind))?;
        }
        self.records.change(&self.server, |record| record.login = None)?;
        Ok(any)
    }

    /// Returns whether the login belongs to the server's current URL. Otherwise it is neither used nor renewed.
    fn is_for_here(&self) -> Result<bool, LoginError> {
        Ok(self.secret(Kind::Access, &self.url)?.is_some())
    }

    fn secret(&self, kind: Kind, to: &Url) -> Result<Option<String>, LoginError> {
        let all = self.secrets.all()?;
        let secret =
            all.get(&self.secret_name(kind)).filter(|secret| secret.hosts.contains(&self.bound_to(to)));
        Ok(secret.map(|secret| secret.expose().to_owned()))
    }

    fn secret_name(&self, kind: Kind) -> String {
        secret_name(&self.server, kind)
    }

    fn bound_to(&self, to: &Url) -> String {
        bound_to(&self.server, to)
    }
}

/// Names the one resource that a secret is bound to, with its port and path. It is not a valid host name, so that no other
/// tool can send the secret.
fn bound_to(server: &str, to: &Url) -> String {
    format!("mcp:{server}@{}{}", to.origin().ascii_serialization(), to.path())
}

/// Requests tokens, with the registered client authentication.
pub(crate) async fn token_request(
    client: &Client,
    record: &LoginRecord,
    client_secret: Option<&str>,
    mut form: Vec<(&'static str, String)>,
) -> Result<Tokens, LoginError> {
    let url = address(&record.token_endpoint)?;
    let mut request = asking(Method::POST, url.clone());
    match (record.client_auth, client_secret) {
        (ClientAuth::ClientSecretBasic, Some(secret)) => {
            use base64::Engine;
            let pair = format!("{}:{}", encoded(&record.client_id), encoded(secret));
            let value = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
            if let Ok(value) = HeaderValue::try_from(value) {
                request.secret_headers.insert(header::AUTHORIZATION, value);
            }
        }
        (method, secret) => {
            form.push(("client_id", record.client_id.clone()));
            if let (ClientAuth::ClientSecretPost, Some(secret)) = (method, secret) {
                form.push(("client_secret", secret.to_owned()));
            }
        }
    }
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    request
        .headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    request.body = body.into();
    let tokens: Tokens = parsed(client, request).await?;
    if !tokens.token_type.is_empty() && !tokens.token_type.eq_ignore_ascii_case("bearer") {
        let reason = format!("it issued a token of the unsupported type {}", shown(&tokens.token_type));
        return Err(LoginError::Refused { url: url.to_string(), reason });
    }
    Ok(tokens)
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Parses a URL that credentials may be sent to.
fn address(text: &str) -> Result<Url, LoginError> {
    let url = Url::parse(text).map_err(|_| LoginError::Metadata(format!("{} is not a URL", shown(text))))?;
    if url.scheme() != "https" && !is_loopback(&url) {
        return Err(LoginError::Insecure(shown(text)));
    }
    Ok(url)
}

fn asking(method: Method, url: Url) -> Request {
    let mut request = Request::get(url, Instant::now() + REQUEST_LIMIT);
    (request.method, request.policy, request.redirects) = (method, NetworkPolicy::AllowAll, Redirects::Stop);
    request.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    request
}

async fn parsed<T: serde::de::DeserializeOwned>(client: &Client, request: Request) -> Result<T, LoginError> {
    let url = request.url.to_string();
    let (status, text) = answered(client, request).await?;
    if !status.is_success() {
        let error = serde_json::from_str::<Value>(&text).ok();
        let field = |name: &str| error.as_ref()?.get(name)?.as_str().map(str::to_owned);
        let reason = field("error_description").or_else(|| field("error")).unwrap_or_else(|| text.clone());
        return Err(LoginError::Refused {
            url,
            reason: format!("HTTP {}: {}", status.as_u16(), shown(&reason)),
        });
    }
    serde_json::from_str(&text)
        .map_err(|err| LoginError::Refused { url, reason: format!("its answer is invalid: {err}") })
}

async fn answered(client: &Client, request: Request) -> Result<(StatusCode, String), LoginError> {
    let url = request.url.to_string();
    let failed = |err: gantry_net::NetError| LoginError::Asking { url: url.clone(), reason: err.to_string() };
    let Response { status, body, .. } = client.send(request).await.map_err(failed)?;
    let bytes = body.read(MAX_ANSWER_BYTES).await.map_err(failed)?.bytes;
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns a parameter of a `WWW-Authenticate` challenge, quoted or not.
pub(crate) fn parameter(challenge: &str, name: &str) -> Option<String> {
    let lower = challenge.to_ascii_lowercase();
    let mut from = 0;
    while let Some(at) = lower[from..].find(name) {
        let (start, end) = (from + at, from + at + name.len());
        from = end;
        let begins = lower[..start].chars().next_back().is_none_or(|c| c == ' ' || c == ',' || c == '\t');
        let Some(value) = challenge[end..].trim_start().strip_prefix('=').filter(|_| begins) else {
            continue;
        };
        let value = value.trim_start();
        return Some(match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap_or_default().to_owned(),
            None => value.split([',', ' ', ';']).next().unwrap_or_default().to_owned(),
        });
    }
    None
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_parameters_may_be_quoted() {
        let challenge = r#"Bearer error="invalid_token", resource_metadata="https://a/x", scope=read"#;
        assert_eq!(parameter(challenge, "resource_metadata").as_deref(), Some("https://a/x"));
        assert_eq!(parameter(challenge, "scope").as_deref(), Some("read"));
        assert_eq!(parameter(challenge, "error").as_deref(), Some("invalid_token"));
        assert_eq!(parameter("Bearer noscope=\"x\"", "scope"), None);
        assert_eq!(parameter("", "scope"), None);
    }

    #[test]
    fn secret_is_bound_to_one_resource() {
        let of = |url: &str| bound_to("s", &Url::parse(url).unwrap());
        assert_eq!(of("https://a.example/mcp"), of("https://A.example:443/mcp"));
        for other in [
            "https://a.example:444/mcp",
            "http://a.example/mcp",
            "https://a.example/mcp/",
            "https://b.example/mcp",
        ] {
            assert_ne!(of("https://a.example/mcp"), of(other), "{other}");
        }
    }

    #[test]
    fn credentials_need_https_or_loopback() {
        assert!(address("https://a.example/token").is_ok() && address("http://127.0.0.1:9/token").is_ok());
        assert!(address("http://a.example/token").is_err() && address("nonsense").is_err());
    }
}
