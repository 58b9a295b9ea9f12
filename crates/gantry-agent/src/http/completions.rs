//! `/v1/chat/completions`: agents for programs that use OpenAI's interface. The model's name is the agent's name.
//!
//! The agent uses its own tools and prompt; the caller's tools are rejected. Without the header `Gantry-Session` every
//! request is a separate conversation, which ends with its answer.
//!
//! Clients retry requests that fail with 408, 409, 429 or 5xx. A run may have had effects, so after a run these codes are
//! not used.

mod waiting;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use gantry_domain::http::{AfterRun, Named, json_response, problem, refusal_response};
use gantry_domain::{Identity, RequestContext};
use gantry_protocol::{MessageParams, SessionEvent};
use gantry_tool::nearest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use uuid::Uuid;

use super::sessions::{KEEP_ALIVE, STILL_THERE, parsed, stream_response};
use crate::key::SessionKey;
use crate::sessions::{MAX_MESSAGE_BYTES, Sent, Sessions};
use crate::sessions_api::{Part, SessionsApi};
use crate::slash::Slash;
use waiting::Waiting;

/// The supported fields of a request. Other fields are ignored, except for tools, which are rejected.
#[derive(Debug, Deserialize)]
struct CompletionRequest {
    model: String,
    messages: Vec<ChatMessage>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    stream_options: StreamOptions,
    #[serde(default)]
    tools: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    #[serde(default)]
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
    Nothing(()),
}

impl Default for Content {
    fn default() -> Self {
        Content::Nothing(())
    }
}

#[derive(Debug, Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

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
    let (body, headers, _room) = match parsed::<CompletionRequest>(&context, &identity, request).await {
        Ok(parsed) => parsed,
        Err(refused) => return *refused,
    };
    if !api.sessions.agents().contains_key(&body.model) {
        return no_such_model(&api, &body.model);
    }
    let session = headers.get("gantry-session").map(|value| value.to_str().unwrap_or_default());
    let (key, kept) = match session {
        Some(word) if word.starts_with("agent:") => (word.to_owned(), true),
        Some(word) => (format!("agent:{}:{word}", body.model), true),
        None => (format!("agent:{}:completions:{}", body.model, Uuid::now_v7().simple()), false),
    };
    let text = match message_text(&body, kept) {
        Ok(text) => text,
        Err(why) => return problem(StatusCode::BAD_REQUEST, "invalid_input", &why, None),
    };
    let (sessions, key) = match api.session(&identity, &key, Part::Speaks) {
        Ok(found) => found,
        Err(refusal) => return refusal_response(&refusal),
    };
    if key.agent != body.model {
        let why =
            format!("the session belongs to the agent {:?}, and the model is {:?}", key.agent, body.model);
        return problem(
            StatusCode::BAD_REQUEST,
            "invalid_input",
            &why,
            Some("use the session's agent as the model"),
        );
    }
    let before = Tokens::of(sessions, &key).await;
    let events = sessions.listen(&key);
    let params = MessageParams { message: text, ..MessageParams::default() };
    let labels = if kept { Vec::new() } else { api.answers.labels(earlier_answers(&body)) };
    let message = match api.send_labelled(&identity, sessions, &key, params, labels).await {
        Ok(Sent::Accepted { message }) => message,
        Ok(_) => {
            return problem(
                StatusCode::BAD_REQUEST,
                "invalid_input",
                "commands are not supported here",
                None,
            );
        }
        Err(refusal) => return refusal_response(&refusal),
    };
    let guard = Guard { sessions: sessions.clone(), key: key.clone(), is_armed: !kept };
    let api = api.clone();
    let answer = Answering { api, sessions: guard.sessions.clone(), key, message, model: body.model, before };
    let session = HeaderValue::from_str(&answer.key.key);
    let mut response = match body.stream {
        true => streamed(answer, events, guard, body.stream_options.include_usage),
        false => whole(answer, events, guard).await,
    };
    if let Ok(session) = session {
        response.headers_mut().insert("gantry-session", session);
    }
    response.extensions_mut().insert(AfterRun);
    response
}

