//! Calls of the Web API. Slack answers most errors with status 200 and `ok: false`.

use std::time::Duration;

use bytes::Bytes;
use gantry_net::{HeaderMap, HeaderValue, Method, NetError, Redirects, Request, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::{Identity, Slack};
use crate::adapter::{ListenError, Problem, SendOutcome};
use crate::connection::{REQUEST_LIMIT, failed};

/// The limit for an answer.
const MAX_ANSWER: usize = 4 << 20;
/// The wait after a rate limit without a time.
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// `xoxb-…`: what the bot may do in the workspace.
    Bot,
    /// `xapp-…`: opens sockets.
    App,
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub(super) enum CallError {
    /// The token cannot be used here.
    Secret(String),
    Net(NetError),
    Limited(Duration),
    /// Slack failed, perhaps after it did what was asked.
    Server(String),
    /// Slack refused: the code, and the scope that is missing.
    Refused {
        code: String,
        needed: Option<String>,
    },
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    ok: bool,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    needed: Option<String>,
}

impl Slack {
    /// Calls a method with fields of a form, which every method takes.
    pub(super) async fn form<T: DeserializeOwned>(
        &self,
        method: &str,
        token: Token,
        fields: &[(&str, &str)],
    ) -> Result<T, CallError> {
        self.call(method, token, "application/x-www-form-urlencoded", encoded(fields))
            .await
            .map(|(answer, _)| answer)
    }

    pub(super) async fn json<T: DeserializeOwned>(&self, method: &str, body: &Value) -> Result<T, CallError> {
        let kind = "application/json; charset=utf-8";
        self.call(method, Token::Bot, kind, body.to_string().into()).await.map(|(answer, _)| answer)
    }

    /// Asks who the bot is, and which scopes its token has.
    pub(super) async fn identity_and_scopes(&self) -> Result<(Identity, String), CallError> {
        let kind = "application/x-www-form-urlencoded";
        let (identity, headers) = self.call("auth.test", Token::Bot, kind, Bytes::new()).await?;
        let scopes = headers.get("x-oauth-scopes").and_then(|scopes| scopes.to_str().ok());
        Ok((identity, scopes.unwrap_or_default().to_owned()))
    }

    /// Asks for the address of a socket, which can be used once.
    pub(super) async fn socket_url(&self) -> Result<String, CallError> {
        #[derive(Deserialize)]
        struct Answer {
            url: String,
        }
        let answer: Answer = self.form("apps.connections.open", Token::App, &[]).await?;
        Ok(answer.url)
    }

    pub(super) fn bearer(&self, token: Token) -> Result<HeaderValue, CallError> {
        let (reference, prefix, name) = match token {
            Token::Bot => (&self.bot_token, "xoxb-", "botToken"),
            Token::App => (&self.app_token, "xapp-", "appToken"),
        };
        let api = self.api.as_ref().ok_or_else(|| CallError::Secret("apiUrl is not a URL".to_owned()))?;
        let value = self.connection.secret(reference, api).map_err(CallError::Secret)?;
        let value = value.trim();
        if !value.starts_with(prefix) {
            return Err(CallError::Secret(format!("the secret of {name} does not begin with {prefix}")));
        }
        let value = HeaderValue::try_from(format!("Bearer {value}"));
        let mut value =
            value.map_err(|_| CallError::Secret(format!("the secret of {name} is not a token")))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        token: Token,
        kind: &'static str,
        body: Bytes,
    ) -> Result<(T, HeaderMap), CallError> {
        let bearer = self.bearer(token)?;
        let api = self.api.as_ref().ok_or_else(|| CallError::Secret("apiUrl is not a URL".to_owned()))?;
        let url = api.join(method).map_err(|err| CallError::Secret(err.to_string()))?;
        let mut request = Request::get(url, Instant::now() + REQUEST_LIMIT);
        request.method = Method::POST;
        request.policy = self.connection.policy.clone();
        request.redirects = Redirects::Stop;
        request.body = body;
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        request.secret_headers.insert(header::AUTHORIZATION, bearer);
        let response = self.connection.client.send(request).await.map_err(CallError::Net)?;
        let (status, headers) = (response.status, response.headers);
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(CallError::Limited(retry_after(&headers)));
        }
        if !status.is_success() {
            return Err(CallError::Server(format!("Slack answered {status} to {method}")));
        }
        let body = response.body.read(MAX_ANSWER).await.map_err(CallError::Net)?;
        let unreadable = || CallError::Server(format!("Slack's answer to {method} is unreadable"));
        let envelope: Envelope = serde_json::from_slice(&body.bytes).map_err(|_| unreadable())?;
        if envelope.ok {
            let answer = serde_json::from_slice(&body.bytes).map_err(|_| unreadable())?;
            return Ok((answer, headers));
        }
        let code = envelope.error.unwrap_or_default();
        // Codes are words. Anything else does not belong into a log.
        let is_word = code.len() <= 60 && code.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let code = if is_word { code } else { "unknown_error".to_owned() };
        Err(match code.as_str() {
            "ratelimited" | "rate_limited" => CallError::Limited(retry_after(&headers)),
            "" | "internal_error" | "fatal_error" | "request_timeout" => {
                CallError::Server(format!("Slack failed in {method}: {code}"))
            }
            _ => CallError::Refused { code, needed: envelope.needed.filter(|needed| is_scope(needed)) },
        })
    }
}

