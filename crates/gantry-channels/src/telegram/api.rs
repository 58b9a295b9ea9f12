//! Calls of the Bot API. The token is in the path of every URL, so no error may contain a URL: errors name the host and the
//! method.

use std::time::Duration;

use bytes::Bytes;
use gantry_net::{HeaderValue, Method, NetError, Redirects, Request, Url, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::adapter::{ListenError, SendOutcome};
use crate::connection::{Connection, failed};

/// The largest answer. A hundred updates with long texts fit.
const MAX_ANSWER: usize = 16 << 20;

pub(super) struct Api {
    pub(super) connection: Connection,
    pub(super) base: Url,
    /// The reference to the token.
    pub(super) token: String,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The token cannot be used.
    Token(String),
    /// No answer arrived.
    Net { err: NetError, text: String },
    /// Telegram rejected the call.
    Rejected { code: u64, description: String, retry_after: Option<Duration>, migrate_to: Option<i64> },
    /// The answer was not one of the Bot API.
    Unreadable { status: u16, text: String },
}

impl Api {
    fn host(&self) -> &str {
        self.base.host_str().unwrap_or("Telegram")
    }

    /// Opens the token. A value that cannot be one is not sent.
    fn token(&self) -> Result<String, CallError> {
        let token = self.connection.secret(&self.token, &self.base).map_err(CallError::Token)?;
        let is_token = token.split_once(':').is_some_and(|(id, rest)| {
            let is_rest = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            !id.is_empty()
                && id.bytes().all(|b| b.is_ascii_digit())
                && rest.len() >= 20
                && rest.chars().all(is_rest)
        });
        match is_token {
            true => Ok(token),
            false => Err(CallError::Token(
                "the secret is not a bot token; a token looks like 123456789:AAE…, and @BotFather shows it"
                    .to_owned(),
            )),
        }
    }

    /// `path` is below the token. Its segments are escaped.
    fn url(&self, token: &str, before: &[&str], path: &[&str]) -> Result<Url, CallError> {
        let mut url = self.base.clone();
        let bot = format!("bot{token}");
        match url.path_segments_mut() {
            Ok(mut segments) => {
                segments.pop_if_empty().extend(before).push(&bot).extend(path);
            }
            Err(()) => return Err(CallError::Token("apiUrl must be an http or https URL".to_owned())),
        }
        Ok(url)
    }

    pub(super) async fn call(&self, method: &str, body: Value, limit: Duration) -> Result<Value, CallError> {
        self.post(method, "application/json", body.to_string().into(), limit).await
    }

    pub(super) async fn post(
        &self,
        method: &str,
        content_type: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Value, CallError> {
        let token = self.token()?;
        let mut request = self.request(self.url(&token, &[], &[method])?, limit);
        request.method = Method::POST;
        request.body = body;
        if let Ok(value) = HeaderValue::try_from(content_type) {
            request.headers.insert(header::CONTENT_TYPE, value);
        }
        let net = |err: NetError| self.net(method, &token, err);
        let response = self.connection.client.send(request).await.map_err(net)?;
        let status = response.status.as_u16();
        let body = response.body.read(MAX_ANSWER).await.map_err(net)?;
        let unreadable = || CallError::Unreadable {
            status,
            text: format!(
                "{method} at {} answered {status} with something that is not of the Bot API",
                self.host()
            ),
        };
        if body.cut {
            return Err(unreadable());
        }
        let answer: Value = serde_json::from_slice(&body.bytes).map_err(|_| unreadable())?;
        match answer["ok"].as_bool() {
            Some(true) => Ok(answer["result"].clone()),
            Some(false) => {
                let text = answer["description"].as_str().unwrap_or_default();
                let parameters = &answer["parameters"];
                Err(CallError::Rejected {
                    code: answer["error_code"].as_u64().unwrap_or(status.into()),
                    description: short(&text.replace(&token, "…")),
                    retry_after: parameters["retry_after"].as_u64().map(|s| Duration::from_secs(s.min(3600))),
                    migrate_to: parameters["migrate_to_chat_id"].as_i64(),
                })
            }
            None => Err(unreadable()),
        }
    }

    fn request(&self, url: Url, limit: Duration) -> Request {
        let mut request = Request::get(url, Instant::now() + limit);
        request.policy = self.connection.policy.clone();
        request.redirects = Redirects::Stop;
        request
    }

    /// Describes an error without the URL.
    fn net(&self, method: &str, token: &str, err: NetError) -> CallError {
        let text = format!("{method} at {} failed: {}", self.host(), err.to_string().replace(token, "…"));
        CallError::Net { err, text }
    }

    /// Reads a file that a message named.
    pub(super) async fn download(&self, file: &str, limit: usize, time: Duration) -> Result<Bytes, String> {
        let found = self.call("getFile", json!({ "file_id": file }), time).await.map_err(|err| err.text())?;
        let path = found["file_path"].as_str().ok_or("Telegram gave no path for the file")?;
        let segments: Vec<&str> = path.split('/').collect();
        let is_bad =
            |part: &&str| part.is_empty() || *part == "." || *part == ".." || part.contains(['\\', '%']);
        if segments.iter().any(is_bad) || path.chars().any(char::is_control) || path.len() > 500 {
            return Err("Telegram gave an invalid path for the file".to_owned());
        }
        let token = self.token().map_err(|err| err.text())?;
        let url = self.url(&token, &["file"], &segments).map_err(|err| err.text())?;
        let net = |err: NetError| self.net("the download of a file", &token, err).text();
        let response = self.connection.client.send(self.request(url, time)).await.map_err(net)?;
        if !response.status.is_success() {
            return Err(format!("{} answered {} to the download of a file", self.host(), response.status));
        }
        let body = response.body.read(limit).await.map_err(net)?;
        if body.cut { Err(format!("the file has more than {limit} bytes")) } else { Ok(body.bytes.into()) }
    }
}

impl CallError {
    pub(super) fn text(&self) -> String {
        match self {
            CallError::Token(why) => format!("the bot token cannot be used: {why}"),
            CallError::Net { text, .. } | CallError::Unreadable { text, .. } => text.clone(),
            CallError::Rejected { code: 401 | 404, .. } => "Telegram does not know this token; \
                copy the current one from @BotFather and store it with `gantry secrets set`"
                .to_owned(),
            CallError::Rejected { code, description, .. } => {
                format!("Telegram answered {code}: {description}")
            }
        }
    }

    pub(super) fn to_listen_error(&self) -> ListenError {
        match self {
            CallError::Token(_) | CallError::Rejected { code: 401 | 404, .. } => {
                ListenError::NeedsLogin(self.text())
            }
            CallError::Rejected { code: 409, description, .. } if description.contains("webhook") => {
                ListenError::Conflict(
                    "a webhook is set for this bot, so polling is off; remove it with deleteWebhook, \
                     or set webhookSecret"
                        .to_owned(),
                )
            }
            CallError::Rejected { code: 409, .. } => ListenError::Conflict(
                "another program polls with this token; stop it, or create another bot".to_owned(),
            ),
            CallError::Rejected { retry_after, .. } => {
                ListenError::Again { why: self.text(), after: *retry_after }
            }
            CallError::Net { .. } | CallError::Unreadable { .. } => {
                ListenError::Again { why: self.text(), after: None }
            }
        }
    }

    pub(super) fn to_outcome(&self) -> SendOutcome {
        let text = self.text();
        match self {
            // The operator may store the token until the next attempt.
            CallError::Token(_) => SendOutcome::Retry { why: text, after: None },
            CallError::Net { err, .. } => match failed(err) {
                SendOutcome::Retry { after, .. } => SendOutcome::Retry { why: text, after },
                SendOutcome::Refused(_) => SendOutcome::Refused(text),
                SendOutcome::Unknown(_) | SendOutcome::Sent { .. } => SendOutcome::Unknown(text),
            },
            CallError::Rejected { code: 429, retry_after, .. } => {
                SendOutcome::Retry { why: text, after: *retry_after }
            }
            CallError::Rejected { code: 500.., .. } => SendOutcome::Unknown(text),
            CallError::Rejected { code: 403, description, .. } => {
                SendOutcome::Refused(format!("the bot may not write to this chat: {description}"))
            }
            CallError::Rejected { .. } => SendOutcome::Refused(text),
            CallError::Unreadable { status: 429, .. } => SendOutcome::Retry { why: text, after: None },
            CallError::Unreadable { status: 400..500, .. } => SendOutcome::Refused(text),
            CallError::Unreadable { .. } => SendOutcome::Unknown(text),
        }
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}
