//! `/v1/chat/completions`: agents for programs that use OpenAI's interface. The model's name is the agent's name.
//!
//! The agent uses its own tools and prompt; the caller's tools are rejected. Without the header `Gantry-Session` every
//! request is a separate conversation, which ends with its answer.
//!
//! Clients retry requests that fail with 408, 409, 429 or 5xx. A run may have had effects, so after a run these codes are
//! not used.

mod answer;
mod keyed;
mod request;
mod streaming;
mod waiting;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use gantry_domain::http::{AfterRun, Named, header_text, json_response, problem, refusal_response};
use gantry_domain::{Identity, RequestContext};
use gantry_protocol::{MessageParams, SessionEvent};
use gantry_tool::{Refusal, nearest};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use uuid::Uuid;

use super::sessions::{Parsed, parsed};
use crate::key::SessionKey;
use crate::sessions::{Sent, Sessions};
use crate::sessions_api::{Part, SessionsApi};
use crate::slash::Slash;
use answer::{Answering, Spoken, Tokens, outcome, whole};
use keyed::complete_once;
use request::{CompletionRequest, earlier_answers, message_text};
use streaming::streamed;

pub(super) async fn models(
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
) -> Response {
    match api.list_agents(&identity) {
        Ok(agents) => {
            let data: Vec<Value> = agents.agents.iter().map(|agent| as_model(&agent.id)).collect();
            json_response(StatusCode::OK, &json!({"object": "list", "data": data}))
        }
        Err(refusal) => refusal_response(&refusal),
    }
}

pub(super) async fn model(
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
    Named(name): Named,
) -> Response {
    match api.list_agents(&identity) {
        Ok(agents) => match agents.agents.iter().find(|agent| agent.id == name) {
            Some(agent) => json_response(StatusCode::OK, &as_model(&agent.id)),
            None => no_such_model(&api, &name),
        },
        Err(refusal) => refusal_response(&refusal),
    }
}

fn as_model(agent: &str) -> Value {
    json!({"id": agent, "object": "model", "created": 0, "owned_by": "gantry"})
}

pub(super) async fn complete(
    State(context): State<RequestContext>,
    Extension(api): Extension<Arc<SessionsApi>>,
    Extension(identity): Extension<Identity>,
    request: Request,
) -> Response {
    let parsed = match parsed::<CompletionRequest>(&context, &identity, request).await {
        Ok(parsed) => parsed,
        Err(refused) => return *refused,
    };
    let Parsed { params: body, headers, bytes, share: _room } = parsed;
    if !api.sessions.agents().contains_key(&body.model) {
        return no_such_model(&api, &body.model);
    }
    let key = match header_text(&headers, "idempotency-key") {
        Ok(key) => key.map(str::to_owned),
        Err(refused) => return *refused,
    };
    let session = headers.get("gantry-session").map(|value| value.to_str().unwrap_or_default().to_owned());
    let asked = Asked { context, api, identity, body, session };
    match key {
        Some(key) => complete_once(asked, key, &bytes).await,
        None => {
            drop(bytes);
            complete_now(asked).await
        }
    }
}

/// Runs a request without a key. Without a named session the run ends with the connection.
async fn complete_now(asked: Asked) -> Response {
    let Started { answer, events, .. } = match asked.start(None).await {
        Ok(started) => started,
        Err(refused) => return *refused,
    };
    let key = answer.key.clone();
    let mut guard = Guard::none(&answer);
    guard.is_armed = asked.session.is_none();
    let response = if asked.body.stream {
        streamed(answer, events, guard, asked.body.stream_options.include_usage)
    } else {
        let outcome = outcome(&answer, events, &mut Spoken::up_to(0)).await;
        guard.is_armed = false;
        whole(&answer, outcome, None).await
    };
    after_run(response, &key)
}

/// A request, and who sent it.
struct Asked {
    context: RequestContext,
    api: Arc<SessionsApi>,
    identity: Identity,
    body: CompletionRequest,
    /// The named session, whose history applies.
    session: Option<String>,
}

