//! `/v1/sessions`: messages to agents, with events as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use gantry_domain::http::{Named, Reservation, Taken, json_response, problem, read_body, refusal_response};
use gantry_domain::{Identity, RequestContext};
use gantry_protocol::{AnswerParams, MessageParams, SendResult, SessionEvent};
use gantry_tool::Refusal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::key::SessionKey;
use crate::sessions::{Sent, Sessions};
use crate::sessions_api::{MAX_HISTORY, Part, SessionsApi, settled};

/// The interval of comments on a silent stream. They keep proxies from closing it.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(super) const STILL_THERE: &str = ": still there\n\n";
const LISTED: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Page {
    limit: Option<u32>,
    offset: Option<u32>,
    from: Option<i64>,
    before: Option<i64>,
}

type PageQuery = Result<Query<Page>, QueryRejection>;

pub(super) async fn agents(
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
) -> Response {
    answered(api.list_agents(&identity))
}

pub(super) async fn list(
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
    page: PageQuery,
) -> Response {
    match page {
        Ok(Query(page)) => {
            let (limit, offset) = (page.limit.unwrap_or(LISTED), page.offset.unwrap_or(0));
            answered(api.list_sessions(&identity, limit, offset).await)
        }
        Err(err) => problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None),
    }
}

pub(super) async fn status(
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
    Named(key): Named,
) -> Response {
    answered(api.session_status(&identity, &key).await)
}

pub(super) async fn history(
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
    Named(key): Named,
    page: PageQuery,
) -> Response {
    match page {
        Ok(Query(Page { from: Some(_), before: Some(_), .. })) => {
            problem(StatusCode::BAD_REQUEST, "bad_params", "use \"from\" or \"before\", not both", None)
        }
        Ok(Query(page)) => {
            let (from, limit) = (page.from.unwrap_or(0), page.limit.unwrap_or(MAX_HISTORY));
            answered(api.session_history(&identity, &key, from, page.before, limit).await)
        }
        Err(err) => problem(StatusCode::BAD_REQUEST, "bad_params", &err.body_text(), None),
    }
}

pub(super) async fn answer(
    State(context): State<RequestContext>,
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
    Named(key): Named,
    request: Request,
) -> Response {
    match parsed::<AnswerParams>(&context, &identity, request).await {
        Ok(Parsed { params, share: _share, .. }) => {
            answered(api.answer_question(&identity, &key, params).await)
        }
        Err(refused) => *refused,
    }
}

/// Accepts a message. With `Accept: text/event-stream` the response is a stream of events, else the final event.
pub(super) async fn message(
    State(context): State<RequestContext>,
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
    Named(key): Named,
    request: Request,
) -> Response {
    let (params, headers, share) = match parsed::<MessageParams>(&context, &identity, request).await {
        Ok(Parsed { params, headers, share, .. }) => (params, headers, share),
        Err(refused) => return *refused,
    };
    let (sessions, key) = match api.session(&identity, &key, Part::Speaks) {
        Ok(found) => found,
        Err(refusal) => return refusal_response(&refusal),
    };
    let events = sessions.listen(&key);
    let streams = wants_stream(&headers);
    let sent = api.send(&identity, sessions, &key, params).await;
    drop(share);
    match sent {
        Ok(Sent::Accepted { message }) if streams => {
            stream_until_settled(events, sessions.clone(), key, message)
        }
        Ok(Sent::Accepted { message }) => {
            let event = until_settled(events, sessions, &key, &message).await;
            json_response(StatusCode::OK, &settled(&key, &message, &event))
        }
        Ok(Sent::Settled { message, event }) if streams => {
            let frames = [accepted(&key, &message), frame(&event)].concat();
            stream_response(Body::from(frames))
        }
        Ok(Sent::Settled { message, event }) => {
            json_response(StatusCode::OK, &settled(&key, &message, &event))
        }
        Ok(Sent::Command(text)) => {
            json_response(StatusCode::OK, &SendResult::Command { session_key: key.key, text })
        }
        Err(refusal) => refusal_response(&refusal),
    }
}

pub(super) fn answered<T: Serialize>(answer: Result<T, Refusal>) -> Response {
    match answer {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err(refusal) => refusal_response(&refusal),
    }
}

/// A request with a JSON body.
pub(super) struct Parsed<T> {
    pub(super) params: T,
    pub(super) headers: HeaderMap,
    pub(super) bytes: Bytes,
    /// The memory reservation for the body.
    pub(super) share: Option<Reservation>,
}

pub(super) async fn parsed<T: DeserializeOwned>(
    context: &RequestContext,
    identity: &Identity,
    request: Request,
) -> Result<Parsed<T>, Box<Response>> {
    let (parts, body) = request.into_parts();
    let Taken { bytes, share } = read_body(&context.quota.of(identity), body).await?;
    let params = serde_json::from_slice(&bytes).map_err(|err| {
        let message = format!("invalid body: {err}");
        Box::new(problem(StatusCode::BAD_REQUEST, "invalid_input", &message, None))
    })?;
    Ok(Parsed { params, headers: parts.headers, bytes, share })
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.into_iter().any(|value| value.contains("text/event-stream"))
}

pub(super) async fn until_settled(
    mut events: Receiver<Arc<SessionEvent>>,
    sessions: &Sessions,
    key: &SessionKey,
    message: &str,
) -> SessionEvent {
    loop {
        match events.recv().await {
            Ok(event) if event.settles(message) || *event == SessionEvent::Suspended => {
                return (*event).clone();
            }
            Ok(_) => {}
            // The missed events may include the final event.
            Err(RecvError::Lagged(_)) => {
                if let Some(event) = sessions.settled(key, message).await {
                    return event;
                }
            }
            Err(RecvError::Closed) => return SessionEvent::Suspended,
        }
    }
}

fn stream_until_settled(
    events: Receiver<Arc<SessionEvent>>,
    sessions: Sessions,
    key: SessionKey,
    message: String,
) -> Response {
    let first = accepted(&key, &message);
    let frames = stream::unfold((events, Some(first), false), move |(mut events, first, is_over)| {
        let (sessions, key, message) = (sessions.clone(), key.clone(), message.clone());
        async move {
            if let Some(first) = first {
                return Some((first, (events, None, is_over)));
            }
            if is_over {
                return None;
            }
            let (frame, is_over) = match tokio::time::timeout(KEEP_ALIVE, events.recv()).await {
                Ok(Ok(event)) => {
                    (frame(&event), event.settles(&message) || *event == SessionEvent::Suspended)
                }
                Ok(Err(RecvError::Lagged(missed))) => {
                    let missed = server_event(&SessionEvent::Missed { events: missed });
                    match sessions.settled(&key, &message).await {
                        Some(event) => (missed + &frame(&event), true),
                        None => (missed, false),
                    }
                }
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => (STILL_THERE.to_owned(), false),
            };
            Some((frame, (events, None, is_over)))
        }
    });
    use futures_util::StreamExt;
    stream_response(Body::from_stream(
        frames.map(|frame| Ok::<_, std::convert::Infallible>(Bytes::from(frame))),
    ))
}

pub(super) fn stream_response(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::OK, headers, body).into_response()
}

fn accepted(key: &SessionKey, message: &str) -> String {
    let (session_key, message_id) = (key.key.clone(), message.to_owned());
    server_event(&SessionEvent::Accepted { session_key, message_id })
}

fn frame(event: &SessionEvent) -> String {
    server_event(event)
}

/// Formats an event. JSON has no line breaks, so one line of data holds it.
fn server_event(event: &SessionEvent) -> String {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("event: {}\ndata: {data}\n\n", event.name())
}
