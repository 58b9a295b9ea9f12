//! `/join/*`: routes that need a join code and no token.
#![expect(clippy::disallowed_methods, reason = "the gateway hands out its own program")]

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gantry_domain::http::{header_text, internal_error, json_response, problem};
use gantry_net::{JOIN_TOKEN_BYTES, JoinCode};
use gantry_protocol::{JoinRequest, Joined, check_node_id};
use gantry_store::{DatabaseError, JoinOutcome};
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use super::Joining;
use crate::gateway::now_ms;

const CODE_HEADER: &str = "gantry-join";

/// Exchanges a code for the node's token, which the machine made itself.
pub(super) async fn exchange(joining: Arc<Joining>, body: Bytes) -> Response {
    let bad = |message: &str| problem(StatusCode::BAD_REQUEST, "bad_params", message, None);
    let request: JoinRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        // The parser's message could quote the token.
        Err(_) => return bad("the body must be a JSON object with \"id\", \"code\" and \"nodeToken\""),
    };
    if let Err(err) = check_node_id(&request.id) {
        return bad(&err.to_string());
    }
    let Some(code) = decoded(&request.code) else { return refused(StatusCode::UNAUTHORIZED, UNKNOWN, None) };
    let outcome =
        joining.parts.database.join_with_code(&request.id, &code, &request.node_token, now_ms()).await;
    let id = request.id;
    let again = format!(
        "run `gantry nodes add {id}` on the gateway again, or `gantry nodes renew {id}` if it joined before"
    );
    match outcome {
        Ok(JoinOutcome::Joined) => {
            tracing::info!(node = id, "node_joined");
            json_response(StatusCode::OK, &Joined { id, version: joining.parts.version.clone() })
        }
        Ok(JoinOutcome::Repeated) => {
            json_response(StatusCode::OK, &Joined { id, version: joining.parts.version.clone() })
        }
        Ok(JoinOutcome::Unknown) => refused(StatusCode::UNAUTHORIZED, UNKNOWN, Some(&again)),
        Ok(JoinOutcome::Expired) => refused(
            StatusCode::GONE,
            "this join code has expired: a code is valid for 10 minutes",
            Some(&again),
        ),
        Ok(JoinOutcome::Used) => {
            let message = "this join code was already used; if it was not you, somebody else has read it";
            refused(StatusCode::CONFLICT, message, Some(&again))
        }
        Ok(JoinOutcome::OtherNode) => {
            refused(StatusCode::FORBIDDEN, "this join code is for another node id", Some(&again))
        }
        Err(DatabaseError::Refused(message)) => bad(&message),
        Err(err) => internal_error("cannot join", &err),
    }
}

const UNKNOWN: &str =
    "this gateway does not know the join code: it was replaced, or it is for another gateway";

fn refused(status: StatusCode, message: &str, hint: Option<&str>) -> Response {
    problem(status, "join_refused", message, hint)
}

fn decoded(code: &str) -> Option<[u8; JOIN_TOKEN_BYTES]> {
    URL_SAFE_NO_PAD.decode(code).ok()?.try_into().ok()
}

/// Streams this program to a machine that has a valid code. The code stays valid.
pub(super) async fn program(joining: Arc<Joining>, headers: HeaderMap) -> Response {
    let code = match header_text(&headers, CODE_HEADER) {
        Ok(code) => code.and_then(|code| JoinCode::parse(code).ok()),
        Err(response) => return *response,
    };
    let Some(code) = code else {
        let message = "the header gantry-join must contain the join code";
        return refused(StatusCode::UNAUTHORIZED, message, None);
    };
    match joining.parts.database.is_join_code_valid(&code.token, now_ms()).await {
        Ok(true) => {}
        Ok(false) => {
            let message = "this join code has expired, was used, or is for another gateway";
            return refused(StatusCode::UNAUTHORIZED, message, None);
        }
        Err(err) => return internal_error("cannot check the join code", &err),
    }
    let Ok(slot) = joining.downloads.clone().try_acquire_owned() else {
        let message = "too many downloads at once; try again in a minute";
        return problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message, None);
    };
    let opened = tokio::fs::File::open(&joining.parts.program).await;
    let size = match &opened {
        Ok(file) => file.metadata().await.map(|meta| meta.len()),
        Err(err) => Err(std::io::Error::from(err.kind())),
    };
    let (file, size) = match (opened, size) {
        (Ok(file), Ok(size)) => (file, size),
        (Err(err), _) | (_, Err(err)) => return internal_error("cannot read the program", &err),
    };
    // A file that grows meanwhile would exceed the declared length.
    let stream = ReaderStream::with_capacity(Holding { file: file.take(size), _slot: slot }, 64 * 1024);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(size)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::OK, headers, Body::from_stream(stream)).into_response()
}

/// Reads the program, and holds one of the download slots until the end.
struct Holding {
    file: tokio::io::Take<tokio::fs::File>,
    _slot: tokio::sync::OwnedSemaphorePermit,
}

impl tokio::io::AsyncRead for Holding {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.get_mut().file).poll_read(cx, buffer)
    }
}
