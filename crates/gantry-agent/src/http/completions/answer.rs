//! The end of a run, as an answer of OpenAI's interface.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use gantry_domain::http::json_response;
use gantry_protocol::SessionEvent;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::waiting::Waiting;
use crate::key::SessionKey;
use crate::sessions::Sessions;
use crate::sessions_api::SessionsApi;

/// A message that was sent, and what its answer needs.
#[derive(Clone)]
pub(super) struct Answering {
    pub(super) api: Arc<SessionsApi>,
    pub(super) sessions: Sessions,
    pub(super) key: SessionKey,
    pub(super) message: String,
    pub(super) model: String,
    /// The tokens that the session had used before this message.
    pub(super) before: Tokens,
}

/// The tokens that a session has used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tokens {
    prompt: u64,
    answer: u64,
}

impl Tokens {
    pub(super) async fn of(sessions: &Sessions, key: &SessionKey) -> Tokens {
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
    pub(super) fn id(&self) -> String {
        format!("chatcmpl-{}", self.message)
    }

    /// Remembers the labels of an answer, because the caller will send it again.
    pub(super) async fn remember(&self, text: &str) {
        let status = self.sessions.status(&self.key).await;
        if let Ok(status) = status {
            self.api.answers.note(text, &status.labels);
        }
    }

    pub(super) async fn usage(&self) -> Value {
        let now = Tokens::of(&self.sessions, &self.key).await;
        let prompt = now.prompt.saturating_sub(self.before.prompt);
        let answer = now.answer.saturating_sub(self.before.answer);
        json!({"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer})
    }
}

/// The text of an answer as a stream sends it: that of every reply of the model, in paragraphs.
pub(super) struct Spoken {
    text: String,
    /// Longer text is not collected.
    limit: usize,
    /// Text of an earlier reply was sent, so the next text starts a paragraph.
    breaks: bool,
    /// Events were missed, so text is missing at an unknown place.
    has_gap: bool,
}

impl Spoken {
    pub(super) fn up_to(limit: usize) -> Spoken {
        Spoken { text: String::new(), limit, breaks: false, has_gap: false }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the piece of text that an event adds.
    pub(super) fn add(&mut self, event: &SessionEvent) -> Option<String> {
        match event {
            SessionEvent::Text { delta, .. } => {
                let before = if std::mem::take(&mut self.breaks) { "\n\n" } else { "" };
                Some(self.push(format!("{before}{delta}")))
            }
            SessionEvent::ToolStart { .. } | SessionEvent::Restart { .. } => {
                self.breaks = !self.text.is_empty();
                None
            }
            _ => None,
        }
    }

    /// Returns the question that ends the answer, as a paragraph.
    pub(super) fn ask(&mut self, question: &str) -> String {
        let before = if self.text.is_empty() { "" } else { "\n\n" };
        self.push(format!("{before}{question}"))
    }

    fn push(&mut self, piece: String) -> String {
        if self.text.len() <= self.limit {
            self.text.push_str(&piece);
        }
        piece
    }
}

/// The end of a request: its message is settled, or the run waits for a person.
pub(super) enum Outcome {
    Settled(SessionEvent),
    Waits(Waiting),
}

/// Waits for the end of a request, and collects what is said until then.
pub(super) async fn outcome(
    answer: &Answering,
    mut events: Receiver<Arc<SessionEvent>>,
    spoken: &mut Spoken,
) -> Outcome {
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
                spoken.add(&event);
                if let Some(waiting) = Waiting::of(&event) {
                    return Outcome::Waits(waiting);
                }
            }
            // The missed events may include the final event or a question.
            Err(RecvError::Lagged(_)) => {
                spoken.has_gap = true;
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

/// The answer as one object. With `spoken` it has the text that a stream has, else the agent's final text.
pub(super) async fn whole(answer: &Answering, outcome: Outcome, spoken: Option<Spoken>) -> Response {
    let spoken = spoken.filter(|spoken| !spoken.has_gap);
    let text = match outcome {
        Outcome::Settled(SessionEvent::Final { text, .. }) => spoken.map_or(text, |spoken| spoken.text),
        Outcome::Waits(waiting) => {
            let question = waiting.message(&answer.key);
            match spoken {
                Some(mut spoken) => {
                    spoken.ask(&question);
                    spoken.text
                }
                None => question,
            }
        }
        Outcome::Settled(other) => return failed(&failure(&other)),
    };
    answer.remember(&text).await;
    let message = json!({"role": "assistant", "content": text});
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    json_response(
        StatusCode::OK,
        &json!({
            "id": answer.id(), "object": "chat.completion", "created": now(), "model": answer.model,
            "choices": [choice], "usage": answer.usage().await,
        }),
    )
}

/// The response to a request after which the client must not repeat it by itself.
pub(super) fn failed(error: &Value) -> Response {
    let mut response = json_response(StatusCode::UNPROCESSABLE_ENTITY, error);
    response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    response
}

/// OpenAI's error object for a run without an answer.
pub(super) fn failure(event: &SessionEvent) -> Value {
    let message = match event {
        SessionEvent::Error { message, .. } => message.clone(),
        SessionEvent::Stopped { by, .. } => format!("the run was stopped by {by}"),
        _ => "the gateway is stopping; the run resumes after the restart".to_owned(),
    };
    error_object("agent_failed", &message)
}

pub(super) fn error_object(code: &str, message: &str) -> Value {
    json!({"error": {"message": message, "type": "agent_error", "param": null, "code": code}})
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
