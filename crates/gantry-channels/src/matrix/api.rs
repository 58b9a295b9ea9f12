//! [`Api`] makes requests of the Matrix client-server API, and sorts the answers.

use std::time::Duration;

use gantry_flow::SecretFor;
use gantry_net::{
    ClientOptions, HeaderValue, Method, NetError, Redirects, Request, Response, StatusCode, Url, header,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::adapter::{ListenError, SendOutcome};
use crate::connection::{self, Connection, REQUEST_LIMIT};

/// The longest answer, except those of `/sync` and downloads.
const MAX_ANSWER: usize = 16 << 20;
const MAX_REASON: usize = 200;

pub(super) struct Api {
    connection: Connection,
    homeserver: Option<Url>,
    token: String,
}

/// One request. `path` starts after `/_matrix/`; its segments are encoded here.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) path: &'a [&'a str],
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) body: CallBody,
    pub(super) within: Duration,
    pub(super) max_answer: usize,
}

pub(super) enum CallBody {
    None,
    Json(Value),
    File { mime: String, bytes: bytes::Bytes },
}

impl<'a> Call<'a> {
    pub(super) fn get(path: &'a [&'a str]) -> Call<'a> {
        Call::new(Method::GET, path, CallBody::None)
    }

    pub(super) fn new(method: Method, path: &'a [&'a str], body: CallBody) -> Call<'a> {
        Call { method, path, query: &[], body, within: REQUEST_LIMIT, max_answer: MAX_ANSWER }
    }
}

/// Why a request gave no result.
#[derive(Debug, Clone)]
pub(super) enum ApiError {
    /// The homeserver's URL, an id or the stored token cannot be used.
    Unusable(String),
    /// There is no access token in the secret store.
    NoToken(String),
    Net(NetError),
    /// The homeserver refused. `code` is such as `M_FORBIDDEN`.
    Answer {
        status: StatusCode,
        code: String,
        reason: String,
        after: Option<Duration>,
    },
    /// The answer is not what Matrix prescribes.
    Malformed(String),
    TooLong,
}

impl Api {
    pub(super) fn new(
        homeserver: &str,
        token: &str,
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
    ) -> Api {
        let homeserver = homeserver.parse::<Url>().ok();
        let connection = Connection::new(account, network, secrets, &[], homeserver.as_ref());
        Api { connection, homeserver, token: token.to_owned() }
    }

    pub(super) fn account(&self) -> &str {
        &self.connection.account
    }

    pub(super) fn host(&self) -> &str {
        self.homeserver.as_ref().and_then(Url::host_str).unwrap_or("the homeserver")
    }

    /// The name of the secret, for texts that say how to set it.
    pub(super) fn secret_name(&self) -> &str {
        crate::config::secret_name(&self.token).unwrap_or("NAME")
    }

    /// Makes a request and returns its JSON.
    pub(super) async fn json(&self, call: Call<'_>) -> Result<Value, ApiError> {
        let max_answer = call.max_answer;
        let response = self.send(call).await?;
        let body = response.body.read(max_answer).await.map_err(ApiError::Net)?;
        if body.cut {
            return Err(ApiError::TooLong);
        }
        serde_json::from_slice(&body.bytes)
            .map_err(|_| ApiError::Malformed(format!("{} did not answer with JSON", self.host())))
    }

