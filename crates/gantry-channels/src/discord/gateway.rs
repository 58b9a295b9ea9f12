//! One connection to Discord's gateway: how it begins, its heartbeats, and what its end means.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use gantry_net::{HeaderMap, Url, WebSocket};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_websockets::{CloseCode, Message};

use super::Discord;
use super::api::Call;
use super::cursor::{Cursor, Session};
use super::error::{ApiError, PORTAL};
use crate::adapter::ListenError;

/// Servers, their messages, chats of two, and the content of messages.
pub(super) const INTENTS: u64 = 1 | 1 << 9 | 1 << 12 | 1 << 15;
/// The limit for the upgrade and the first frame.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// The limit for a write to the socket.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// The interval of heartbeats is kept within these limits.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(300));
/// Discord resets the token of a bot that begins more than 1,000 sessions a day. Some are kept for the operator's tests.
const KEPT_SESSIONS: u64 = 10;
/// Any code but 1000 and 1001 keeps the session.
const KEEPS_SESSION: u16 = 4_900;

/// A frame from Discord.
#[derive(Debug, Deserialize)]
pub(super) struct Frame {
    pub(super) op: u8,
    #[serde(default)]
    pub(super) d: Value,
    #[serde(default)]
    pub(super) s: Option<u64>,
    #[serde(default)]
    pub(super) t: Option<String>,
}

pub(super) struct Gateway {
    socket: WebSocket,
    interval: Duration,
    next_beat: Instant,
    /// The last heartbeat was confirmed.
    is_confirmed: bool,
    /// Frames were not read for a while, so a missing confirmation means nothing.
    is_behind: bool,
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The session goes on with the next connection.
    Resume(ListenError),
    /// The session is over.
    NewSession(ListenError),
    /// The event was not stored.
    NotStored(ListenError),
}

#[derive(Deserialize)]
struct Bot {
    url: String,
    session_start_limit: Budget,
}

#[derive(Deserialize)]
struct Budget {
    remaining: u64,
    /// In milliseconds.
    reset_after: u64,
}

impl Discord {
    /// Connects, and resumes the session of the cursor or begins a new one.
    pub(super) async fn connect(&self, cursor: &Cursor) -> Result<Gateway, Ended> {
        let socket = match &cursor.session {
            Some(session) => match self.open(&session.url).await {
                Ok(socket) => socket,
                // Any gateway can resume a session.
                Err(_) => self.open(&self.bot().await?.url).await?,
            },
            None => {
                let bot = self.bot().await?;
                let budget = bot.session_start_limit;
                if budget.remaining <= KEPT_SESSIONS {
                    let after = Duration::from_millis(budget.reset_after);
                    let why = "Discord allows no more new sessions today: look for another program with the same token";
                    return Err(again(why, Some(after)));
                }
                self.open(&bot.url).await?
            }
        };
        let mut gateway = Gateway::hello(socket).await?;
        let token = self.token().map_err(stop)?;
        gateway.write(&introduction(&token, cursor.session.as_ref())).await?;
        Ok(gateway)
    }

    async fn bot(&self) -> Result<Bot, Ended> {
        self.call(Call::get("ask for the gateway", &["gateway", "bot"])).await.map_err(stop)
    }

    async fn open(&self, url: &str) -> Result<WebSocket, Ended> {
        let refused = |why: String| Ended::NewSession(ListenError::Refused(why));
        let mut url: Url = self.pinned(url).map_err(refused)?;
        url.set_query(Some("v=10&encoding=json"));
        let none = HeaderMap::new();
        let deadline = Instant::now() + OPEN_LIMIT;
        let policy = &self.connection.policy;
        let opened = self.connection.client.websocket(&url, policy, &none, &none, deadline).await;
        opened.map_err(|err| stop(ApiError::Net(err)))
    }
}

/// The first frame of the client.
fn introduction(token: &str, session: Option<&Session>) -> Value {
    match session {
        Some(Session { id, seq, .. }) => {
            json!({ "op": 6, "d": { "token": token, "session_id": id, "seq": seq } })
        }
        None => json!({ "op": 2, "d": {
            "token": token,
            "intents": INTENTS,
            "properties": { "os": std::env::consts::OS, "browser": "gantry", "device": "gantry" },
        } }),
    }
}

impl Gateway {
    /// Waits for the first frame, which has the interval of heartbeats.
    async fn hello(mut socket: WebSocket) -> Result<Gateway, Ended> {
        let deadline = Instant::now() + OPEN_LIMIT;
        loop {
            let message = timeout_at(deadline, socket.next()).await;
            let message = message.map_err(|_| again("Discord's gateway did not begin", None))?;
            let Some(frame) = frame(message)? else { continue };
            if frame.op == 10 {
                let interval = frame.d["heartbeat_interval"].as_u64().unwrap_or(41_250);
                let interval = Duration::from_millis(interval).clamp(INTERVALS.0, INTERVALS.1);
                // The first heartbeats of many clients are spread over the interval.
                let next_beat = Instant::now() + interval.mul_f64(random());
                return Ok(Gateway { socket, interval, next_beat, is_confirmed: true, is_behind: false });
            }
        }
    }