fn no_such_model(api: &SessionsApi, name: &str) -> Response {
    let name: String = name.chars().take(80).collect();
    let known = api.sessions.agents().keys();
    let near = nearest(&name, known.map(String::as_str));
    let mean = near.first().map_or(String::new(), |near| format!("; did you mean {near:?}?"));
    let hint = "GET /v1/models lists the agents";
    problem(StatusCode::NOT_FOUND, "model_not_found", &format!("unknown agent {name:?}{mean}"), Some(hint))
}

/// Returns the message for the agent: the last message. A separate conversation also gets the earlier messages.
fn message_text(body: &CompletionRequest, kept: bool) -> Result<String, String> {
    if !body.tools.is_empty() {
        return Err("an agent has its own tools; leave \"tools\" out".into());
    }
    let mut texts = Vec::with_capacity(body.messages.len());
    for message in &body.messages {
        texts.push((message.role.as_str(), text(&message.content)?));
    }
    let Some((("user", last), before)) = texts.split_last().map(|(last, before)| ((last.0, &last.1), before))
    else {
        return Err("the last message must have the role user".into());
    };
    if kept || before.is_empty() {
        return Ok(last.clone());
    }
    let before: Vec<String> = before.iter().map(|(role, text)| format!("{role}: {text}")).collect();
    Ok(format!("[Earlier messages]\n{}\n[End of the earlier messages]\n\n{last}", before.join("\n")))
}

/// Returns the earlier answers, which carry the labels of the run that gave them.
fn earlier_answers(body: &CompletionRequest) -> impl Iterator<Item = String> {
    let own = ["user", "system", "developer"];
    let theirs = body.messages.iter().filter(move |message| !own.contains(&message.role.as_str()));
    theirs.map(|message| text(&message.content).unwrap_or_default())
}

fn text(content: &Content) -> Result<String, String> {
    match content {
        Content::Nothing(()) => Ok(String::new()),
        Content::Text(text) => Ok(text.clone()),
        Content::Parts(parts) => {
            let texts: Result<Vec<&str>, String> = parts
                .iter()
                .map(|part| match part.kind.as_str() {
                    "text" => Ok(part.text.as_str()),
                    other => Err(format!("content of type {other:?} is not supported; send text")),
                })
                .collect();
            Ok(texts?.join("\n"))
        }
    }
}

struct Answering {
    api: Arc<SessionsApi>,
    sessions: Sessions,
    key: SessionKey,
    message: String,
    model: String,
    /// The tokens that the session had used before this message.
    before: Tokens,
}

/// The tokens that a session has used.
#[derive(Debug, Clone, Copy, Default)]
struct Tokens {
    prompt: u64,
    answer: u64,
}

impl Tokens {
    async fn of(sessions: &Sessions, key: &SessionKey) -> Tokens {
        // A session that does not exist yet has used nothing.
        let Ok(status) = sessions.status(key).await else { return Tokens::default() };
        let usage = status.usage;
        let prompt = usage
            .input_tokens
            .saturating_add(usage.cache_read_tokens)
            .saturating_add(usage.cache_write_tokens);
        Tokens { prompt, answer: usage.output_tokens }
    }
}

impl Answering {
    fn id(&self) -> String {
        format!("chatcmpl-{}", self.message)
    }

    /// Remembers the labels of an answer, because the caller will send it again.
    async fn remember(&self, text: &str) {
        let status = self.sessions.status(&self.key).await;
        if let Ok(status) = status {
            self.api.answers.note(text, &status.labels);
        }
    }

