//! A server with a URL: streamable HTTP through the guarded client. Answers and events are bounded while they are read.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use gantry_net::{
    Body, Client, HeaderMap, HeaderName, HeaderValue, Method, NetError, NetworkPolicy, Redirects, Request,
    Response, StatusCode, Url, header,
};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcError, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
    StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use tokio::time::Instant;

use super::credentials::Credentials;
use super::sanitize::shown;
use super::stdio::MAX_MESSAGE_BYTES;
use super::wire::{Lists, no_answer};

/// Maximum lifetime of an event stream; then it is reopened.
const STREAM_LIMIT: Duration = Duration::from_secs(3600);
const EITHER: &str = "text/event-stream, application/json";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Maximum concurrent requests to one server.
pub(super) const MAX_CONCURRENT_REQUESTS: usize = 64;
/// Maximum bytes of an error answer.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// `Guarded` is the HTTP client of one server. It attaches credentials, which the SDK never sees.
#[derive(Clone)]
pub(super) struct Guarded {
    pub(super) client: Client,
    pub(super) credentials: Arc<Credentials>,
    pub(super) lists: Lists,
    /// Timeout of one request and its answer.
    pub(super) limit: Duration,
    pub(super) refused: RefusedRequests,
}

/// Requests whose session the server refused. Each is sent again once, in a new session.
#[derive(Clone, Default)]
pub(super) struct RefusedRequests(Arc<Mutex<VecDeque<RequestId>>>);

impl RefusedRequests {
    /// Returns whether the request may be sent again: the first time that it is refused.
    fn may_repeat(&self, id: &RequestId) -> bool {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = refused.iter().position(|known| known == id) {
            refused.remove(at);
            return false;
        }
        if refused.len() == MAX_CONCURRENT_REQUESTS {
            refused.pop_front();
        }
        refused.push_back(id.clone());
        true
    }
}

/// Returns whether a 400 refuses the session instead of answering the request. Then the server has not run
/// the request: the error has another id, or, without a JSON-RPC error, the text mentions the session.
fn refuses_session(error: Option<&JsonRpcError>, id: &RequestId, text: &str) -> bool {
    match error {
        Some(error) => error.id.as_ref() != Some(id),
        None => text.to_ascii_lowercase().contains("session"),
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("{0}")]
    Credentials(String),
    #[error("\"{0}\" is not a URL")]
    Address(String),
    #[error("it redirects to {0}; if that is correct, configure that URL")]
    Redirect(String),
    #[error("its answer is larger than {MAX_MESSAGE_BYTES} bytes")]
    TooLong,
}

type Failure = StreamableHttpError<HttpError>;

impl From<HttpError> for Failure {
    fn from(err: HttpError) -> Failure {
        StreamableHttpError::Client(err)
    }
}

/// `Asking` holds what differs between the three kinds of request.
struct Asking {
    method: Method,
    uri: Arc<str>,
    session: Option<Arc<str>>,
    headers: HashMap<HeaderName, HeaderValue>,
    body: Vec<u8>,
    limit: Duration,
}

impl Guarded {
    /// Sends a request with credentials. An expired token is renewed once.
    async fn send(&self, asking: Asking) -> Result<Response, Failure> {
        let url = Url::parse(&asking.uri).map_err(|_| HttpError::Address(asking.uri.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(EITHER));
        if !asking.body.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers.extend(asking.headers);
        if let Some(session) = asking.session.as_deref() {
            let value = HeaderValue::from_str(session).map_err(|_| {
                StreamableHttpError::UnexpectedServerResponse(
                    "its session id is not a valid header value".into(),
                )
            })?;
            headers.insert(SESSION, value);
        }
        let mut renewed = false;
        loop {
            let secret_headers = self.credentials.headers(&url).await.map_err(HttpError::Credentials)?;
            let request = Request {
                method: asking.method.clone(),
                url: url.clone(),
                headers: headers.clone(),
                secret_headers,
                body: asking.body.clone().into(),
                policy: NetworkPolicy::AllowAll,
                redirects: Redirects::Stop,
                deadline: Instant::now() + asking.limit,
            };
            let response = self.client.send(request).await.map_err(HttpError::Net)?;
            if response.status == StatusCode::UNAUTHORIZED && !renewed && self.credentials.renew().await {
                renewed = true;
                continue;
            }
            return refuse_early(response);
        }
    }

    fn events(&self, body: Body) -> BoxStream<'static, Result<Sse, SseError>> {
        let lists = self.lists.clone();
        let events = SseStream::from_bytes_stream(bounded(body));
        let readable = move |mut event: Sse| {
            if let Some(replaced) = event.data.as_deref().and_then(|data| lists.replacement(data)) {
                event.data = Some(replaced);
            }
            event
        };
        events.map_ok(readable).boxed()
    }
}

/// Converts a login challenge or a redirect to an error.
fn refuse_early(response: Response) -> Result<Response, Failure> {
    let challenge = response.headers.get(header::WWW_AUTHENTICATE);
    let challenge = challenge.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    match (response.status, challenge) {
        (StatusCode::UNAUTHORIZED, challenge) => {
            Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge.unwrap_or_default())))
        }
        (StatusCode::FORBIDDEN, Some(challenge)) => {
            let scope = super::oauth::parameter(&challenge, "scope");
            Err(StreamableHttpError::InsufficientScope(InsufficientScopeError::new(challenge, scope)))
        }
        (status, _) if status.is_redirection() => {
            let to = response.headers.get(header::LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()));
            Err(HttpError::Redirect(shown(&to.unwrap_or_default())).into())
        }
        _ => Ok(response),
    }
}

