//! `POST /v1/tools/{name}` runs one call. The status shows whether the tool or the gateway answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gantry_domain::http::{Taken, bad_header, header_text, internal_error, read_body, refusal_response};
use gantry_domain::{Identity, KeyedRequest, KeyedTurn, repeated_response};
use gantry_tool::{Answer, Call, Outcome, RefusalCode, Reply, Surface};
use serde_json::{Value, json};

use super::{Named, json_response, problem};
use crate::callers::Wanted;
use crate::gateway::Gateway;

pub(super) async fn call(
    State(gateway): State<Arc<Gateway>>,
    Extension(identity): Extension<Identity>,
    Named(name): Named,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    match prepare(&gateway, &identity, &name, &parts.headers, body).await {
        Ok((call, body, None)) => run(&gateway, &identity, call, &name, body).await.0,
        Ok((call, body, Some(key))) => keyed(gateway, identity, call, name, body, key).await,
        Err(refused) => *refused,
    }
}

async fn prepare(
    gateway: &Gateway,
    identity: &Identity,
    name: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Call, Taken, Option<Key>), Box<Response>> {
    let workspace = header_text(headers, "gantry-workspace")?;
    let key = header_text(headers, "idempotency-key")?;
    let wanted = Wanted { agent: agent_of(headers)?, workspace, mcp: None };
    let mut call = gateway
        .call(identity, &wanted, Surface::Http)
        .map_err(|refusal| Box::new(refusal_response(&refusal)))?;
    if let Some(ms) = header_text(headers, "gantry-deadline-ms")? {
        let ms: u64 =
            ms.parse().map_err(|_| bad_header("gantry-deadline-ms", "a whole number of milliseconds"))?;
        call.deadline = Instant::now().checked_add(Duration::from_millis(ms));
    }
    let body = read_body(&gateway.quota.of(identity), body).await?;
    let key = key.map(|key| Key { text: key.to_owned(), hash: hash_of(name, &call, workspace, &body.bytes) });
    Ok((call, body, key))
}

