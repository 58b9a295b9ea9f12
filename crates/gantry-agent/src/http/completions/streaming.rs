//! Answers as server-sent events: live, or a stored answer in one piece.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use gantry_protocol::SessionEvent;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Guard;
use super::answer::{Answering, Spoken, error_object, failure, now};
use super::waiting::Waiting;
use crate::http::sessions::{KEEP_ALIVE, STILL_THERE, stream_response};
use crate::sessions::MAX_MESSAGE_BYTES;

const DONE: &str = "data: [DONE]\n\n";

/// The state of a stream of chunks.
struct Streaming {
    answer: Answering,
    events: Receiver<Arc<SessionEvent>>,
    guard: Guard,
    with_usage: bool,
    /// The text sent so far. Longer answers cannot be sent again as a part of a message.
    spoken: Spoken,
    /// Whether open questions from before this message were checked.
    has_checked: bool,
    is_over: bool,
}

pub(super) fn streamed(
    answer: Answering,
    events: Receiver<Arc<SessionEvent>>,
    guard: Guard,
    with_usage: bool,
) -> Response {
    let first = chunk(&answer.id(), &answer.model, json!({"role": "assistant", "content": ""}), None);
    let streaming = Streaming {
        answer,
        events,
        guard,
        with_usage,
        spoken: Spoken::up_to(MAX_MESSAGE_BYTES),
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
                    return data(&error_object("too_slow", message)) + DONE;
                }
                Ok(Err(RecvError::Closed)) => Arc::new(SessionEvent::Suspended),
                Err(_) => return STILL_THERE.to_owned(),
            };
            if let Some(content) = self.spoken.add(&event) {
                return self.chunk(json!({ "content": content }), None);
            }
            if event.settles(&self.answer.message) || *event == SessionEvent::Suspended {
                self.is_over = true;
                self.guard.is_armed = false;
                self.answer.remember(self.spoken.text()).await;
                return self.last(&event).await;
            }
            if let Some(waiting) = Waiting::of(&event) {
                return self.waits(&waiting).await;
            }
        }
    }

    /// Ends the stream with the question. The run keeps waiting for its answer.
    async fn waits(&mut self, waiting: &Waiting) -> String {
        self.is_over = true;
        self.guard.is_armed = false;
        let content = self.spoken.ask(&waiting.message(&self.answer.key));
        self.answer.remember(self.spoken.text()).await;
        let question = self.chunk(json!({ "content": content }), None);
        let end = self.chunk(json!({}), Some("stop"));
        self.ended(question + &end).await
    }

    async fn last(&self, event: &SessionEvent) -> String {
        let frames = match event {
            SessionEvent::Final { .. } => self.chunk(json!({}), Some("stop")),
            other => data(&failure(other)),
        };
        self.ended(frames).await
    }

    async fn ended(&self, mut frames: String) -> String {
        if self.with_usage {
            let usage = self.answer.usage().await;
            frames += &usage_chunk(&self.answer.id(), &self.answer.model, &usage);
        }
        frames + DONE
    }

    fn chunk(&self, delta: Value, finish: Option<&str>) -> String {
        chunk(&self.answer.id(), &self.answer.model, delta, finish)
    }
}

/// The frames of a stream that has the answer in one piece.
pub(super) fn in_one_piece(whole: &Value, with_usage: bool) -> String {
    if whole.get("error").is_some() {
        return data(whole) + DONE;
    }
    let text = |name: &str| whole[name].as_str().unwrap_or_default();
    let (id, model) = (text("id"), text("model"));
    let mut frames = chunk(id, model, whole["choices"][0]["message"].clone(), None);
    frames += &chunk(id, model, json!({}), Some("stop"));
    if with_usage {
        frames += &usage_chunk(id, model, &whole["usage"]);
    }
    frames + DONE
}

fn chunk(id: &str, model: &str, delta: Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    data(&json!({
        "id": id, "object": "chat.completion.chunk", "created": now(), "model": model, "choices": [choice],
    }))
}

fn usage_chunk(id: &str, model: &str, usage: &Value) -> String {
    data(&json!({
        "id": id, "object": "chat.completion.chunk", "created": now(), "model": model, "choices": [],
        "usage": usage,
    }))
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}
