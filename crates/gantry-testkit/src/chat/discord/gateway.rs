//! The gateway: sessions that survive their connections for a while.

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_websockets::{CloseCode, Message, ServerBuilder};

use super::objects::own_user;
use super::{APPLICATION, BOT, DIRECT, FakeDiscord, GUILD, Order, Session, TOKEN, World};

const GUILDS: u64 = 1;
const GUILD_MESSAGES: u64 = 1 << 9;
const DIRECT_MESSAGES: u64 = 1 << 12;
const MESSAGE_CONTENT: u64 = 1 << 15;
/// All bits that have a meaning.
const KNOWN_INTENTS: u64 = 0b11_0011_1111_1111_1111_1111_1111;
/// The largest payload of a client, and the most frames in a minute.
const MAX_PAYLOAD: usize = 4_096;
const MAX_FRAMES: usize = 120;

/// What a connection does after a frame.
enum Next {
    Continue,
    Close(u16),
}

impl Session {
    pub(super) fn send(&self, text: String) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(Order::Text(text));
        }
    }

    fn dispatch(&mut self, kind: &str, data: &Value) {
        self.seq += 1;
        let frame = json!({ "op": 0, "t": kind, "s": self.seq, "d": data }).to_string();
        self.events.push((self.seq, frame.clone()));
        self.send(frame);
    }
}

impl World {
    pub(super) fn dispatch(&mut self, kind: &str, data: &Value) {
        let is_message = kind.starts_with("MESSAGE_");
        let is_guild = data["guild_id"].is_string();
        for session in self.sessions.values_mut() {
            let needed = match (is_message, is_guild) {
                (true, true) => GUILD_MESSAGES,
                (true, false) => DIRECT_MESSAGES,
                (false, _) => 0,
            };
            if session.intents & needed != needed {
                continue;
            }
            let mut data = data.clone();
            if is_message && is_guild && session.intents & MESSAGE_CONTENT == 0 && !concerns_bot(&data) {
                data["content"] = json!("");
                (data["attachments"], data["embeds"], data["components"]) = (json!([]), json!([]), json!([]));
            }
            session.dispatch(kind, &data);
        }
    }
}

/// The bot's own messages and those that mention it keep their content.
fn concerns_bot(message: &Value) -> bool {
    let mentions = message["mentions"].as_array();
    message["author"]["id"] == BOT || mentions.is_some_and(|users| users.iter().any(|user| user["id"] == BOT))
}

impl FakeDiscord {
    pub(super) async fn socket(&self, stream: TcpStream) {
        let Ok((request, mut socket)) = ServerBuilder::new().accept(stream).await else { return };
        let query = request.uri().query().unwrap_or_default().to_owned();
        let close = |code: u16| Message::close(CloseCode::try_from(code).ok(), "");
        if !query.contains("v=10") || !query.contains("encoding=json") || query.contains("compress") {
            let _ = socket.send(close(4012)).await;
            return;
        }
        let interval = self.world().interval;
        let hello =
            json!({ "op": 10, "d": { "heartbeat_interval": interval, "_trace": [] }, "s": null, "t": null });
        if socket.send(Message::text(hello.to_string())).await.is_err() {
            return;
        }
        let (orders_tx, mut orders) = mpsc::unbounded_channel();
        let mut session: Option<String> = None;
        let mut frames: Vec<Instant> = Vec::new();
        loop {
            let message = tokio::select! {
                biased;
                order = orders.recv() => {
                    match order {
                        Some(Order::Text(text)) => {
                            if socket.send(Message::text(text)).await.is_err() {
                                return;
                            }
                        }
                        Some(Order::Close(code)) => {
                            let _ = socket.send(close(code)).await;
                            return;
                        }
                        Some(Order::Cut) | None => return,
                    }
                    continue;
                }
                message = socket.next() => message,
            };
            let Some(Ok(message)) = message else { return };
            if let Some((code, _)) = message.as_close() {
                let code = u16::from(code);
                let mut world = self.world();
                world.close_codes.push(code);
                if let Some(id) = session.filter(|_| matches!(code, 1000 | 1001)) {
                    world.sessions.remove(&id);
                }
                return;
            }
            let Some(text) = message.as_text() else { continue };
            frames.retain(|at| at.elapsed() < Duration::from_secs(60));
            frames.push(Instant::now());
            let next = match serde_json::from_str::<Value>(text) {
                _ if text.len() > MAX_PAYLOAD => Next::Close(4002),
                _ if frames.len() > MAX_FRAMES => Next::Close(4008),
                Ok(frame) => self.take(&frame, &mut session, &orders_tx),
                Err(_) => Next::Close(4002),
            };
            if let Next::Close(code) = next {
                let _ = socket.send(close(code)).await;
                return;
            }
        }
    }