/// Runs the call. Returns the answer, and whether the call may have had an effect.
async fn run(
    gateway: &Gateway,
    identity: &Identity,
    call: Call,
    name: &str,
    body: Taken,
) -> (Response, Execution) {
    let Taken { bytes: body, share: _until_answered } = body;
    match input(&body) {
        Ok(input) => {
            drop(body);
            let outcome = gateway.run(call, name, input).await;
            let execution = execution(&outcome.answer);
            let is_ended =
                matches!(&outcome.answer, Answer::Refused(refusal) if refusal.code == RefusalCode::Cancelled);
            if is_ended && identity.is_expired() {
                let message = "the token expired and ended the call; its outcome is unknown";
                return (problem(StatusCode::UNAUTHORIZED, "unauthorized", message, None), execution);
            }
            (outcome_response(outcome), execution)
        }
        Err(message) => {
            // Invalid JSON is an input violation like any other, and an unknown tool is reported first.
            let text = String::from_utf8_lossy(&body);
            let response = match gateway.gate.execute(call, name, &text).await {
                outcome if matches!(outcome.answer, Answer::Refused(_)) => outcome_response(outcome),
                _ => problem(StatusCode::BAD_REQUEST, "invalid_input", &message, None),
            };
            (response, Execution::NotStarted)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Execution {
    /// The call was rejected before it started.
    NotStarted,
    Possible,
}

fn execution(answer: &Answer) -> Execution {
    match answer {
        Answer::Success(_) | Answer::ToolError(_) => Execution::Possible,
        Answer::Refused(refusal) => match refusal.code {
            RefusalCode::Deadline | RefusalCode::Cancelled => Execution::Possible,
            _ if refusal.outcome_unknown => Execution::Possible,
            RefusalCode::UnknownTool
            | RefusalCode::InvalidInput
            | RefusalCode::Denied
            | RefusalCode::ApprovalNeeded
            | RefusalCode::Unaudited
            | RefusalCode::Unavailable => Execution::NotStarted,
        },
    }
}

/// Parses the body. An empty body means `{}`.
fn input(body: &Bytes) -> Result<Value, String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(json!({}));
    }
    serde_json::from_slice(body).map_err(|err| format!("the body is not valid JSON: {err}"))
}

/// `Key` identifies a repeated request.
struct Key {
    text: String,
    hash: blake3::Hash,
}

fn hash_of(name: &str, call: &Call, workspace: Option<&str>, body: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let workspace = workspace.map(str::as_bytes);
    for part in [name.as_bytes(), call.agent.as_bytes(), body].into_iter().chain(workspace) {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize()
}

/// Runs a request once per key. It continues if the caller disconnects, so that a repeated request gets the answer.
async fn keyed(
    gateway: Arc<Gateway>,
    identity: Identity,
    call: Call,
    name: String,
    body: Taken,
    key: Key,
) -> Response {
    let principal = call.principal.to_string();
    let request = KeyedRequest { principal: &principal, key: &key.text, hash: key.hash };
    let reserved = match gateway.requests.begin(&request, call.deadline).await {
        Ok(KeyedTurn::First(reserved)) => reserved,
        Ok(KeyedTurn::Answered(stored)) => return repeated_response(stored),
        Ok(KeyedTurn::Interrupted(_)) => {
            let message = "the first request with this Idempotency-Key was interrupted by a restart; its outcome is unknown";
            let hint = "check the effect, then use a new key";
            return problem(StatusCode::CONFLICT, "interrupted", message, Some(hint));
        }
        Err(refused) => return *refused,
    };
    let running = tokio::spawn(async move {
        match run(&gateway, &identity, call, &name, body).await {
            // A retry may succeed, for example after a node has reconnected.
            (response, Execution::NotStarted) => reserved.release(response).await,
            (response, Execution::Possible) => reserved.finish(response).await,
        }
    });
    running.await.unwrap_or_else(|err| internal_error("internal error", &err))
}

fn outcome_response(outcome: Outcome) -> Response {
    let mut response = match &outcome.answer {
        Answer::Success(reply) => reply_response(StatusCode::OK, reply),
        Answer::ToolError(reply) => reply_response(StatusCode::UNPROCESSABLE_ENTITY, reply),
        Answer::Refused(refusal) => refusal_response(refusal),
    };
    let headers = response.headers_mut();
    let mut add = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.append(header::HeaderName::from_static(name), value);
        }
    };
    add("gantry-call-id", &outcome.call_id);
    add("gantry-tool", &outcome.tool);
    for warning in &outcome.warnings {
        add("gantry-warning", warning);
    }
    response
}

fn reply_response(status: StatusCode, reply: &Reply) -> Response {
    match reply {
        Reply::Json(value) => json_response(status, value),
        Reply::Text(text) => {
            let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
            (status, headers, text.clone()).into_response()
        }
    }
}

pub(super) fn agent_of(headers: &HeaderMap) -> Result<Option<&str>, Box<Response>> {
    header_text(headers, "gantry-agent")
}

#[cfg(test)]
mod tests {
    use gantry_tool::Refusal;

    use super::*;

    #[test]
    fn lost_call_may_have_had_an_effect_whatever_its_message_says() {
        let refused = |refusal: Refusal| execution(&Answer::Refused(refusal));
        assert_eq!(refused(Refusal::lost("the node went away")), Execution::Possible);
        assert_eq!(
            refused(Refusal::new(RefusalCode::Unavailable, "offline, whose outcome is unknown")),
            Execution::NotStarted
        );
        assert_eq!(refused(Refusal::new(RefusalCode::Denied, "no")), Execution::NotStarted);
        assert_eq!(refused(Refusal::new(RefusalCode::Deadline, "late")), Execution::Possible);
    }
}
