//! Access tokens by OAuth 2 client credentials: fetched through the guarded client, cached in
//! memory until they expire.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_net::{HeaderValue, Method, Redirects, Request, Url, header};
use gantry_tool::ToolError;
use serde::Deserialize;

use super::form;
use super::net_error;
use super::sent_credentials::SentCredentials;
use crate::Ctx;

const MAX_TOKENS: usize = 256;
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The lifetime of a token if the response does not state one.
const USUAL_LIFE: Duration = Duration::from_secs(60);
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 3600);
/// A token that expires this soon is fetched again, because it must last for the request.
const MARGIN: Duration = Duration::from_secs(10);

/// The parameters of a token request. They are the key of the cache.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct WantedToken {
    pub(super) profile: String,
    pub(super) token_url: Url,
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) scope: Option<String>,
    pub(super) in_body: bool,
}

impl std::fmt::Debug for WantedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WantedToken({})", self.profile)
    }
}

/// Cached tokens that have not expired.
#[derive(Default)]
pub struct TokenCache {
    kept: Mutex<HashMap<WantedToken, (String, Instant)>>,
}

impl std::fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenCache")
    }
}

impl TokenCache {
    fn get(&self, wanted: &WantedToken) -> Option<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(wanted).filter(|(_, until)| Instant::now() + MARGIN < *until).map(|(token, _)| token.clone())
    }

    fn keep(&self, wanted: &WantedToken, token: &str, life: Duration) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        kept.retain(|_, (_, until)| now < *until);
        if kept.len() < MAX_TOKENS {
            kept.insert(wanted.clone(), (token.to_owned(), now + life.min(LONGEST_LIFE)));
        }
    }

    /// Removes a token that the API rejected.
    pub(super) fn forget(&self, wanted: &WantedToken) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(wanted);
    }
}

/// The response of a token endpoint: a token or an error.
#[derive(Deserialize)]
struct Answer {
    access_token: Option<String>,
    token_type: Option<String>,
    expires_in: Option<f64>,
    error: Option<String>,
    error_description: Option<String>,
}

/// Returns the value of the authorization header.
pub(super) async fn token(
    ctx: &Ctx,
    wanted: &WantedToken,
    deadline: tokio::time::Instant,
    used: &mut SentCredentials,
) -> Result<HeaderValue, ToolError> {
    let tokens = &ctx.state.settings().web.tokens;
    let token = match tokens.get(wanted) {
        Some(token) => token,
        None => {
            let (token, life) = fetch(ctx, wanted, deadline, used).await?;
            tokens.keep(wanted, &token, life);
            token
        }
    };
    used.add(&token);
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| failed(wanted, "its token contains characters that are invalid in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn fetch(
    ctx: &Ctx,
    wanted: &WantedToken,
    deadline: tokio::time::Instant,
    used: &mut SentCredentials,
) -> Result<(String, Duration), ToolError> {
    let mut fields = vec![("grant_type", "client_credentials".to_owned())];
    fields.extend(wanted.scope.clone().map(|scope| ("scope", scope)));
    let mut request = Request { method: Method::POST, ..Request::get(wanted.token_url.clone(), deadline) };
    if wanted.in_body {
        fields.push(("client_id", wanted.client_id.clone()));
        fields.push(("client_secret", wanted.client_secret.clone()));
    } else {
        let pair = STANDARD.encode(format!(
            "{}:{}",
            form::encode_value(&wanted.client_id),
            form::encode_value(&wanted.client_secret)
        ));
        used.add(&pair);
        let value = HeaderValue::try_from(format!("Basic {pair}"))
            .map_err(|_| failed(wanted, "the client's id or secret does not fit into a header"))?;
        request.secret_headers.insert(header::AUTHORIZATION, value);
    }
    request.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
    request.headers.insert(header::CONTENT_TYPE, form_type);
    request.body = form::encoded(&fields).into();
    // The credential is for this host, never for a redirect target.
    request.redirects = Redirects::Stop;
    request.policy = ctx.state.reachable(&ctx.call);
    let response = ctx.state.settings().web.client.send(request).await;
    let response = response.map_err(|err| used.masked_error(net_error(err)))?;
    let status = response.status;
    let body = response.body.read(MAX_ANSWER_BYTES).await;
    let body = body.map_err(|err| used.masked_error(net_error(err)))?;
    let Ok(answer) = serde_json::from_slice::<Answer>(&body.bytes) else {
        return Err(failed(wanted, &format!("it answered {status} without a token")));
    };
    let kind = answer.token_type.as_deref().unwrap_or("bearer");
    match answer.access_token.filter(|token| status.is_success() && !token.is_empty()) {
        Some(_) if !kind.eq_ignore_ascii_case("bearer") => {
            Err(failed(wanted, "its token type is not bearer"))
        }
        Some(token) => {
            let life = answer.expires_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            Ok((token, life.unwrap_or(USUAL_LIFE)))
        }
        None => {
            let words = [answer.error, answer.error_description].into_iter().flatten();
            // Masking comes before truncation, which could leave part of a credential.
            let words: Vec<String> =
                words.map(|word| used.mask_text(word).chars().take(200).collect()).collect();
            Err(failed(wanted, format!("it answered {status} {}", words.join(": ")).trim_end()))
        }
    }
}

fn failed(wanted: &WantedToken, why: &str) -> ToolError {
    let (profile, host) = (&wanted.profile, wanted.token_url.host_str().unwrap_or_default());
    ToolError::failed(format!(
        "cannot get an access token for API profile \"{profile}\" from {host}: {why}; the request was not sent"
    ))
}