    /// Makes a request and returns its answer, if that is a success.
    pub(super) async fn send(&self, call: Call<'_>) -> Result<Response, ApiError> {
        let url = self.url(call.path, call.query)?;
        let bearer = self.connection.secret(&self.token, &url).map_err(ApiError::NoToken)?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", bearer.trim()))
            .map_err(|_| ApiError::Unusable("the access token contains invalid characters".to_owned()))?;
        bearer.set_sensitive(true);
        let mut request = Request::get(url, Instant::now() + call.within);
        request.method = call.method;
        request.policy = self.connection.policy.clone();
        request.redirects = Redirects::Stop;
        request.secret_headers.insert(header::AUTHORIZATION, bearer);
        match call.body {
            CallBody::None => {}
            CallBody::Json(value) => {
                request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                request.body = value.to_string().into();
            }
            CallBody::File { mime, bytes } => {
                let mime = HeaderValue::try_from(mime)
                    .unwrap_or(HeaderValue::from_static("application/octet-stream"));
                request.headers.insert(header::CONTENT_TYPE, mime);
                request.body = bytes;
            }
        }
        let response = self.connection.client.send(request).await.map_err(ApiError::Net)?;
        if response.status.is_success() { Ok(response) } else { Err(refusal(response).await) }
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, ApiError> {
        let unusable = |why: &str| ApiError::Unusable(why.to_owned());
        let mut url = self.homeserver.clone().ok_or_else(|| unusable("the homeserver's URL is invalid"))?;
        // A dot segment would change the path, and with it the request.
        if path.iter().any(|part| matches!(*part, "" | "." | "..") || part.chars().any(char::is_control)) {
            return Err(unusable("an id cannot be part of a request"));
        }
        url.set_query(None);
        url.path_segments_mut()
            .map_err(|()| unusable("the homeserver's URL is invalid"))?
            .pop_if_empty()
            .push("_matrix")
            .extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }
}

/// Reads the error object of an answer.
async fn refusal(response: Response) -> ApiError {
    let status = response.status;
    let seconds = response.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let mut after = seconds.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    let body = response.body.read(MAX_ANSWER).await.map(|body| body.bytes).unwrap_or_default();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    if let Some(millis) = value["retry_after_ms"].as_u64() {
        after = Some(Duration::from_millis(millis));
    }
    let text = |field: &str| -> String {
        let text = value[field].as_str().unwrap_or_default();
        text.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect()
    };
    ApiError::Answer { status, code: text("errcode"), reason: text("error"), after }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ApiError::Unusable(why) | ApiError::NoToken(why) | ApiError::Malformed(why) => f.write_str(why),
            ApiError::Net(err) => write!(f, "{err}"),
            ApiError::Answer { status, code, reason, .. } if !code.is_empty() => {
                write!(f, "the homeserver answered {} {code}: {reason}", status.as_u16())
            }
            ApiError::Answer { status, .. } => write!(f, "the homeserver answered {status}"),
            ApiError::TooLong => f.write_str("the homeserver's answer is too long"),
        }
    }
}

impl ApiError {
    pub(super) fn code(&self) -> &str {
        match self {
            ApiError::Answer { code, .. } => code,
            _ => "",
        }
    }

    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            ApiError::Answer { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The access token is missing, wrong, expired or revoked.
    pub(super) fn needs_login(&self) -> bool {
        matches!(self, ApiError::NoToken(_))
            || self.status() == Some(StatusCode::UNAUTHORIZED)
            || matches!(self.code(), "M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN" | "M_USER_DEACTIVATED")
    }

    fn is_rate_limit(&self) -> bool {
        self.status() == Some(StatusCode::TOO_MANY_REQUESTS) || self.code() == "M_LIMIT_EXCEEDED"
    }

    /// The same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            ApiError::Net(err) => !matches!(connection::failed(err), SendOutcome::Refused(_)),
            ApiError::Answer { status, .. } => self.is_rate_limit() || status.is_server_error(),
            ApiError::Malformed(_) => true,
            ApiError::Unusable(_) | ApiError::NoToken(_) | ApiError::TooLong => false,
        }
    }

    fn after(&self) -> Option<Duration> {
        match self {
            ApiError::Answer { after, .. } => *after,
            _ => None,
        }
    }

    pub(super) fn to_listen_error(&self) -> ListenError {
        if self.needs_login() {
            return ListenError::NeedsLogin(format!("{self}; store a new access token"));
        }
        match self {
            ApiError::Unusable(why) => ListenError::Refused(why.clone()),
            ApiError::Net(err) if !self.is_temporary() => ListenError::Refused(err.to_string()),
            _ => ListenError::Again { why: self.to_string(), after: self.after() },
        }
    }

    /// The outcome of a message that failed. The homeserver ignores repetitions of its transaction, so what may have
    /// arrived is sent again.
    pub(super) fn to_outcome(&self) -> SendOutcome {
        if self.needs_login() {
            return SendOutcome::Refused(format!("{self}; store a new access token"));
        }
        match self.is_temporary() {
            true => SendOutcome::Retry { why: self.to_string(), after: self.after() },
            false => SendOutcome::Refused(self.to_string()),
        }
    }
}
