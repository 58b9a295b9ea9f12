//! `Idempotency-Key`: a request runs once, and every repetition gets its answer.
//!
//! A key belongs to a principal for 24 hours. The answer is stored before the caller gets it. A repetition that arrives
//! while the first request runs waits for its answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gantry_store::{Begun, Database, DatabaseError, StoredAnswer};
use gantry_tool::{Gate, Reply};
use http_body_util::BodyExt;
use tokio::sync::watch;

use crate::http::{internal_error, problem};

/// Headers of an answer that a repetition gets too.
const KEPT_HEADERS: [&str; 5] =
    ["gantry-call-id", "gantry-session", "gantry-tool", "gantry-warning", "x-should-retry"];

/// The requests with a key, of all routes.
pub struct IdempotentRequests {
    database: Database,
    /// Masks secrets in stored answers.
    gate: Arc<Gate>,
    /// Identifies this gateway process.
    instance: String,
    running: Mutex<HashMap<Key, Running>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    principal: String,
    key: String,
}

struct Running {
    hash: blake3::Hash,
    /// Closed when the request has ended.
    ended: watch::Receiver<()>,
}

enum Registered {
    First(watch::Sender<()>),
    /// The first request is running; this is its end.
    Behind(watch::Receiver<()>),
}

/// A request with a key. The hash covers everything that makes two requests equal.
pub struct KeyedRequest<'a> {
    pub principal: &'a str,
    pub key: &'a str,
    pub hash: blake3::Hash,
}

/// How to continue with a request.
pub enum KeyedTurn {
    /// Run it.
    First(Reserved),
    /// An earlier gateway process began it, and its outcome is unknown.
    Interrupted(Reserved),
    /// The first request was answered.
    Answered(StoredAnswer),
}

/// A key that is reserved for a running request. Dropped without an answer, the request counts as interrupted.
pub struct Reserved {
    requests: Arc<IdempotentRequests>,
    key: Key,
    /// When the first request with this key began, in milliseconds since 1970.
    pub created: i64,
    _ended: watch::Sender<()>,
}

impl IdempotentRequests {
    pub fn new(database: Database, gate: Arc<Gate>, instance: String) -> IdempotentRequests {
        IdempotentRequests { database, gate, instance, running: Mutex::default() }
    }

    /// Reserves the key. Waits for the first request with this key, if it is running, but not after `deadline`.
    pub async fn begin(
        self: &Arc<Self>,
        request: &KeyedRequest<'_>,
        deadline: Option<Instant>,
    ) -> Result<KeyedTurn, Box<Response>> {
        let key = Key { principal: request.principal.to_owned(), key: request.key.to_owned() };
        let ended = loop {
            match self.register(&key, request.hash)? {
                Registered::First(ended) => break ended,
                Registered::Behind(first) => wait_for_end(first, deadline).await?,
            }
        };
        let created = jiff::Timestamp::now().as_millisecond();
        let mut reserved = Reserved { requests: self.clone(), key, created, _ended: ended };
        let begun = self
            .database
            .begin_request(request.principal, request.key, &request.hash, &self.instance, created)
            .await;
        match begun {
            Ok(Begun::New) => Ok(KeyedTurn::First(reserved)),
            Ok(Begun::Replay(mut stored)) => {
                self.mask(&mut stored);
                Ok(KeyedTurn::Answered(stored))
            }
            Ok(Begun::OtherRequest) => Err(other_request()),
            Ok(Begun::Interrupted { created } | Begun::InProgress { created }) => {
                reserved.created = created;
                Ok(KeyedTurn::Interrupted(reserved))
            }
            Err(DatabaseError::Refused(message)) => {
                Err(Box::new(problem(StatusCode::BAD_REQUEST, "bad_params", &message, None)))
            }
            Err(err) => Err(Box::new(internal_error(&err.to_string(), &err))),
        }
    }

    /// Registers a running request, unless another one has the key.
    fn register(&self, key: &Key, hash: blake3::Hash) -> Result<Registered, Box<Response>> {
        match self.running().entry(key.clone()) {
            Entry::Occupied(running) if running.get().hash != hash => Err(other_request()),
            Entry::Occupied(running) => Ok(Registered::Behind(running.get().ended.clone())),
            Entry::Vacant(free) => {
                let (sender, ended) = watch::channel(());
                free.insert(Running { hash, ended });
                Ok(Registered::First(sender))
            }
        }
    }

    /// Masks secrets that were added after the answer was stored.
    fn mask(&self, stored: &mut StoredAnswer) {
        let text = || String::from_utf8_lossy(&stored.body).into_owned();
        let kept = serde_json::from_slice(&stored.body).map_or_else(|_| Reply::Text(text()), Reply::Json);
        let mut masked = kept.clone();
        self.gate.mask_reply(&mut masked);
        if masked != kept {
            stored.body = masked.to_text().into_bytes();
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Key, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn wait_for_end(
    mut running: watch::Receiver<()>,
    deadline: Option<Instant>,
) -> Result<(), Box<Response>> {
    // The channel carries no value; it closes when the request ends.
    let ended = async { while running.changed().await.is_ok() {} };
    let is_in_time = match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline.into(), ended).await.is_ok(),
        None => {
            ended.await;
            true
        }
    };
    if is_in_time {
        return Ok(());
    }
    let message = "the first request with this Idempotency-Key is still running";
    Err(Box::new(problem(StatusCode::CONFLICT, "conflict", message, Some("retry later"))))
}

fn other_request() -> Box<Response> {
    let message = "this Idempotency-Key was used for a different request";
    Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "conflict", message, None))
}

impl Reserved {
    /// Stores the answer for repetitions and returns it.
    pub async fn finish(self, response: Response) -> Response {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let stored = StoredAnswer {
            status: parts.status.as_u16(),
            content_type: content_type.unwrap_or_default().to_owned(),
            headers: kept_headers(&parts.headers),
            body: body.to_vec(),
        };
        let Key { principal, key } = &self.key;
        match self.requests.database.finish_request(principal, key, &stored).await {
            Ok(()) => Response::from_parts(parts, Body::from(body)),
            Err(err) => internal_error(&err.to_string(), &err),
        }
    }

    /// Releases the key, because the request was rejected before it had any effect. A repetition may succeed.
    pub async fn release(self, response: Response) -> Response {
        let Key { principal, key } = &self.key;
        match self.requests.database.abandon_request(principal, key).await {
            Ok(()) => response,
            Err(err) => internal_error(&err.to_string(), &err),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.requests.running().remove(&self.key);
    }
}

fn kept_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let values = KEPT_HEADERS.into_iter().flat_map(|name| {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.get_all(name).iter().map(move |value| (name.to_owned(), text(value)))
    });
    values.collect()
}

/// The answer of the first request, for a repetition.
pub fn repeated_response(stored: StoredAnswer) -> Response {
    let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    let content_type = HeaderValue::from_str(&stored.content_type)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (HeaderName::from_static("idempotency-replayed"), HeaderValue::from_static("true")),
    ];
    let mut response = (status, headers, Body::from(stored.body)).into_response();
    for (name, value) in &stored.headers {
        let known = KEPT_HEADERS.into_iter().find(|known| known == name);
        if let (Some(name), Ok(value)) = (known, HeaderValue::from_bytes(value.as_bytes())) {
            response.headers_mut().append(HeaderName::from_static(name), value);
        }
    }
    response
}
