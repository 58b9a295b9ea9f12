//! Requests with an `Idempotency-Key`. Their runs do not end with the connection, and also survive a restart of the
//! gateway: the key determines the session and the id of the message, and a message with a known id is not sent again.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use gantry_domain::http::{AfterRun, internal_error};
use gantry_domain::{KeyedRequest, KeyedTurn, Reserved, repeated_response};
use gantry_protocol::SessionEvent;
use gantry_store::{MAX_KEPT_ANSWER, StoredAnswer};
use tokio::sync::broadcast::Receiver;

use super::answer::{Answering, Outcome, Spoken, error_object, failed, outcome, whole};
use super::streaming::{in_one_piece, streamed};
use super::{Asked, Guard, after_run};
use crate::http::sessions::stream_response;

/// Runs a request once per key. Repetitions get the answer of the first request.
pub(super) async fn complete_once(asked: Asked, key: String, body: &[u8]) -> Response {
    let principal = asked.identity.owner();
    let hash = hash_of(&["chat.completions", asked.session.as_deref().unwrap_or_default()], body);
    let request = KeyedRequest { principal: &principal, key: &key, hash };
    let (reserved, is_resumed) = match asked.context.requests.begin(&request, None).await {
        Ok(KeyedTurn::First(reserved)) => (reserved, false),
        Ok(KeyedTurn::Interrupted(reserved)) => (reserved, true),
        Ok(KeyedTurn::Answered(stored)) => return repeated(&asked, stored).await,
        Err(refused) => return *refused,
    };
    let id = hash_of(&[&principal, &key, &reserved.created.to_string()], hash.as_bytes());
    let id = id.to_hex()[..32].to_owned();
    let running = tokio::spawn(run(asked, reserved, id, is_resumed));
    match running.await {
        Ok(response) => response,
        Err(err) => not_retried(internal_error("internal error", &err)),
    }
}

fn hash_of(parts: &[&str], rest: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.update(rest).finalize()
}

async fn run(asked: Asked, reserved: Reserved, id: String, is_resumed: bool) -> Response {
    let started = match asked.start(Some(&id)).await {
        Ok(started) => started,
        // Otherwise the message may have been accepted, and a repetition finds it.
        Err(refused) if refused.status().is_client_error() => return reserved.release(*refused).await,
        Err(refused) => return *refused,
    };
    let (streams, with_usage) = (asked.body.stream, asked.body.stream_options.include_usage);
    drop(asked);
    let (answer, events) = (started.answer.clone(), started.events);
    // The earlier text of a resumed run is not sent again, so its answer is sent in one piece.
    let is_live = streams && !is_resumed;
    let recording = record(
        Recorded { answer: started.answer, events: started.recorded, settled: started.settled, is_live },
        reserved,
        is_resumed,
    );
    if is_live {
        tokio::spawn(recording);
        let key = answer.key.clone();
        let guard = Guard::none(&answer);
        return after_run(streamed(answer, events, guard, with_usage), &key);
    }
    let response = recording.await;
    if streams { as_stream(response, with_usage).await } else { response }
}

/// A run whose answer is stored.
struct Recorded {
    answer: Answering,
    events: Receiver<Arc<SessionEvent>>,
    /// The end of the run, if it had ended before.
    settled: Option<SessionEvent>,
    /// Whether the first caller gets a live stream.
    is_live: bool,
}

/// Waits for the end of the run and stores the answer.
async fn record(recorded: Recorded, reserved: Reserved, is_resumed: bool) -> Response {
    let Recorded { answer, events, settled, is_live } = recorded;
    let mut spoken = Spoken::up_to(MAX_KEPT_ANSWER);
    let outcome = match settled {
        Some(event) => Outcome::Settled(event),
        None if is_resumed && is_forgotten(&answer).await => {
            let message = "the gateway was restarted during the first request with this Idempotency-Key, \
                           and the session no longer has its answer";
            let response = after_run(failed(&error_object("interrupted", message)), &answer.key);
            return not_retried(reserved.finish(response).await);
        }
        None => outcome(&answer, events, &mut spoken).await,
    };
    let is_suspended = matches!(&outcome, Outcome::Settled(SessionEvent::Suspended));
    let response = whole(&answer, outcome, is_live.then_some(spoken)).await;
    let response = after_run(response, &answer.key);
    if is_suspended {
        // The run resumes after the restart. A repetition then gets its answer.
        return response;
    }
    not_retried(reserved.finish(response).await)
}

/// Whether the run of a resumed request ended so long ago that its session no longer has the answer.
async fn is_forgotten(answer: &Answering) -> bool {
    let status = answer.sessions.status(&answer.key).await;
    let is_idle = status.is_ok_and(|status| status.running.is_none() && status.queued == 0);
    is_idle && answer.sessions.settled(&answer.key, &answer.message).await.is_none()
}

async fn repeated(asked: &Asked, stored: StoredAnswer) -> Response {
    let mut response = repeated_response(stored);
    response.extensions_mut().insert(AfterRun);
    match asked.body.stream {
        true => as_stream(response, asked.body.stream_options.include_usage).await,
        false => response,
    }
}

/// The same answer as a stream. Other responses, such as that for an answer that was too long to store, stay as they are.
async fn as_stream(response: Response, with_usage: bool) -> Response {
    if !matches!(response.status(), StatusCode::OK | StatusCode::UNPROCESSABLE_ENTITY) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // The body is in memory already.
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let Ok(whole) = serde_json::from_slice(&body) else {
        return Response::from_parts(parts, Body::from(body));
    };
    let mut response = stream_response(Body::from(in_one_piece(&whole, with_usage)));
    parts.headers.remove(header::CONTENT_TYPE);
    response.headers_mut().extend(parts.headers);
    response.extensions_mut().extend(parts.extensions);
    response
}

/// Clients repeat a request after a server error, and this one may have had effects.
fn not_retried(mut response: Response) -> Response {
    if response.status().is_server_error() {
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
        response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    }
    response
}
