//! Sessions over a client's link: messages, answers, and events of those it listens to.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_agent::{Sent, SessionKey};
use gantry_link::{Link, Request};
use gantry_protocol::{
    AnswerParams, ErrorCode, HistoryParams, ListenResult, MessageParams, RawJson, SendResult, SessionEvent,
    SessionEventData, SessionParams, SessionsListParams, WireError, event, method, raw,
};
use gantry_tool::Refusal;
use tokio::sync::broadcast::error::RecvError;

use super::{Gateway, Identity};
use crate::conversations::{MAX_HISTORY, Part, settled};

/// Sessions that one client listens to.
const MAX_LISTENED: usize = 64;

/// The sessions a client listens to.
pub(super) type Listens = Arc<Mutex<HashSet<String>>>;

pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    identity: &Identity,
    listens: &Listens,
    link: &Link,
    request: &Request,
) -> Result<RawJson, WireError> {
    let wire = |refusal: Refusal| refusal.to_wire();
    Ok(match request.method.as_str() {
        method::AGENTS_LIST => {
            request.no_params()?;
            raw(&gateway.list_agents(identity).map_err(wire)?)
        }
        method::SESSIONS_LIST => {
            let params: SessionsListParams = request.parse()?;
            let (limit, offset) = (params.limit.unwrap_or(100), params.offset.unwrap_or(0));
            raw(&gateway.list_sessions(identity, limit, offset).await.map_err(wire)?)
        }
        method::SESSIONS_STATUS => {
            let params: SessionParams = request.parse()?;
            raw(&gateway.session_status(identity, &params.session_key).await.map_err(wire)?)
        }
        method::SESSIONS_HISTORY => {
            let params: HistoryParams = request.parse()?;
            let (from, limit) = (params.from.unwrap_or(0), params.limit.unwrap_or(MAX_HISTORY));
            let history = gateway.session_history(identity, &params.session_key, from, limit).await;
            raw(&history.map_err(wire)?)
        }
        method::SESSIONS_LISTEN => {
            let params: SessionParams = request.parse()?;
            let (_, key) = gateway.session(identity, &params.session_key, Part::Reads).map_err(wire)?;
            // It may begin with what is said next.
            let status = gateway.session_status(identity, &key.key).await;
            listen(gateway, listens, link, &key)?;
            raw(&match status {
                Ok(status) => ListenResult::Known(Box::new(status)),
                Err(_) => ListenResult::New(SessionParams { session_key: key.key }),
            })
        }
        method::SESSIONS_SEND => {
            let params: MessageParams = request.parse()?;
            let key = named(params.session_key.as_deref())?.to_owned();
            let (sessions, key) = gateway.session(identity, &key, Part::Speaks).map_err(wire)?;
            raw(&match gateway.say(identity, sessions, &key, params).await.map_err(wire)? {
                Sent::Accepted { message } => {
                    SendResult::Accepted { session_key: key.key, message_id: message }
                }
                Sent::Settled { message, event } => settled(&key, &message, &event),
                Sent::Command(told) => SendResult::Command { session_key: key.key, told },
            })
        }
        method::SESSIONS_ANSWER => {
            let params: AnswerParams = request.parse()?;
            let key = named(params.session_key.as_deref())?.to_owned();
            raw(&gateway.answer_question(identity, &key, params).await.map_err(wire)?)
        }
        _ => return Err(request.unknown()),
    })
}

fn named(key: Option<&str>) -> Result<&str, WireError> {
    key.ok_or_else(|| WireError::new(ErrorCode::BadParams, "\"sessionKey\" is missing"))
}

/// From now on the client hears what happens in the session, until it hangs up.
fn listen(gateway: &Gateway, listens: &Listens, link: &Link, key: &SessionKey) -> Result<(), WireError> {
    let mut listened = listens.lock().unwrap_or_else(PoisonError::into_inner);
    if listened.contains(&key.key) {
        return Ok(());
    }
    if listened.len() >= MAX_LISTENED {
        let message = format!("a client listens to at most {MAX_LISTENED} sessions");
        return Err(WireError::new(ErrorCode::TooMany, message));
    }
    let mut events = gateway.sessions().map_err(|refusal| refusal.to_wire())?.listen(key);
    listened.insert(key.key.clone());
    let (link, key) = (link.clone(), key.key.clone());
    tokio::spawn(async move {
        loop {
            let event = tokio::select! {
                _ = link.closed() => return,
                received = events.recv() => match received {
                    Ok(event) => SessionEvent::from((*event).clone()),
                    Err(RecvError::Lagged(missed)) => SessionEvent::Missed { events: missed },
                    Err(RecvError::Closed) => return,
                },
            };
            let data = SessionEventData { session_key: key.clone(), event };
            if link.event(event::SESSION_EVENT, raw(&data)).await.is_err() {
                return;
            }
        }
    });
    Ok(())
}