    fn take(
        &self,
        frame: &Value,
        session: &mut Option<String>,
        socket: &mpsc::UnboundedSender<Order>,
    ) -> Next {
        let data = &frame["d"];
        match frame["op"].as_u64() {
            Some(1) if data.is_null() || data.is_u64() => {
                let mut world = self.world();
                world.heartbeats += 1;
                if !world.is_mute {
                    let _ = socket.send(Order::Text(json!({ "op": 11 }).to_string()));
                }
                Next::Continue
            }
            Some(2) if session.is_some() => Next::Close(4005),
            Some(2) => self.identify(data, session, socket),
            Some(6) => self.resume(data, session, socket),
            Some(3) if session.is_some() => Next::Continue,
            Some(_) if session.is_none() => Next::Close(4003),
            _ => Next::Close(4001),
        }
    }

    fn identify(
        &self,
        data: &Value,
        session: &mut Option<String>,
        socket: &mpsc::UnboundedSender<Order>,
    ) -> Next {
        let mut world = self.world();
        let properties = &data["properties"];
        if !["os", "browser", "device"].iter().all(|field| properties[field].is_string()) {
            return Next::Close(4002);
        }
        if !is_token(&data["token"]) || world.is_revoked || world.identify_budget == 0 {
            return Next::Close(4004);
        }
        let Some(intents) = data["intents"].as_u64().filter(|intents| intents & !KNOWN_INTENTS == 0) else {
            return Next::Close(4013);
        };
        if intents & MESSAGE_CONTENT != 0 && !world.has_content_intent {
            return Next::Close(4014);
        }
        if data.get("shard").is_some_and(|shard| *shard != json!([0, 1])) {
            return Next::Close(4010);
        }
        world.identify_budget -= 1;
        world.identified += 1;
        let id = format!("session{}", world.next_id());
        let url = world.resume_url.clone().unwrap_or_else(|| self.gateway_url());
        let mut begun = Session { intents, seq: 0, events: Vec::new(), socket: Some(socket.clone()) };
        begun.dispatch(
            "READY",
            &json!({
                "v": 10, "user": own_user(), "guilds": [{ "id": GUILD, "unavailable": true }], "session_id": id,
                "resume_gateway_url": url, "session_type": "normal", "private_channels": [], "_trace": [],
                "application": { "id": APPLICATION, "flags": world.flags() }, "shard": [0, 1],
            }),
        );
        if intents & GUILDS != 0 {
            begun.dispatch("GUILD_CREATE", &world.guild());
        }
        world.sessions.insert(id.clone(), begun);
        *session = Some(id);
        Next::Continue
    }

    fn resume(
        &self,
        data: &Value,
        session: &mut Option<String>,
        socket: &mpsc::UnboundedSender<Order>,
    ) -> Next {
        let mut world = self.world();
        if !is_token(&data["token"]) || world.is_revoked {
            return Next::Close(4004);
        }
        let (id, seq) = (data["session_id"].as_str().unwrap_or_default(), data["seq"].as_u64());
        let Some(seq) = seq else { return Next::Close(4007) };
        let Some(known) = world.sessions.get_mut(id) else {
            let _ = socket.send(Order::Text(json!({ "op": 9, "d": false }).to_string()));
            return Next::Continue;
        };
        if seq > known.seq {
            return Next::Close(4007);
        }
        known.socket = Some(socket.clone());
        for (_, frame) in known.events.iter().filter(|(number, _)| *number > seq) {
            let _ = socket.send(Order::Text(frame.clone()));
        }
        known.dispatch("RESUMED", &json!({ "_trace": [] }));
        *session = Some(id.to_owned());
        world.resumed += 1;
        Next::Continue
    }
}

/// The gateway takes the token with and without the word `Bot`.
fn is_token(token: &Value) -> bool {
    token.as_str().is_some_and(|token| token.strip_prefix("Bot ").unwrap_or(token) == TOKEN)
}

impl World {
    /// The flags of the application: whether it may read the content of messages.
    pub(super) fn flags(&self) -> u64 {
        if self.has_content_intent { 1 << 19 } else { 0 }
    }

    /// The chat of two with a person.
    pub(super) fn direct_with(&self, person: &str) -> &'static str {
        if person == super::ADA { DIRECT } else { super::OTHER_DIRECT }
    }
}
