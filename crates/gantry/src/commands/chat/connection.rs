//! The connection of a conversation to its gateway. It reconnects after the gateway was offline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gantry_link::{Event, Link, LinkError, Request, ServeFuture, Service};
use gantry_protocol::{
    Addressee, ListenResult, MessageParams, SendResult, SessionEvent, SessionEventData, SessionParams,
    StreamFrame, event, method, raw,
};
use gantry_tool::RefusalCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::screen::TICK;
use crate::client::{ANSWER_LIMIT, Address, Target, open, request_error};
use crate::environment::Environment;
use crate::exit::Refused;
use crate::output::Output;

/// Size of the event queue. If events are dropped, the chat requests the answer instead.
const WAITING: usize = 4096;
/// How often the answer is requested after events were missed.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// How long the chat waits for an offline gateway.
const RECONNECT_LIMIT: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

pub(super) struct Connection<'a> {
    environment: &'a Environment,
    output: &'a Output,
    pub(super) key: String,
    link: Link,
    events: mpsc::Receiver<SessionEvent>,
    missed: Arc<AtomicBool>,
    /// When the answer is requested, if events were missed.
    ask_at: tokio::time::Instant,
}

/// The next event, or the loss of the connection.
pub(super) enum Heard {
    Event(Box<SessionEvent>),
    /// Nothing happened for a moment.
    Nothing,
    /// The connection was lost.
    Lost,
}

impl<'a> Connection<'a> {
    /// Subscribes to a session and returns its state.
    pub(super) async fn open(
        environment: &'a Environment,
        output: &'a Output,
        address: &Address,
        key: String,
    ) -> Result<(Connection<'a>, ListenResult)> {
        let (sender, events) = mpsc::channel(WAITING);
        let missed = Arc::new(AtomicBool::new(false));
        let listener = Arc::new(Listener { sender, missed: missed.clone() });
        let (link, _, _) = open(address, listener).await.map_err(Refused)?;
        let ask_at = tokio::time::Instant::now() + ASK_AGAIN;
        let mut connection = Connection { environment, output, key, link, events, missed, ask_at };
        let params = SessionParams { session_key: connection.key.clone() };
        let status: ListenResult = connection.request(method::SESSIONS_LISTEN, &params).await?;
        status.session_key().clone_into(&mut connection.key);
        Ok((connection, status))
    }

    pub(super) fn is_lost(&self) -> bool {
        self.link.is_closed()
    }

    /// Reconnects and returns the session's state. Fails if the gateway stays offline.
    pub(super) async fn reopen(&mut self) -> Result<ListenResult> {
        let until = Instant::now() + RECONNECT_LIMIT;
        let mut pause = FIRST_PAUSE;
        loop {
            let err = match self.try_again().await {
                Ok(status) => return Ok(status),
                Err(err) => err,
            };
            let is_away = err.downcast_ref().is_some_and(|Refused(why)| why.code == RefusalCode::Unavailable);
            if !is_away || Instant::now() >= until {
                return Err(err);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_again(&mut self) -> Result<ListenResult> {
        // A restarted gateway may listen on another port.
        let address = Target::gateway(self.environment, self.output)?;
        let (connection, status) =
            Connection::open(self.environment, self.output, &address, self.key.clone()).await?;
        // Events in between were missed.
        connection.missed.store(true, Ordering::Relaxed);
        *self = connection;
        Ok(status)
    }

    pub(super) async fn request<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<R> {
        let answer: Result<_, LinkError> = self.link.request_within(method, raw(params), ANSWER_LIMIT).await;
        let answer = answer.map_err(request_error)?;
        serde_json::from_str(answer.get()).context("the gateway's answer is invalid")
    }

    /// Returns the next event. After missed events it requests the outcome of the open message, if there is one.
    pub(super) async fn next_event(&mut self, id: Option<&str>) -> Result<Heard> {
        loop {
            let asks = id.is_some() && self.missed.load(Ordering::Relaxed);
            tokio::select! {
                event = self.events.recv() => return Ok(event.map_or(Heard::Lost, |event| Heard::Event(Box::new(event)))),
                () = tokio::time::sleep(TICK) => return Ok(Heard::Nothing),
                () = tokio::time::sleep_until(self.ask_at), if asks => {
                    let Some(id) = id else { continue };
                    self.ask_at = tokio::time::Instant::now() + ASK_AGAIN;
                    // The gateway knows this id, so the message is not sent twice.
                    let params = MessageParams {
                        session_key: Some(self.key.clone()),
                        message: "?".to_owned(),
                        id: Some(id.to_owned()),
                        ..MessageParams::default()
                    };
                    let sent = match self.request(method::SESSIONS_SEND, &params).await {
                        Err(_) if self.is_lost() => return Ok(Heard::Lost),
                        sent => sent?,
                    };
                    if let Some(event) = settled(sent, id) {
                        return Ok(Heard::Event(Box::new(event)));
                    }
                }
            }
        }
    }
}

/// Converts the message's outcome to the event that was missed.
fn settled(sent: SendResult, id: &str) -> Option<SessionEvent> {
    let messages = vec![Addressee { id: id.to_owned(), from: String::new(), reply_to: Value::Null }];
    Some(match sent {
        SendResult::Accepted { .. } | SendResult::Command { .. } => return None,
        SendResult::Final { run_id, reply, .. } => {
            SessionEvent::Final { run: run_id.unwrap_or_default(), text: reply, messages }
        }
        SendResult::Stopped { run_id, by, .. } => {
            SessionEvent::Stopped { run: run_id.unwrap_or_default(), by, messages }
        }
        SendResult::Error { run_id, error, .. } => {
            SessionEvent::Error { run: run_id, message: error, messages }
        }
        SendResult::Suspended { .. } => SessionEvent::Suspended,
    })
}

/// Receives the session's events.
struct Listener {
    sender: mpsc::Sender<SessionEvent>,
    missed: Arc<AtomicBool>,
}

impl Service for Listener {
    fn request(self: Arc<Self>, _link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { Err(request.unknown()) })
    }

    fn event(&self, _link: &Link, heard: Event) {
        if heard.name != event::SESSION_EVENT {
            return;
        }
        let Some(SessionEventData { event, .. }) = heard.parse() else { return };
        let is_missed = matches!(event, SessionEvent::Missed { .. });
        if is_missed || self.sender.try_send(event).is_err() {
            self.missed.store(true, Ordering::Relaxed);
        }
    }

    fn stream(&self, _link: &Link, _frame: StreamFrame) {}
}

/// Makes one request on a connection of its own.
pub(super) async fn ask<R: DeserializeOwned>(
    address: &Address,
    method: &str,
    params: &impl Serialize,
) -> Result<R> {
    let (sender, _events) = mpsc::channel(1);
    let listener = Arc::new(Listener { sender, missed: Arc::default() });
    let (link, _, _) = open(address, listener).await.map_err(Refused)?;
    let answer = link.request_within(method, raw(params), ANSWER_LIMIT).await.map_err(request_error)?;
    serde_json::from_str(answer.get()).context("the gateway's answer is invalid")
}