    async fn usage(&self) -> Value {
        let now = Tokens::of(&self.sessions, &self.key).await;
        let prompt = now.prompt.saturating_sub(self.before.prompt);
        let answer = now.answer.saturating_sub(self.before.answer);
        json!({"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer})
    }

    fn chunk(&self, delta: Value, finish: Option<&str>) -> String {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        data(&json!({
            "id": self.id(), "object": "chat.completion.chunk", "created": jiff::Timestamp::now().as_second(), "model": self.model,
            "choices": [choice],
        }))
    }
}

/// Stops the run of a separate conversation when its request is cancelled.
struct Guard {
    sessions: Sessions,
    key: SessionKey,
    is_armed: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_armed {
            let (sessions, key) = (self.sessions.clone(), self.key.clone());
            tokio::spawn(async move { sessions.command(&key, Slash::Stop, "the caller's disconnect").await });
        }
    }
}

/// The end of a request: its message is settled, or the run waits for a person.
enum Outcome {
    Settled(SessionEvent),
    Waits(Waiting),
}

async fn outcome(answer: &Answering, mut events: Receiver<Arc<SessionEvent>>) -> Outcome {
    // A question that was already open is not published again.
    if let Some(waiting) = Waiting::open(&answer.sessions, &answer.key).await {
        return Outcome::Waits(waiting);
    }
    loop {
        match events.recv().await {
            Ok(event) if event.settles(&answer.message) || *event == SessionEvent::Suspended => {
                return Outcome::Settled((*event).clone());
            }
            Ok(event) => {
                if let Some(waiting) = Waiting::of(&event) {
                    return Outcome::Waits(waiting);
                }
            }
            // The missed events may include the final event or a question.
            Err(RecvError::Lagged(_)) => {
                if let Some(event) = answer.sessions.settled(&answer.key, &answer.message).await {
                    return Outcome::Settled(event);
                }
                if let Some(waiting) = Waiting::open(&answer.sessions, &answer.key).await {
                    return Outcome::Waits(waiting);
                }
            }
            Err(RecvError::Closed) => return Outcome::Settled(SessionEvent::Suspended),
        }
    }
}

async fn whole(answer: Answering, events: Receiver<Arc<SessionEvent>>, mut guard: Guard) -> Response {
    let outcome = outcome(&answer, events).await;
    guard.is_armed = false;
    let text = match outcome {
        Outcome::Settled(SessionEvent::Final { text, .. }) => text,
        Outcome::Waits(waiting) => waiting.message(&answer.key),
        Outcome::Settled(other) => {
            let mut response = json_response(StatusCode::UNPROCESSABLE_ENTITY, &failure(&other));
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
            return response;
        }
    };
    answer.remember(&text).await;
    let message = json!({"role": "assistant", "content": text});
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    json_response(
        StatusCode::OK,
        &json!({
            "id": answer.id(), "object": "chat.completion", "created": jiff::Timestamp::now().as_second(), "model": answer.model,
            "choices": [choice], "usage": answer.usage().await,
        }),
    )
}

/// OpenAI's error object for a run without an answer.
fn failure(event: &SessionEvent) -> Value {
    let message = match event {
        SessionEvent::Error { message, .. } => message.clone(),
        SessionEvent::Stopped { by, .. } => format!("the run was stopped by {by}"),
        _ => "the gateway is stopping; the run resumes after the restart".to_owned(),
    };
    error_object("agent_failed", &message)
}

fn error_object(code: &str, message: &str) -> Value {
    json!({"error": {"message": message, "type": "agent_error", "param": null, "code": code}})
}

/// The state of a stream of chunks.
struct Streaming {
    answer: Answering,
    events: Receiver<Arc<SessionEvent>>,
    guard: Guard,
    with_usage: bool,
    /// Text of an earlier reply was sent, so the next text starts a paragraph.
    breaks: bool,
    /// The text sent so far.
    sent: String,
    /// Whether open questions from before this message were checked.
    has_checked: bool,
    is_over: bool,
}

fn streamed(
    answer: Answering,
    events: Receiver<Arc<SessionEvent>>,
    guard: Guard,
    with_usage: bool,
) -> Response {
    let first = answer.chunk(json!({"role": "assistant", "content": ""}), None);
    let streaming = Streaming {
        answer,
        events,
        guard,
        with_usage,
        breaks: false,
        sent: String::new(),
        has_checked: false,
        is_over: false,
    };
    let rest = stream::unfold(streaming, |mut streaming| async move {
        if streaming.is_over {
            return None;
        }
        let frame = streaming.next().await;
        Some((frame, streaming))
    });
    let frames = stream::once(std::future::ready(first)).chain(rest);
    let frames = frames.map(|frame| Ok::<_, std::convert::Infallible>(Bytes::from(frame)));
    stream_response(Body::from_stream(frames))
}

impl Streaming {
    async fn next(&mut self) -> String {
        if !std::mem::replace(&mut self.has_checked, true)
            && let Some(waiting) = Waiting::open(&self.answer.sessions, &self.answer.key).await
        {
            return self.waits(&waiting).await;
        }
        loop {
            let event = match tokio::time::timeout(KEEP_ALIVE, self.events.recv()).await {
                Ok(Ok(event)) => event,
                // Text is missing at an unknown place.
                Ok(Err(RecvError::Lagged(_))) => {
                    self.is_over = true;
                    let message = "the client read too slowly, and a part of the answer was lost";
                    return data(&error_object("too_slow", message)) + "data: [DONE]\n\n";
                }
                Ok(Err(RecvError::Closed)) => Arc::new(SessionEvent::Suspended),
                Err(_) => return STILL_THERE.to_owned(),
            };
            match &*event {
                SessionEvent::Text { delta, .. } => {
                    let before = if std::mem::take(&mut self.breaks) { "\n\n" } else { "" };
                    let content = format!("{before}{delta}");
                    // Longer answers cannot be sent again as a part of a message.
                    if self.sent.len() <= MAX_MESSAGE_BYTES {
                        self.sent.push_str(&content);
                    }
                    return self.answer.chunk(json!({ "content": content }), None);
                }
                SessionEvent::ToolStart { .. } | SessionEvent::Restart { .. } => {
                    self.breaks = !self.sent.is_empty()
                }
                event if event.settles(&self.answer.message) || *event == SessionEvent::Suspended => {
                    self.is_over = true;
                    self.guard.is_armed = false;
                    self.answer.remember(&self.sent).await;
                    return self.last(event).await;
                }
                event => {
                    if let Some(waiting) = Waiting::of(event) {
                        return self.waits(&waiting).await;
                    }
                }
            }
        }
    }

    /// Ends the stream with the question. The run keeps waiting for its answer.
    async fn waits(&mut self, waiting: &Waiting) -> String {
        self.is_over = true;
        self.guard.is_armed = false;
        let before = if self.sent.is_empty() { "" } else { "\n\n" };
        let content = format!("{before}{}", waiting.message(&self.answer.key));
        self.sent.push_str(&content);
        self.answer.remember(&self.sent).await;
        let question = self.answer.chunk(json!({ "content": content }), None);
        let end = self.answer.chunk(json!({}), Some("stop"));
        self.ended(question + &end).await
    }

    async fn last(&self, event: &SessionEvent) -> String {
        let frames = match event {
            SessionEvent::Final { .. } => self.answer.chunk(json!({}), Some("stop")),
            other => data(&failure(other)),
        };
        self.ended(frames).await
    }

    async fn ended(&self, mut frames: String) -> String {
        if self.with_usage {
            frames += &data(&json!({
                "id": self.answer.id(), "object": "chat.completion.chunk", "created": jiff::Timestamp::now().as_second(),
                "model": self.answer.model, "choices": [], "usage": self.answer.usage().await,
            }));
        }
        frames + "data: [DONE]\n\n"
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}
