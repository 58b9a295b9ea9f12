//! Requests to Discord's REST interface, within its rate limits. No error contains a token or a path, because the path of an
//! answer to a press contains a token.

use std::time::Duration;

use bytes::Bytes;
use gantry_net::{HeaderMap, HeaderValue, Method, Redirects, Request, StatusCode, Url, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::Discord;
use super::buckets::{Route, seconds};
use super::error::ApiError;
use crate::connection::REQUEST_LIMIT;
use crate::multipart::Multipart;

/// The limit for an answer.
const MAX_ANSWER: usize = 8 << 20;
/// A request waits this long for its rate limit. After a longer wait the caller has to come again.
const MAX_WAIT: Duration = Duration::from_secs(6);
/// The wait after a rate limit without a time.
const PAUSE: Duration = Duration::from_secs(30);
/// Discord wants this form.
const USER_AGENT: &str = concat!("DiscordBot (gantry, ", env!("CARGO_PKG_VERSION"), ")");

/// One request.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    /// What the request does, for errors. Routes with the same name share a rate limit.
    pub(super) doing: &'static str,
    /// The channel that the request is about. It has a rate limit of its own.
    pub(super) object: &'a str,
    pub(super) path: &'a [&'a str],
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) body: Body<'a>,
    pub(super) auth: Auth,
    pub(super) limit: Duration,
}

pub(super) enum Body<'a> {
    None,
    Json(&'a Value),
    /// The message, and its file.
    File {
        message: &'a Value,
        name: &'a str,
        mime: &'a str,
        bytes: &'a Bytes,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Auth {
    Bot,
    /// The path is the credential: answers to presses. Rate limits of the bot do not apply.
    Path,
}

/// A refusal of Discord.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    code: u64,
    retry_after: Option<f64>,
    global: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, doing: &'static str, path: &'a [&'a str]) -> Call<'a> {
        Call {
            method,
            doing,
            object: "",
            path,
            query: &[],
            body: Body::None,
            auth: Auth::Bot,
            limit: REQUEST_LIMIT,
        }
    }

    pub(super) fn get(doing: &'static str, path: &'a [&'a str]) -> Call<'a> {
        Call::new(Method::GET, doing, path)
    }
}

impl Discord {
    pub(super) async fn call<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, ApiError> {
        let route = Route { name: call.doing, object: call.object };
        if call.auth == Auth::Bot {
            let wait = self.buckets.wait(route);
            if wait > MAX_WAIT {
                return Err(ApiError::Limited { doing: call.doing, after: wait });
            }
            tokio::time::sleep(wait).await;
        }
        let doing = call.doing;
        let request = self.request(call)?;
        let response = self.connection.client.send(request).await.map_err(ApiError::Net)?;
        let (status, headers) = (response.status, response.headers);
        self.buckets.note(route, &headers);
        let body = response.body.read(MAX_ANSWER).await.map_err(ApiError::Net)?;
        if status.is_success() {
            let bytes: &[u8] = if body.bytes.is_empty() { b"null" } else { &body.bytes };
            return serde_json::from_slice(bytes).map_err(|_| ApiError::Unreadable { doing });
        }
        let refusal: Option<Refusal> = serde_json::from_slice(&body.bytes).ok();
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS => {
                let after = pause(refusal.as_ref(), &headers);
                // An answer without JSON comes from the servers in front of Discord, which count every request.
                let is_global = refusal.is_none_or(|refusal| refusal.global);
                self.buckets.refuse(route, after, is_global);
                ApiError::Limited { doing, after }
            }
            status if status.is_client_error() => {
                let code = refusal.unwrap_or_default().code;
                ApiError::Refused { doing, status: status.as_u16(), code }
            }
            status => ApiError::Server { doing, status: status.as_u16() },
        })
    }

    fn request(&self, call: Call<'_>) -> Result<Request, ApiError> {
        let api = self.api.as_ref().ok_or_else(|| ApiError::Secret("apiUrl is not a URL".to_owned()))?;
        let mut url = api.clone();
        url.path_segments_mut()
            .map_err(|()| ApiError::Secret("apiUrl is not a URL".to_owned()))?
            .pop_if_empty()
            .extend(call.path);
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(call.query);
        }
        let mut request = Request::get(url, Instant::now() + call.limit);
        request.method = call.method;
        request.policy = self.connection.policy.clone();
        request.redirects = Redirects::Stop;
        request.headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let json = HeaderValue::from_static("application/json");
        match call.body {
            Body::None => {}
            Body::Json(body) => {
                request.headers.insert(header::CONTENT_TYPE, json);
                request.body = body.to_string().into();
            }
            Body::File { message, name, mime, bytes } => {
                let form = Multipart::new()
                    .text("payload_json", &message.to_string())
                    .file("files[0]", name, mime, bytes);
                let (kind, body) = form.finish();
                let kind =
                    HeaderValue::try_from(kind).map_err(|_| ApiError::Unreadable { doing: call.doing })?;
                request.headers.insert(header::CONTENT_TYPE, kind);
                request.body = body;
            }
        }
        if call.auth == Auth::Bot {
            let mut value = HeaderValue::try_from(format!("Bot {}", self.token()?))
                .map_err(|_| ApiError::Secret("the secret of token is not a bot token".to_owned()))?;
            value.set_sensitive(true);
            request.secret_headers.insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }

    /// The bot's token. Its form is checked, so that a wrong secret is not sent.
    pub(super) fn token(&self) -> Result<String, ApiError> {
        let api = self.api.as_ref().ok_or_else(|| ApiError::Secret("apiUrl is not a URL".to_owned()))?;
        let value = self.connection.secret(&self.token, api).map_err(ApiError::Secret)?;
        let value = value.trim();
        let value = value.strip_prefix("Bot ").unwrap_or(value).trim();
        let is_part = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte))
        };
        if value.len() > 200 || value.split('.').count() != 3 || !value.split('.').all(is_part) {
            return Err(ApiError::Secret(
                "the secret of token is not a bot token, which has three parts with dots between them"
                    .to_owned(),
            ));
        }
        Ok(value.to_owned())
    }

    /// Checks that an address of the provider may get a credential.
    pub(super) fn pinned(&self, url: &str) -> Result<Url, String> {
        let url: Url = url.parse().map_err(|_| "Discord sent an address that is not a URL".to_owned())?;
        let host = url.host_str().unwrap_or_default();
        if !self.connection.policy.allows(host) {
            return Err(format!("Discord sent an address at {host}, which is not one of its hosts"));
        }
        // Only an API of the operator's own may be without TLS.
        let is_plain = self.api.as_ref().is_some_and(|api| api.scheme() == "http");
        if url.scheme() != "wss" && !(is_plain && url.scheme() == "ws") {
            return Err(format!("Discord sent an address at {host} without TLS"));
        }
        Ok(url)
    }
}

fn pause(refusal: Option<&Refusal>, headers: &HeaderMap) -> Duration {
    let stated =
        refusal.and_then(|refusal| refusal.retry_after).and_then(|after| seconds(&after.to_string()));
    let header = || headers.get(header::RETRY_AFTER).and_then(|value| seconds(value.to_str().ok()?));
    stated.or_else(header).unwrap_or(PAUSE)
}
