//! The Socket Mode loop. An envelope is acknowledged after its event is stored; Slack sends others again.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use gantry_net::{HeaderMap, WebSocket};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_websockets::Message;

use super::api::{CallError, Token};
use super::event::{self, Heard};
use super::{Identity, Slack};
use crate::adapter::{Intake, ListenError, Press};

/// The limit for the socket's upgrade and its first frame.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// The limit for a write to the socket.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// How long a socket is read that was replaced. Slack sends again what is not confirmed by then.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// A frame from Slack.
#[derive(Debug, Deserialize)]
struct Frame {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    envelope_id: Option<String>,
    #[serde(default)]
    payload: Value,
    #[serde(default)]
    reason: Option<String>,
}

/// What a frame asks for.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Continue,
    /// Slack will close the socket soon.
    Replace,
}

impl Slack {
    pub(super) async fn run(&self, intake: &dyn Intake) -> Result<Infallible, ListenError> {
        let identity = self.identity().await.map_err(|err| err.stops_listening(Token::Bot))?;
        let mut socket = self.open().await?;
        intake.connected(&format!("@{}", identity.user));
        loop {
            let message = match timeout(self.silence, socket.next()).await {
                Ok(message) => message,
                Err(_) => return Err(again("Slack's socket was silent for too long")),
            };
            if self.take(message, &mut socket, intake, &identity).await? == Next::Replace {
                // Events go to any open socket, so the next one opens before this one closes.
                let next = self.open().await?;
                self.drain(std::mem::replace(&mut socket, next), intake, &identity).await?;
            }
        }
    }

    /// Opens a socket and waits for its first frame.
    async fn open(&self) -> Result<WebSocket, ListenError> {
        let url = self.socket_url().await.map_err(|err| err.stops_listening(Token::App))?;
        let url = self.pinned(&url, ["wss", "ws"]).map_err(ListenError::Refused)?;
        let deadline = Instant::now() + OPEN_LIMIT;
        let none = HeaderMap::new();
        // The address contains a ticket; no token goes along.
        let opened =
            self.connection.client.websocket(&url, &self.connection.policy, &none, &none, deadline).await;
        let mut socket = opened.map_err(|err| CallError::Net(err).stops_listening(Token::App))?;
        loop {
            let message = tokio::time::timeout_at(deadline, socket.next()).await;
            let message = message.map_err(|_| again("Slack's socket did not begin"))?;
            match frame(message)? {
                Some(Frame { kind, .. }) if kind == "hello" => return Ok(socket),
                Some(Frame { kind, reason, .. }) if kind == "disconnect" => return Err(disconnected(reason)),
                _ => {}
            }
        }
    }

    async fn take(
        &self,
        message: Option<Result<Message, tokio_websockets::Error>>,
        socket: &mut WebSocket,
        intake: &dyn Intake,
        identity: &Identity,
    ) -> Result<Next, ListenError> {
        let Some(frame) = frame(message)? else { return Ok(Next::Continue) };
        if frame.kind == "disconnect" {
            return match frame.reason.as_deref() {
                Some("warning" | "refresh_requested") => Ok(Next::Replace),
                _ => Err(disconnected(frame.reason)),
            };
        }
        let Some(envelope) = frame.envelope_id else { return Ok(Next::Continue) };
        let pressed = self.store(&frame.kind, frame.payload, intake, identity).await?;
        let confirmed = Message::text(json!({ "envelope_id": envelope }).to_string());
        match timeout(WRITE_LIMIT, socket.send(confirmed)).await {
            Ok(Ok(())) => {}
            Ok(Err(err)) => return Err(again(&format!("Slack's socket failed: {err}"))),
            Err(_) => return Err(again("Slack's socket takes nothing")),
        }
        if let Some((press, sentence)) = pressed {
            self.show(&press, &sentence).await;
        }
        Ok(Next::Continue)
    }

    /// Gives an event to the intake. For a press it returns what to show.
    async fn store(
        &self,
        kind: &str,
        payload: Value,
        intake: &dyn Intake,
        identity: &Identity,
    ) -> Result<Option<(Press, String)>, ListenError> {
        let account = &self.connection.account;
        match event::parse(kind, payload, identity, account) {
            Heard::Message(mut inbound) => {
                inbound.person.name = self.name_of(&inbound.person.id).await;
                intake.message(*inbound, None).await.map_err(|err| again(&err.to_string()))?;
                Ok(None)
            }
            Heard::Press(press) => {
                let stored = intake.press(Press::clone(&press), None).await;
                let sentence = stored.map_err(|err| again(&err.to_string()))?;
                Ok(Some((*press, sentence)))
            }
            Heard::Nothing => Ok(None),
            Heard::Malformed => {
                tracing::warn!(account, kind, "an event of Slack is malformed");
                Ok(None)
            }
        }
    }

    /// Reads what is left on a socket, and closes it.
    async fn drain(
        &self,
        mut socket: WebSocket,
        intake: &dyn Intake,
        identity: &Identity,
    ) -> Result<(), ListenError> {
        let deadline = Instant::now() + DRAIN_LIMIT;
        while let Ok(message) = tokio::time::timeout_at(deadline, socket.next()).await {
            match self.take(message, &mut socket, intake, identity).await {
                Ok(_) => {}
                // The other socket is open. Only an event that was not stored matters.
                Err(err) if is_not_stored(&err) => return Err(err),
                Err(_) => return Ok(()),
            }
        }
        let _ = timeout(DRAIN_LIMIT, socket.close()).await;
        Ok(())
    }

    /// Shows a sentence to the person who pressed a button, and to nobody else.
    async fn show(&self, press: &Press, sentence: &str) {
        if sentence.is_empty() {
            return;
        }
        let mut body = json!({
            "channel": press.address.chat,
            "user": press.person.id,
            "text": super::text::escaped(sentence),
        });
        if let (Some(thread), Some(body)) = (&press.address.thread, body.as_object_mut()) {
            body.insert("thread_ts".to_owned(), json!(thread));
        }
        if let Err(err) = self.json::<Value>("chat.postEphemeral", &body).await {
            tracing::warn!(account = self.connection.account, "cannot answer a press of a button: {err}");
        }
    }
}

fn again(why: &str) -> ListenError {
    ListenError::Again { why: why.to_owned(), after: None }
}

fn is_not_stored(err: &ListenError) -> bool {
    matches!(err, ListenError::Again { why, .. } if why.starts_with("the event was not stored"))
}

fn disconnected(reason: Option<String>) -> ListenError {
    match reason.as_deref() {
        Some("link_disabled") => ListenError::Refused(
            "Socket Mode is off: switch it on at api.slack.com/apps, Socket Mode".to_owned(),
        ),
        Some("too_many_websockets") => again("too many programs listen for this Slack app"),
        _ => again("Slack closed the socket"),
    }
}

/// Reads a frame. `None` stands for control frames and frames that are not understood.
fn frame(message: Option<Result<Message, tokio_websockets::Error>>) -> Result<Option<Frame>, ListenError> {
    match message {
        None => Err(again("Slack closed the socket")),
        Some(Err(err)) => Err(again(&format!("Slack's socket failed: {err}"))),
        Some(Ok(message)) if message.is_close() => Err(again("Slack closed the socket")),
        Some(Ok(message)) if message.is_text() => Ok(serde_json::from_slice(message.as_payload()).ok()),
        Some(Ok(_)) => Ok(None),
    }
}
