//! Protocol methods of agents: sessions, messages and answers, and the events of sessions that a client listens to.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_domain::{MethodContext, Methods};
use gantry_protocol::{
    AgentList, AnswerParams, AnswerResult, ErrorCode, GrantInfo, GrantList, GrantParams, GrantsListParams,
    History, HistoryParams, ListenResult, Listened, MessageParams, SendResult, SessionEvent,
    SessionEventData, SessionList, SessionMatches, SessionParams, SessionRename, SessionSearch,
    SessionStatus, SessionsListParams, UnfinishedReply, WireError, event, method, raw,
};
use gantry_tool::Refusal;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;

use crate::key::SessionKey;
use crate::sessions::Sent;
use crate::sessions_api::{MAX_HISTORY, Part, SessionsApi, settled};

/// Sessions that one client may listen to.
const MAX_LISTENED: usize = 64;

type Answer<T> = Result<T, WireError>;

/// The state of the methods.
pub(crate) struct SessionMethods {
    api: Arc<SessionsApi>,
    /// The connections and the sessions that they listen to.
    listeners: Mutex<HashSet<(u64, String)>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

pub(crate) fn methods(api: Arc<SessionsApi>) -> Methods {
    let state = &Arc::new(SessionMethods { api, listeners: Mutex::default() });
    Methods::default()
        .on(method::AGENTS_LIST, state, agents)
        .on(method::SESSIONS_LIST, state, list)
        .on(method::SESSIONS_STATUS, state, status)
        .on(method::SESSIONS_HISTORY, state, history)
        .on(method::SESSIONS_LISTEN, state, listen)
        .on(method::SESSIONS_RENAME, state, rename)
        .on(method::SESSIONS_SEARCH, state, search)
        .on(method::SESSIONS_SEND, state, send)
        .on(method::SESSIONS_ANSWER, state, answer)
        .on(method::GRANTS_LIST, state, grants)
        .on(method::GRANTS_REVOKE, state, revoke_grant)
}

async fn agents(state: Arc<SessionMethods>, context: MethodContext, _: NoParams) -> Answer<AgentList> {
    state.api.list_agents(&context.identity).map_err(wire)
}

async fn list(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: SessionsListParams,
) -> Answer<SessionList> {
    let (limit, offset) = (params.limit.unwrap_or(100), params.offset.unwrap_or(0));
    state.api.list_sessions(&context.identity, limit, offset).await.map_err(wire)
}

async fn status(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: SessionParams,
) -> Answer<SessionStatus> {
    state.api.session_status(&context.identity, &params.session_key).await.map_err(wire)
}

async fn history(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: HistoryParams,
) -> Answer<History> {
    let (from, limit) = (params.from.unwrap_or(0), params.limit.unwrap_or(MAX_HISTORY));
    if params.from.is_some() && params.before.is_some() {
        return Err(WireError::new(ErrorCode::BadParams, "use \"from\" or \"before\", not both"));
    }
    let HistoryParams { session_key, before, .. } = params;
    state.api.session_history(&context.identity, &session_key, from, before, limit).await.map_err(wire)
}

async fn rename(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: SessionRename,
) -> Answer<SessionRename> {
    state.api.rename_session(&context.identity, params).await.map_err(wire)
}

async fn search(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: SessionSearch,
) -> Answer<SessionMatches> {
    state.api.search_sessions(&context.identity, &params).await.map_err(wire)
}

/// Starts sending the session's events to the client, until it disconnects.
async fn listen(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: SessionParams,
) -> Answer<ListenResult> {
    let (_, key) = state.api.session(&context.identity, &params.session_key, Part::Reads).map_err(wire)?;
    // A session that does not exist yet is created by its first message.
    let exists = state.api.session_status(&context.identity, &key.key).await.is_ok();
    let (seq, unfinished) = start_listening(&state, &context, &key)?;
    if !exists {
        return Ok(ListenResult::New(SessionParams { session_key: key.key }));
    }
    // Read again, because something may have happened before the first event.
    let status = state.api.session_status(&context.identity, &key.key).await;
    Ok(match status {
        // A session that was idle is read from the journal by its status, and nothing is in progress.
        Ok(status) if seq == 0 => {
            ListenResult::Known(Box::new(Listened { seq: status.events, status, unfinished: None }))
        }
        Ok(status) => ListenResult::Known(Box::new(Listened { status, seq, unfinished })),
        Err(_) => ListenResult::New(SessionParams { session_key: key.key }),
    })
}

async fn send(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: MessageParams,
) -> Answer<SendResult> {
    let key = named(params.session_key.as_deref())?.to_owned();
    let (sessions, key) = state.api.session(&context.identity, &key, Part::Speaks).map_err(wire)?;
    Ok(match state.api.send(&context.identity, sessions, &key, params).await.map_err(wire)? {
        Sent::Accepted { message } => SendResult::Accepted { session_key: key.key, message_id: message },
        Sent::Settled { message, event } => settled(&key, &message, &event),
        Sent::Command(text) => SendResult::Command { session_key: key.key, text },
    })
}

async fn answer(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: AnswerParams,
) -> Answer<AnswerResult> {
    let key = named(params.session_key.as_deref())?.to_owned();
    state.api.answer_question(&context.identity, &key, params).await.map_err(wire)
}

async fn grants(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: GrantsListParams,
) -> Answer<GrantList> {
    state.api.list_grants(&context.identity, params.agent.as_deref()).await.map_err(wire)
}

async fn revoke_grant(
    state: Arc<SessionMethods>,
    context: MethodContext,
    params: GrantParams,
) -> Answer<GrantInfo> {
    state.api.revoke_grant(&context.identity, &params.id).await.map_err(wire)
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
) -> Result<(i64, Option<UnfinishedReply>), WireError> {
    let listener = (context.connection, key.key.clone());
    let listening = state.api.sessions.listen_numbered(key);
    let so_far = (listening.entries, listening.unfinished);
    {
        let mut listeners = state.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if listeners.contains(&listener) {
            return Ok(so_far);
        }
        if listeners.iter().filter(|(connection, _)| *connection == context.connection).count()
            >= MAX_LISTENED
        {
            let message = format!("a client can listen to at most {MAX_LISTENED} sessions");
            return Err(WireError::new(ErrorCode::TooMany, message));
        }
        listeners.insert(listener.clone());
    }
    let mut events = listening.events;
    let (state, link, key) = (state.clone(), context.link.clone(), key.key.clone());
    tokio::spawn(async move {
        loop {
            let data = tokio::select! {
                _ = link.closed() => break,
                received = events.recv() => match received {
                    Ok(data) => data,
                    Err(RecvError::Lagged(events)) => {
                        let event = SessionEvent::Missed { events };
                        Arc::new(SessionEventData { session_key: key.clone(), seq: None, event })
                    }
                    Err(RecvError::Closed) => break,
                },
            };
            if link.event(event::SESSION_EVENT, raw(&*data)).await.is_err() {
                break;
            }
        }
        state.listeners.lock().unwrap_or_else(PoisonError::into_inner).remove(&listener);
    });
    Ok(so_far)
}