/// A request whose message was sent.
struct Started {
    answer: Answering,
    events: Receiver<Arc<SessionEvent>>,
    /// The same events, for the stored answer of a request with a key.
    recorded: Receiver<Arc<SessionEvent>>,
    /// The end of the run, if the message was sent before and has been answered.
    settled: Option<SessionEvent>,
}

impl Asked {
    /// Sends the message. With an `id` the same request is the same message in the same session.
    async fn start(&self, id: Option<&str>) -> Result<Started, Box<Response>> {
        let invalid =
            |why: &str, hint| Box::new(problem(StatusCode::BAD_REQUEST, "invalid_input", why, hint));
        let refused = |refusal: Refusal| Box::new(refusal_response(&refusal));
        let (api, body) = (&self.api, &self.body);
        let is_kept = self.session.is_some();
        let key = match &self.session {
            Some(word) if word.starts_with("agent:") => word.clone(),
            Some(word) => format!("agent:{}:{word}", body.model),
            None => {
                let id = id.map_or_else(|| Uuid::now_v7().simple().to_string(), str::to_owned);
                format!("agent:{}:completions:{id}", body.model)
            }
        };
        let message = message_text(body, is_kept).map_err(|why| invalid(&why, None))?;
        let (sessions, key) = api.session(&self.identity, &key, Part::Speaks).map_err(refused)?;
        if key.agent != body.model {
            let why = format!(
                "the session belongs to the agent {:?}, and the model is {:?}",
                key.agent, body.model
            );
            return Err(invalid(&why, Some("use the session's agent as the model")));
        }
        let before = if is_kept { Tokens::of(sessions, &key).await } else { Tokens::default() };
        let (events, recorded) = (sessions.listen(&key), sessions.listen(&key));
        let (id, labels) = (id.map(str::to_owned), body.labels.clone());
        let params = MessageParams { message, id, labels, ..MessageParams::default() };
        let labels = if is_kept { Vec::new() } else { api.answers.labels(earlier_answers(body)) };
        let sent = api.send_labelled(&self.identity, sessions, &key, params, labels).await;
        let (message, settled) = match sent.map_err(refused)? {
            Sent::Accepted { message } => (message, None),
            Sent::Settled { message, event } => (message, Some(*event)),
            Sent::Command(_) => return Err(invalid("commands are not supported here", None)),
        };
        let (api, sessions, model) = (api.clone(), sessions.clone(), body.model.clone());
        let answer = Answering { api, sessions, key, message, model, before };
        Ok(Started { answer, events, recorded, settled })
    }
}

/// Adds to a response what every answer to a run has.
fn after_run(mut response: Response, key: &SessionKey) -> Response {
    if let Ok(session) = HeaderValue::from_str(&key.key) {
        response.headers_mut().insert("gantry-session", session);
    }
    response.extensions_mut().insert(AfterRun);
    response
}

/// Stops the run of a separate conversation when its request is cancelled.
struct Guard {
    sessions: Sessions,
    key: SessionKey,
    is_armed: bool,
}

impl Guard {
    /// A guard that stops nothing.
    fn none(answer: &Answering) -> Guard {
        Guard { sessions: answer.sessions.clone(), key: answer.key.clone(), is_armed: false }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_armed {
            let (sessions, key) = (self.sessions.clone(), self.key.clone());
            tokio::spawn(async move { sessions.command(&key, Slash::Stop, "the caller's disconnect").await });
        }
    }
}

fn no_such_model(api: &SessionsApi, name: &str) -> Response {
    let name: String = name.chars().take(80).collect();
    let agents = api.sessions.agents();
    let near = nearest(&name, agents.keys().map(String::as_str));
    let mean = near.first().map_or(String::new(), |near| format!("; did you mean {near:?}?"));
    let hint = "GET /v1/models lists the agents";
    problem(StatusCode::NOT_FOUND, "model_not_found", &format!("unknown agent {name:?}{mean}"), Some(hint))
}
