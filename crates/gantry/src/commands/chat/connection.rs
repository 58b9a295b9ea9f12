//! The connection of a conversation to its gateway. It is opened again after the gateway was away.

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

use crate::client::{ANSWER_LIMIT, Address, Target, open, request_error};
use crate::environment::Environment;
use crate::exit::Refused;
use crate::output::Output;

/// Events that may wait to be shown. When some are dropped, the chat asks for the answer instead.
const WAITING: usize = 4096;
/// How often the answer is asked for once events were missed.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// How long a gateway may be away.
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
}

/// What comes next.
pub(super) enum Heard {
    Event(Box<SessionEvent>),
    /// The gateway is gone.
    Lost,
}

impl<'a> Connection<'a> {
    /// Listens to a session. Also returns how the session is.
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
        let mut connection = Connection { environment, output, key, link, events, missed };
        let params = SessionParams { session_key: connection.key.clone() };
        let status: ListenResult = connection.request(method::SESSIONS_LISTEN, &params).await?;
        status.session_key().clone_into(&mut connection.key);
        Ok((connection, status))
    }

    pub(super) fn is_lost(&self) -> bool {
        self.link.is_closed()
    }

    /// Connects again, and returns how the session is. Gives up when the gateway stays away.
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
        // A gateway that was restarted may listen on another port.
        let address = Target::gateway(self.environment, self.output)?;
        let (connection, status) =
            Connection::open(self.environment, self.output, &address, self.key.clone()).await?;
        // What happened meanwhile was not heard.
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
        serde_json::from_str(answer.get()).context("the gateway's answer is not valid")
    }

    /// The next thing that happens. When some was missed, what settled the message is asked for.
    pub(super) async fn next_event(&mut self, id: &str) -> Result<Heard> {
        loop {
            tokio::select! {
                event = self.events.recv() => return Ok(event.map_or(Heard::Lost, |event| Heard::Event(Box::new(event)))),
                () = tokio::time::sleep(ASK_AGAIN), if self.missed.load(Ordering::Relaxed) => {
                    // Said before under this id, so it is not said again.
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

/// What settled the message, as the event that was missed.
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

/// Hears what happens in the session.
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
