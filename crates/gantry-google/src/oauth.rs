//! Requests to Google's OAuth endpoints.

use std::time::Duration;

use gantry_net::{
    Client, HeaderValue, HostPattern, Method, NetError, NetworkPolicy, Redirects, Request, Url, header,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::errors::shortened;

pub(crate) mod browser;
pub(crate) mod device;
pub(crate) mod service_account;

/// The only address that receives tokens and keys.
pub(crate) const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
const DEVICE_URL: &str = "https://oauth2.googleapis.com/device/code";
const REVOKE_URL: &str = "https://oauth2.googleapis.com/revoke";
const CONSENT_URL: &str = "https://accounts.google.com/o/oauth2/v2/auth";

const REQUEST_LIMIT: Duration = Duration::from_secs(30);
const MAX_ANSWER: usize = 256 * 1024;

/// Why a sign-in failed.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    #[error("{0}")]
    NotConfigured(String),
    #[error("cannot reach Google to sign in: {0}")]
    Unreachable(String),
    /// Google's error code, such as `invalid_grant`.
    #[error("Google refused the sign-in: {code}{}", if .text.is_empty() { String::new() } else { format!(" ({text})") })]
    Refused { code: String, text: String },
    #[error("the sign-in was denied in the browser: {0}")]
    Denied(String),
    #[error(
        "the sign-in was not finished within {} minutes; Google's page hangs without a message if an API is not enabled \
         or a scope is not declared for the application",
        .0.as_secs() / 60
    )]
    TimedOut(Duration),
    #[error(transparent)]
    Page(#[from] gantry_net::LoginPageError),
    #[error("the pasted address does not belong to this sign-in: {0}")]
    Pasted(&'static str),
    #[error("{0}")]
    Invalid(String),
    #[error("cannot store the sign-in: {0}")]
    Store(String),
}

impl SignInError {
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            SignInError::Refused { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// The answer of the token endpoint.
#[derive(Deserialize)]
pub(crate) struct Tokens {
    pub(crate) access_token: String,
    pub(crate) refresh_token: Option<String>,
    #[serde(default)]
    pub(crate) expires_in: f64,
    /// The scopes that were granted, which may be fewer than those that were asked for.
    pub(crate) scope: Option<String>,
    id_token: Option<String>,
}

impl Tokens {
    /// The address of the account. The token came from Google's own endpoint, so its signature need not be checked.
    pub(crate) fn email(&self) -> Option<String> {
        use base64::Engine;
        let claims = self.id_token.as_deref()?.split('.').nth(1)?;
        let claims =
            base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        claims["email"].as_str().map(str::to_owned).filter(|email| is_address(email))
    }

    pub(crate) fn scopes(&self) -> Option<Vec<String>> {
        let scopes = self.scope.as_deref()?.split(' ').filter(|scope| !scope.is_empty());
        Some(scopes.map(|scope| crate::scopes::short(scope).to_owned()).collect())
    }
}

/// Whether a text looks like an address, without anything that could confuse a reader.
pub(crate) fn is_address(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>()[]\\,;:\"@".contains(&byte))
    };
    text.len() <= 254 && text.split_once('@').is_some_and(|(name, host)| is_part(name) && is_part(host))
}

/// Talks to the endpoints. Cheap to clone.
#[derive(Clone)]
pub(crate) struct OAuth {
    client: Client,
    root: Option<Url>,
}

impl OAuth {
    pub(crate) fn new(client: Client, root: Option<Url>) -> OAuth {
        OAuth { client, root }
    }

    fn url(&self, text: &str) -> Result<Url, SignInError> {
        let url = Url::parse(text).map_err(|_| SignInError::Invalid(format!("{text} is not a URL")))?;
        match &self.root {
            None => Ok(url),
            Some(root) => {
                root.join(url.path()).map_err(|_| SignInError::Invalid("apiUrl is not valid".to_owned()))
            }
        }
    }

    pub(crate) async fn tokens(&self, form: &[(&str, &str)]) -> Result<Tokens, SignInError> {
        let answer = self.post(TOKEN_URL, form).await?;
        serde_json::from_value(answer)
            .map_err(|_| SignInError::Invalid("Google's answer has no access token".to_owned()))
    }

    /// Ends a grant.
    pub(crate) async fn revoke(&self, token: &str) -> Result<(), SignInError> {
        self.post(REVOKE_URL, &[("token", token)]).await.map(drop)
    }

    async fn post(&self, url: &str, form: &[(&str, &str)]) -> Result<Value, SignInError> {
        let url = self.url(url)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut request = Request::get(url, Instant::now() + REQUEST_LIMIT);
        request.method = Method::POST;
        request.redirects = Redirects::Stop;
        request.policy = NetworkPolicy::AllowList(HostPattern::parse(&host).into_iter().collect());
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers.insert(header::CONTENT_TYPE, form_type);
        request.body =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish().into();
        // Nothing of the form may be in an error.
        let failed = |err: NetError| {
            let text = form.iter().fold(err.to_string(), |text, (_, value)| match value.len() {
                0..8 => text,
                _ => text.replace(value, "…"),
            });
            SignInError::Unreachable(text)
        };
        let response = self.client.send(request).await.map_err(failed)?;
        let status = response.status;
        let body = response.body.read(MAX_ANSWER).await.map_err(failed)?;
        let answer: Value = serde_json::from_slice(&body.bytes).unwrap_or_default();
        if status.is_success() {
            return Ok(answer);
        }
        match answer["error"].as_str() {
            Some(code) => {
                let text = answer["error_description"].as_str().unwrap_or_default();
                Err(SignInError::Refused { code: shortened(code), text: shortened(text) })
            }
            // An error of a proxy or of the server: the grant may be fine.
            None => Err(SignInError::Unreachable(format!("{host} answered HTTP {}", status.as_u16()))),
        }
    }
}