    /// Reads the next frame that is an event. Sends heartbeats meanwhile. `None` means that a heartbeat was sent.
    pub(super) async fn next(&mut self, seq: Option<u64>) -> Result<Option<Frame>, Ended> {
        loop {
            let message = match timeout_at(self.next_beat, self.socket.next()).await {
                Ok(message) => message,
                Err(_) => {
                    self.beat(seq).await?;
                    return Ok(None);
                }
            };
            let Some(frame) = frame(message)? else { continue };
            match frame.op {
                0 => return Ok(Some(frame)),
                1 => self.write(&json!({ "op": 1, "d": seq })).await?,
                7 => {
                    self.close().await;
                    return Err(again("Discord asks for a new connection", Some(pause(0.0, 1.0))));
                }
                9 => {
                    self.close().await;
                    let after = Some(pause(1.0, 5.0));
                    let why = "Discord ended the session".to_owned();
                    let err = ListenError::Again { why, after };
                    return Err(match frame.d.as_bool() {
                        Some(true) => Ended::Resume(err),
                        _ => Ended::NewSession(err),
                    });
                }
                11 => self.is_confirmed = true,
                _ => {}
            }
        }
    }

    /// Sends heartbeats until `room` is there. Frames are not read meanwhile.
    pub(super) async fn wait_for<T>(
        &mut self,
        seq: Option<u64>,
        room: impl Future<Output = T>,
    ) -> Result<T, Ended> {
        let mut room = std::pin::pin!(room);
        loop {
            match timeout_at(self.next_beat, &mut room).await {
                Ok(room) => return Ok(room),
                Err(_) => {
                    self.is_behind = true;
                    self.beat(seq).await?;
                }
            }
        }
    }

    async fn beat(&mut self, seq: Option<u64>) -> Result<(), Ended> {
        if !self.is_confirmed && !self.is_behind {
            self.close().await;
            return Err(again("Discord did not confirm a heartbeat", None));
        }
        self.next_beat = Instant::now() + self.interval;
        (self.is_confirmed, self.is_behind) = (false, false);
        self.write(&json!({ "op": 1, "d": seq })).await
    }

    async fn write(&mut self, frame: &Value) -> Result<(), Ended> {
        match timeout(WRITE_LIMIT, self.socket.send(Message::text(frame.to_string()))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(err)) => Err(again(&format!("Discord's gateway failed: {err}"), None)),
            Err(_) => Err(again("Discord's gateway takes nothing", None)),
        }
    }

    /// Closes the connection but not the session.
    async fn close(&mut self) {
        let code = CloseCode::try_from(KEEPS_SESSION).ok();
        let _ = timeout(Duration::from_secs(1), self.socket.send(Message::close(code, ""))).await;
    }
}

/// Reads a frame. `None` stands for control frames and frames that are not understood.
fn frame(message: Option<Result<Message, tokio_websockets::Error>>) -> Result<Option<Frame>, Ended> {
    match message {
        None => Err(again("Discord closed the connection", None)),
        Some(Err(err)) => Err(again(&format!("Discord's gateway failed: {err}"), None)),
        Some(Ok(message)) => match message.as_close() {
            Some((code, _)) => Err(closed(code.into())),
            None if message.is_text() => Ok(serde_json::from_slice(message.as_payload()).ok()),
            None => Ok(None),
        },
    }
}

/// What a close code means.
fn closed(code: u16) -> Ended {
    let refused = |why: String| Ended::NewSession(ListenError::Refused(why));
    let why = format!("Discord closed the connection with code {code}");
    match code {
        4004 => {
            let fix = ApiError::Refused { doing: "connect", status: 401, code: 0 };
            Ended::NewSession(ListenError::NeedsLogin(format!("{fix}: {}", fix.fix())))
        }
        4013 | 4014 => refused(message_content_is_off()),
        4010 | 4011 => refused(format!(
            "{why}: the bot is in too many servers for one connection, which is not supported"
        )),
        4012 => refused(format!("{why}: this version of Gantry is too old for Discord; install a newer one")),
        1000 | 1001 | 4003 | 4007 | 4009 => Ended::NewSession(ListenError::Again { why, after: None }),
        // Too many frames.
        4008 => again(&why, Some(Duration::from_secs(60))),
        _ => again(&why, None),
    }
}

pub(super) fn message_content_is_off() -> String {
    format!(
        "the Message Content intent is off: open {PORTAL}, choose the application, Bot, Privileged Gateway Intents, and \
         switch Message Content Intent on"
    )
}

pub(super) fn again(why: &str, after: Option<Duration>) -> Ended {
    Ended::Resume(ListenError::Again { why: why.to_owned(), after })
}

/// A failed request does not end the session.
pub(super) fn stop(err: ApiError) -> Ended {
    Ended::Resume(err.stops_listening())
}

fn pause(from: f64, to: f64) -> Duration {
    Duration::from_secs_f64(from + (to - from) * random())
}

/// A number from 0 to 1.
fn random() -> f64 {
    f64::from((uuid::Uuid::new_v4().as_u128() & 0xffff) as u16) / 65_536.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_codes_say_what_comes_next() {
        for code in [4010, 4011, 4012, 4013, 4014] {
            assert!(matches!(closed(code), Ended::NewSession(ListenError::Refused(_))), "{code}");
        }
        assert!(
            matches!(closed(4004), Ended::NewSession(ListenError::NeedsLogin(why)) if why.contains("Reset Token"))
        );
        for code in [1000, 1001, 4003, 4007, 4009] {
            assert!(matches!(closed(code), Ended::NewSession(ListenError::Again { .. })), "{code}");
        }
        for code in [1006, 1011, 4000, 4001, 4002, 4005, 4008, 4999] {
            assert!(matches!(closed(code), Ended::Resume(ListenError::Again { .. })), "{code}");
        }
    }

    #[test]
    fn pauses_are_within_their_limits() {
        for _ in 0..200 {
            let pause = pause(1.0, 5.0).as_secs_f64();
            assert!((1.0..5.0).contains(&pause), "{pause}");
        }
    }
}