fn encoded(fields: &[(&str, &str)]) -> Bytes {
    let Ok(mut url) = gantry_net::Url::parse("http://form/") else { return Bytes::new() };
    if !fields.is_empty() {
        url.query_pairs_mut().extend_pairs(fields);
    }
    url.query().unwrap_or_default().to_owned().into()
}

fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.map_or(PAUSE, |seconds: u64| Duration::from_secs(seconds.clamp(1, 3_600)))
}

fn is_scope(text: &str) -> bool {
    text.len() < 200 && text.chars().all(|c| c.is_ascii_alphanumeric() || ":,._-".contains(c))
}

impl CallError {
    /// Reports whether the operator must store another token.
    fn is_login(&self) -> bool {
        let codes = [
            "invalid_auth",
            "not_authed",
            "account_inactive",
            "token_revoked",
            "token_expired",
            "not_allowed_token_type",
            "invalid_token",
        ];
        match self {
            CallError::Secret(_) => true,
            CallError::Refused { code, .. } => codes.contains(&code.as_str()),
            CallError::Net(_) | CallError::Limited(_) | CallError::Server(_) => false,
        }
    }

    /// What the operator can do.
    fn fix(&self, token: Token) -> String {
        let (name, place) = match token {
            Token::Bot => ("botToken", "OAuth & Permissions"),
            Token::App => ("appToken", "Basic Information, App-Level Tokens, scope connections:write"),
        };
        match self {
            CallError::Refused { code, needed } if code == "missing_scope" => {
                let scope = needed.as_deref().unwrap_or("that Slack names");
                match token {
                    Token::Bot => {
                        format!("add the scope {scope} under OAuth & Permissions and reinstall the app")
                    }
                    Token::App => format!(
                        "make an app-level token with the scope {scope} and store it as the secret of appToken"
                    ),
                }
            }
            CallError::Refused { code, .. }
                if matches!(code.as_str(), "not_in_channel" | "channel_not_found") =>
            {
                "invite the bot to the channel with /invite".to_owned()
            }
            CallError::Net(_) | CallError::Server(_) => {
                "check the connection to slack.com, a proxy or a firewall".to_owned()
            }
            CallError::Limited(_) => "wait and try again".to_owned(),
            _ if self.is_login() => {
                format!(
                    "copy the token from {place} at api.slack.com/apps and store it as the secret of {name}"
                )
            }
            CallError::Secret(_) | CallError::Refused { .. } => {
                "look the error code up in Slack's documentation".to_owned()
            }
        }
    }

    pub(super) fn problem(&self, token: Token) -> Problem {
        Problem { message: self.to_string(), fix: self.fix(token) }
    }

    pub(super) fn stops_listening(&self, token: Token) -> ListenError {
        match self {
            CallError::Limited(after) => ListenError::Again { why: self.to_string(), after: Some(*after) },
            CallError::Net(
                NetError::NotAllowed { .. }
                | NetError::ForbiddenAddress { .. }
                | NetError::ForbiddenName { .. }
                | NetError::BadUrl { .. },
            ) => ListenError::Refused(self.to_string()),
            CallError::Net(_) | CallError::Server(_) => {
                ListenError::Again { why: self.to_string(), after: None }
            }
            CallError::Refused { code, .. } if code == "service_unavailable" => {
                ListenError::Again { why: self.to_string(), after: None }
            }
            _ if self.is_login() => ListenError::NeedsLogin(format!("{self}: {}", self.fix(token))),
            CallError::Secret(_) | CallError::Refused { .. } => {
                ListenError::Refused(format!("{self}: {}", self.fix(token)))
            }
        }
    }

    /// The outcome of a call that sends something.
    pub(super) fn outcome(&self) -> SendOutcome {
        match self {
            CallError::Net(err) => failed(err),
            // The operator may store the secret until the next attempt.
            CallError::Secret(_) => SendOutcome::Retry { why: self.to_string(), after: None },
            CallError::Limited(after) => SendOutcome::Retry { why: self.to_string(), after: Some(*after) },
            CallError::Server(_) => SendOutcome::Unknown(self.to_string()),
            CallError::Refused { code, .. } if code == "service_unavailable" => {
                SendOutcome::Retry { why: self.to_string(), after: None }
            }
            CallError::Refused { .. } => SendOutcome::Refused(format!("{self}: {}", self.fix(Token::Bot))),
        }
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallError::Secret(why) | CallError::Server(why) => f.write_str(why),
            CallError::Net(err) => err.fmt(f),
            CallError::Limited(after) => write!(f, "Slack asks to wait {} seconds", after.as_secs()),
            CallError::Refused { code, needed: Some(needed) } => {
                write!(f, "Slack refused with {code} ({needed})")
            }
            CallError::Refused { code, needed: None } => write!(f, "Slack refused with {code}"),
        }
    }
}
