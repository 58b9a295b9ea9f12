//! Protocol methods of agents: their sessions, messages and answers, and events of sessions that a
//! client listens to.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_domain::{MethodContext, Methods};
use gantry_protocol::{ErrorCode, WireError, event, method, raw};
use gantry_tool::Refusal;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::key::SessionKey;
use crate::sessions::Sent;
use crate::sessions_api::{AnswerParams, MAX_HISTORY, MessageParams, Part, SessionsApi, settled};

/// Sessions that one client may listen to.
const MAX_LISTENED: usize = 64;

type Answer = Result<Value, WireError>;

/// The state of the methods.
pub(crate) struct SessionMethods {
    api: Arc<SessionsApi>,
    /// Which connection listens to which session.
    listeners: Mutex<HashSet<(u64, String)>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Params {
    session_key: String,
    limit: Option<u32>,
    offset: Option<u32>,
    from: Option<i64>,
}

pub(crate) fn methods(api: Arc<SessionsApi>) -> Methods {
    let state = &Arc::new(SessionMethods { api, listeners: Mutex::default() });
    Methods::default()
        .on(method::AGENTS_LIST, state, agents)
        .on(method::SESSIONS_LIST, state, list)
        .on(method::SESSIONS_STATUS, state, status)
        .on(method::SESSIONS_HISTORY, state, history)
        .on(method::SESSIONS_LISTEN, state, listen)
        .on(method::SESSIONS_SEND, state, send)
        .on(method::SESSIONS_ANSWER, state, answer)
}

async fn agents(state: Arc<SessionMethods>, context: MethodContext, _: NoParams) -> Answer {
    state.api.list_agents(&context.identity).map_err(wire)
}

async fn list(state: Arc<SessionMethods>, context: MethodContext, params: Params) -> Answer {
    let (limit, offset) = (params.limit.unwrap_or(100), params.offset.unwrap_or(0));
    state.api.list_sessions(&context.identity, limit, offset).await.map_err(wire)
}

async fn status(state: Arc<SessionMethods>, context: MethodContext, params: Params) -> Answer {
    state.api.session_status(&context.identity, &params.session_key).await.map_err(wire)
}

async fn history(state: Arc<SessionMethods>, context: MethodContext, params: Params) -> Answer {
    let (from, limit) = (params.from.unwrap_or(0), params.limit.unwrap_or(MAX_HISTORY));
    state.api.session_history(&context.identity, &params.session_key, from, limit).await.map_err(wire)
}

/// Starts sending the session's events to the client, until it disconnects.
async fn listen(state: Arc<SessionMethods>, context: MethodContext, params: Params) -> Answer {
    let (_, key) = state.api.session(&context.identity, &params.session_key, Part::Reads).map_err(wire)?;
    // A session that does not exist yet begins with its first message.
    let status = state.api.session_status(&context.identity, &key.key).await;
    start_listening(&state, &context, &key)?;
    Ok(status.unwrap_or_else(|_| json!({"sessionKey": key.key})))
}

async fn send(state: Arc<SessionMethods>, context: MethodContext, params: MessageParams) -> Answer {
    let key = named(params.session_key.as_deref())?.to_owned();
    let (sessions, key) = state.api.session(&context.identity, &key, Part::Speaks).map_err(wire)?;
    Ok(match state.api.say(&context.identity, sessions, &key, params).await.map_err(wire)? {
        Sent::Accepted { message } => {
            json!({"sessionKey": key.key, "messageId": message, "status": "accepted"})
        }
        Sent::Settled { message, event } => settled(&key, &message, &event),
        Sent::Command(told) => json!({"sessionKey": key.key, "status": "command", "told": told}),
    })
}

async fn answer(state: Arc<SessionMethods>, context: MethodContext, params: AnswerParams) -> Answer {
    let key = named(params.session_key.as_deref())?.to_owned();
    state.api.answer_question(&context.identity, &key, params).await.map_err(wire)
}

fn wire(refusal: Refusal) -> WireError {
    refusal.to_wire()
}

fn named(key: Option<&str>) -> Result<&str, WireError> {
    key.ok_or_else(|| WireError::new(ErrorCode::BadParams, "\"sessionKey\" is missing"))
}

fn start_listening(
    state: &Arc<SessionMethods>,
    context: &MethodContext,
    key: &SessionKey,
) -> Result<(), WireError> {
    let listener = (context.connection, key.key.clone());
    {
        let mut listeners = state.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if listeners.contains(&listener) {
            return Ok(());
        }
        if listeners.iter().filter(|(connection, _)| *connection == context.connection).count()
            >= MAX_LISTENED
        {
            let message = format!("a client listens to at most {MAX_LISTENED} sessions");
            return Err(WireError::new(ErrorCode::TooMany, message));
        }
        listeners.insert(listener.clone());
    }
    let mut events = state.api.sessions.listen(key);
    let (state, link, key) = (state.clone(), context.link.clone(), key.key.clone());
    tokio::spawn(async move {
        loop {
            let told = tokio::select! {
                _ = link.closed() => break,
                received = events.recv() => match received {
                    Ok(event) => serde_json::to_value(&*event).unwrap_or_default(),
                    Err(RecvError::Lagged(missed)) => json!({"event": "missed", "events": missed}),
                    Err(RecvError::Closed) => break,
                },
            };
            let data = json!({"sessionKey": key, "event": told});
            if link.event(event::SESSION_EVENT, raw(&data)).await.is_err() {
                break;
            }
        }
        state.listeners.lock().unwrap_or_else(PoisonError::into_inner).remove(&listener);
    });
    Ok(())
}