impl StreamableHttpClient for Guarded {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let in_session = session_id.is_some();
        let body = serde_json::to_vec(&message)?;
        let response = self
            .send(Asking { method: Method::POST, uri, session: session_id, headers, body, limit: self.limit })
            .await?;
        let status = response.status;
        let expects = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let session = response.headers.get(&SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let kind = content_type(&response.headers);
        if !status.is_success() {
            return self.failed(response, &message, in_session, session, &kind).await;
        }
        if kind.starts_with("text/event-stream") {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response.body), session));
        }
        let bytes = whole(response.body).await?;
        if expects.is_none() && (bytes.is_empty() || !kind.starts_with("application/json")) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !kind.starts_with("application/json") {
            return Err(StreamableHttpError::UnexpectedContentType(Some(shown(&kind))));
        }
        let text = String::from_utf8_lossy(&bytes);
        match (self.lists.message(&text), expects) {
            (Ok(ServerJsonRpcMessage::Error(mut error)), Some(id)) => {
                error.id.get_or_insert(id);
                Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session))
            }
            (Ok(answer), _) => Ok(StreamableHttpPostResponse::Json(answer, session)),
            // A notification has no answer.
            (Err(_), None) => Ok(StreamableHttpPostResponse::Accepted),
            // Only this request fails.
            (Err(err), Some(id)) => {
                let answer = no_answer(id, &format!("not a message: {err}: {}", shown(&text)));
                Ok(StreamableHttpPostResponse::Json(answer, session))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let session = Some(session_id);
        let asking = Asking {
            method: Method::DELETE,
            uri,
            session,
            headers,
            body: Vec::new(),
            limit: Duration::from_secs(5),
        };
        // Many servers have no sessions to end, so an error is ignored.
        self.send(asking).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth: Option<String>,
        mut headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        if let Some(last) = last_event_id.and_then(|id| HeaderValue::try_from(id).ok()) {
            headers.insert(LAST_EVENT, last);
        }
        let asking = Asking {
            method: Method::GET,
            uri,
            session: session_id,
            headers,
            body: Vec::new(),
            limit: STREAM_LIMIT,
        };
        let response = self.send(asking).await?;
        match response.status {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(HttpStatusError::new(status.as_u16(), None).into()),
            _ if !content_type(&response.headers).starts_with("text/event-stream") => {
                Err(StreamableHttpError::UnexpectedContentType(Some(shown(&content_type(&response.headers)))))
            }
            _ => Ok(self.events(response.body)),
        }
    }
}

impl Guarded {
    /// Converts an error answer, which may contain a JSON-RPC error.
    async fn failed(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
        in_session: bool,
        session: Option<String>,
        kind: &str,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = response.status;
        let bytes = response.body.read(MAX_ERROR_BYTES).await.map_err(HttpError::Net)?.bytes;
        let text = String::from_utf8_lossy(&bytes);
        let mut error = match kind.starts_with("application/json").then(|| self.lists.message(&text)) {
            Some(Ok(ServerJsonRpcMessage::Error(error))) => Some(error),
            _ => None,
        };
        if let ClientJsonRpcMessage::Request(request) = message {
            if in_session
                && status == StatusCode::BAD_REQUEST
                && refuses_session(error.as_ref(), &request.id, &text)
                && self.refused.may_repeat(&request.id)
            {
                return Err(StreamableHttpError::SessionExpired);
            }
            // The HTTP answer belongs to this request, whatever id it contains.
            error.iter_mut().for_each(|error| error.id = Some(request.id.clone()));
        }
        // Servers of older revisions reject discovery in many ways.
        if let ClientJsonRpcMessage::Request(request) = message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && !in_session
            && status.is_client_error()
        {
            let error = error.map_or_else(
                || ErrorData::invalid_request(format!("HTTP {status}: {}", shown(&text)), None),
                |error| error.error,
            );
            let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(answer, None));
        }
        match error {
            Some(error) if status != StatusCode::FORBIDDEN => {
                Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session))
            }
            _ if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                let after = response.headers.get(header::RETRY_AFTER).and_then(|after| after.to_str().ok());
                Err(HttpStatusError::new(status.as_u16(), after.map(str::to_owned)).into())
            }
            _ => Err(unexpected(format!("HTTP {status}: {}", shown(&text)))),
        }
    }
}

fn unexpected(text: String) -> Failure {
    StreamableHttpError::UnexpectedServerResponse(Cow::Owned(text))
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    value.unwrap_or_default().trim().to_ascii_lowercase()
}

async fn whole(body: Body) -> Result<Vec<u8>, Failure> {
    let read = body.read(MAX_MESSAGE_BYTES).await.map_err(HttpError::Net)?;
    if read.cut { Err(HttpError::TooLong.into()) } else { Ok(read.bytes) }
}

/// Returns the bytes of an event stream, until one event exceeds the size of a message.
fn bounded(body: Body) -> BoxStream<'static, Result<bytes::Bytes, HttpError>> {
    let step = |state: Option<(Body, usize, bool)>| async move {
        let (mut body, mut since, mut after_end) = state?;
        match body.chunk().await {
            Ok(Some(chunk)) => {
                // An event ends with an empty line. The rest belongs to the next event.
                for byte in &chunk {
                    match byte {
                        b'\n' if after_end => since = 0,
                        b'\n' => after_end = true,
                        b'\r' => {}
                        _ => after_end = false,
                    }
                    since += 1;
                    if since > MAX_MESSAGE_BYTES {
                        return Some((Err(HttpError::TooLong), None));
                    }
                }
                Some((Ok(chunk), Some((body, since, after_end))))
            }
            Ok(None) => None,
            Err(err) => Some((Err(HttpError::Net(err)), None)),
        }
    };
    stream::unfold(Some((body, 0, false)), step).boxed()
}
