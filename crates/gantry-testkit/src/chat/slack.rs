//! A Slack workspace: the Web API and Socket Mode. It accepts what Slack accepts, in the forms in which Slack takes it.

mod blocks;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_websockets::{Message, ServerBuilder};

use super::exchange::{Answer, Call};

pub const BOT_TOKEN: &str = "xoxb-0000-SECRETBOT";
pub const APP_TOKEN: &str = "xapp-1-A0000-SECRETAPP";
pub const BOT_USER: &str = "UBOT00001";
pub const BOT_ID: &str = "BBOT00001";
/// What the bot token may do.
pub const SCOPES: &str =
    "chat:write,app_mentions:read,im:history,channels:history,files:read,files:write,users:read";
const PING: Duration = Duration::from_millis(100);
/// Methods that take JSON. Slack reads the arguments of others from forms only.
const TAKE_JSON: &[&str] =
    &["auth.test", "chat.postMessage", "chat.postEphemeral", "chat.update", "files.completeUploadExternal"];

/// What goes wrong with the next call of a method.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Status 429 with this many seconds.
    Limited(u64),
    /// A status, and nothing happens.
    Before(u16),
    /// A status, after the call had its effect.
    After(u16),
    /// `ok: false` with this code.
    Refused(&'static str),
    /// The connection ends without an answer, after the call had its effect.
    Cut,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub name: String,
    pub bytes: Vec<u8>,
    pub channel: String,
    pub thread: Option<String>,
    pub comment: Option<String>,
}

#[derive(Default)]
struct World {
    /// All calls: the method and its fields.
    calls: Vec<(String, Map<String, Value>)>,
    /// Messages in channels, as stored.
    posts: Vec<Value>,
    ephemerals: Vec<Map<String, Value>>,
    pending_uploads: HashMap<String, (String, usize, Option<Vec<u8>>)>,
    uploads: Vec<Upload>,
    files: HashMap<String, (String, Vec<u8>)>,
    faults: VecDeque<(String, Fault)>,
    sockets: Vec<mpsc::UnboundedSender<Order>>,
    sockets_opened: usize,
    tickets: Vec<String>,
    /// Envelopes that nobody confirmed, in order.
    unconfirmed: Vec<Value>,
    confirmed: Vec<String>,
    next: u64,
    is_mute: bool,
    is_silent: bool,
    socket_host: Option<String>,
    scopes: Option<String>,
    revoked: bool,
}

enum Order {
    Text(String),
    Close,
    Cut,
}

#[derive(Clone)]
pub struct FakeSlack {
    pub address: SocketAddr,
    world: Arc<Mutex<World>>,
}

impl FakeSlack {
    pub async fn start() -> FakeSlack {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = FakeSlack { address: listener.local_addr().unwrap(), world: Arc::default() };
        let served = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(served.clone().serve(stream));
            }
        });
        fake
    }

    pub fn api_url(&self) -> String {
        format!("http://{}/api/", self.address)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Sends an event to one open socket, or to the next one. It returns the envelope's id.
    pub fn push(&self, kind: &str, payload: Value) -> String {
        let mut world = self.world();
        world.next += 1;
        let envelope = format!("envelope-{}", world.next);
        let frame = json!({
            "type": kind,
            "envelope_id": envelope,
            "payload": payload,
            "accepts_response_payload": kind != "events_api",
        });
        world.unconfirmed.push(frame.clone());
        if let Some(socket) = world.sockets.last() {
            let _ = socket.send(Order::Text(frame.to_string()));
        }
        envelope
    }

    /// Sends a message event.
    pub fn say(&self, event: Value) -> String {
        let number = self.world().next + 1;
        self.push(
            "events_api",
            json!({
                "token": "verification",
                "team_id": "T00000001",
                "api_app_id": "A00000001",
                "event": event,
                "type": "event_callback",
                "event_id": format!("Ev{number:08}"),
                "event_time": 1_700_000_000,
            }),
        )
    }

    /// Sends a frame that is not an event.
    pub fn frame(&self, frame: &Value) {
        self.raw(&frame.to_string());
    }

    pub fn raw(&self, text: &str) {
        let world = self.world();
        for socket in &world.sockets {
            let _ = socket.send(Order::Text(text.to_owned()));
        }
    }

    pub fn close_sockets(&self) {
        for socket in self.world().sockets.drain(..) {
            let _ = socket.send(Order::Close);
        }
    }

    pub fn cut_sockets(&self) {
        for socket in self.world().sockets.drain(..) {
            let _ = socket.send(Order::Cut);
        }
    }

    pub fn fail(&self, method: &str, fault: Fault) {
        self.world().faults.push_back((method.to_owned(), fault));
    }

    /// Sends no more pings.
    pub fn mute(&self) {
        self.world().is_mute = true;
    }

    /// Sockets open without a `hello`.
    pub fn omit_hello(&self) {
        self.world().is_silent = true;
    }

    pub fn revoke(&self) {
        self.world().revoked = true;
    }

    pub fn grant(&self, scopes: &str) {
        self.world().scopes = Some(scopes.to_owned());
    }

    /// Hands out sockets at another host.
    pub fn redirect_sockets(&self, base: &str) {
        self.world().socket_host = Some(base.to_owned());
    }

    /// Stores a file, and returns its address.
    pub fn store_file(&self, name: &str, mime: &str, bytes: &[u8]) -> String {
        let path = format!("/files-pri/T00000001-F{:08}/{name}", self.world().files.len() + 1);
        self.world().files.insert(path.clone(), (mime.to_owned(), bytes.to_vec()));
        format!("http://{}{path}", self.address)
    }

    pub fn confirmed(&self) -> Vec<String> {
        self.world().confirmed.clone()
    }

    pub fn posts(&self) -> Vec<Value> {
        self.world().posts.clone()
    }

    pub fn ephemerals(&self) -> Vec<Map<String, Value>> {
        self.world().ephemerals.clone()
    }

    pub fn uploads(&self) -> Vec<Upload> {
        self.world().uploads.clone()
    }

    pub fn sockets_opened(&self) -> usize {
        self.world().sockets_opened
    }

    pub fn sockets(&self) -> usize {
        self.world().sockets.iter().filter(|socket| !socket.is_closed()).count()
    }

    /// How often a method was called.
    pub fn calls(&self, method: &str) -> Vec<Map<String, Value>> {
        let world = self.world();
        world.calls.iter().filter(|(name, _)| name == method).map(|(_, fields)| fields.clone()).collect()
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut start = [0; 10];
        if stream.peek(&mut start).await.is_ok() && start.starts_with(b"GET /link/") {
            self.socket(stream).await;
            return;
        }
        while let Ok(Some(call)) = Call::read(&mut stream).await {
            let Some(answer) = self.answer(&call) else { return };
            if answer.write(&mut stream).await.is_err() {
                return;
            }
        }
    }

    async fn socket(&self, stream: TcpStream) {
        let Ok((request, mut socket)) = ServerBuilder::new().accept(stream).await else { return };
        let ticket = request.uri().query().unwrap_or_default().to_owned();
        let (orders_tx, mut orders) = mpsc::unbounded_channel();
        {
            let mut world = self.world();
            let known = world.tickets.iter().position(|known| *known == ticket);
            let Some(known) = known else { return };
            world.tickets.remove(known);
            world.sockets_opened += 1;
            if !world.is_silent {
                let hello = json!({
                    "type": "hello",
                    "num_connections": world.sockets.len() + 1,
                    "connection_info": { "app_id": "A00000001" },
                    "debug_info": { "host": "applink-1", "approximate_connection_time": 18060 },
                });
                let _ = orders_tx.send(Order::Text(hello.to_string()));
            }
            for frame in &world.unconfirmed {
                let _ = orders_tx.send(Order::Text(frame.to_string()));
            }
            world.sockets.push(orders_tx);
        }
        let mut pings = tokio::time::interval(PING);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Text(text)) => {
                        if socket.send(Message::text(text)).await.is_err() {
                            return;
                        }
                    }
                    Some(Order::Close) => {
                        let _ = socket.close().await;
                        return;
                    }
                    Some(Order::Cut) | None => return,
                },
                message = socket.next() => match message {
                    Some(Ok(message)) if message.is_text() => self.confirm(message.as_text().unwrap_or_default()),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
                _ = pings.tick() => {
                    let is_mute = self.world().is_mute;
                    if !is_mute && socket.send(Message::ping("ping")).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn confirm(&self, text: &str) {
        let Ok(answer) = serde_json::from_str::<Value>(text) else { return };
        let Some(envelope) = answer["envelope_id"].as_str() else { return };
        let mut world = self.world();
        world.unconfirmed.retain(|frame| frame["envelope_id"] != envelope);
        world.confirmed.push(envelope.to_owned());
    }

    /// Returns none to cut the connection.
    fn answer(&self, call: &Call) -> Option<Answer> {
        if let Some(method) = call.path.strip_prefix("/api/") {
            return self.method(method, call);
        }
        if let Some(id) = call.path.strip_prefix("/upload/") {
            let mut world = self.world();
            let Some((_, length, bytes)) = world.pending_uploads.get_mut(id) else {
                return Some(Answer::bytes(404, "text/plain", b"no such upload".to_vec()));
            };
            if call.method != "POST" || call.body.len() != *length {
                return Some(Answer::bytes(400, "text/plain", b"wrong length".to_vec()));
            }
            *bytes = Some(call.body.clone());
            return Some(Answer::bytes(200, "text/plain", format!("OK - {length}").into_bytes()));
        }
        let world = self.world();
        let bearer = format!("Bearer {BOT_TOKEN}");
        let may_read = world.scopes.as_deref().unwrap_or(SCOPES).contains("files:read");
        Some(match world.files.get(&call.path) {
            Some((mime, bytes)) if may_read && call.header("authorization") == Some(&bearer) => {
                Answer::bytes(200, mime, bytes.clone())
            }
            Some(_) => Answer::bytes(200, "text/html; charset=utf-8", b"<html>Sign in</html>".to_vec()),
            None => Answer::bytes(404, "text/html", b"not found".to_vec()),
        })
    }

    fn method(&self, method: &str, call: &Call) -> Option<Answer> {
        let fields = match call.is_json() && !TAKE_JSON.contains(&method) {
            true => Map::new(),
            false => call.fields(),
        };
        let fault = {
            let mut world = self.world();
            world.calls.push((method.to_owned(), fields.clone()));
            let at = world.faults.iter().position(|(name, _)| name == method);
            at.and_then(|at| world.faults.remove(at)).map(|(_, fault)| fault)
        };
        match fault {
            Some(Fault::Limited(seconds)) => {
                let body = json!({ "ok": false, "error": "ratelimited" });
                return Some(Answer::json(429, &body).with("Retry-After", &seconds.to_string()));
            }
            Some(Fault::Before(status)) => {
                return Some(Answer::bytes(status, "text/html", b"<html>".to_vec()));
            }
            Some(Fault::Refused(code)) => return Some(ok_false(code)),
            Some(Fault::After(_) | Fault::Cut) | None => {}
        }
        let answer = match self.token_error(method, call) {
            Some(code) => ok_false(code),
            None => match self.effect(method, fields) {
                Ok(mut body) => {
                    body["ok"] = Value::Bool(true);
                    Answer::json(200, &body)
                }
                Err(code) => ok_false(&code),
            },
        };
        let scopes = self.world().scopes.clone().unwrap_or_else(|| SCOPES.to_owned());
        match fault {
            Some(Fault::After(status)) => Some(Answer::bytes(status, "text/html", b"<html>".to_vec())),
            Some(Fault::Cut) => None,
            _ => Some(answer.with("x-oauth-scopes", &scopes)),
        }
    }

    fn token_error(&self, method: &str, call: &Call) -> Option<&'static str> {
        let token = call.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let expected = if method == "apps.connections.open" { APP_TOKEN } else { BOT_TOKEN };
        match token {
            None => Some("not_authed"),
            Some(_) if self.world().revoked => Some("token_revoked"),
            Some(token) if token == expected => None,
            Some(BOT_TOKEN | APP_TOKEN) => Some("not_allowed_token_type"),
            Some(_) => Some("invalid_auth"),
        }
    }

    fn effect(&self, method: &str, fields: Map<String, Value>) -> Result<Value, String> {
        let fields = decoded(fields);
        match method {
            "api.test" => Ok(json!({})),
            "auth.test" => Ok(json!({
                "url": "https://example.slack.com/", "team": "Example", "user": "gantry",
                "team_id": "T00000001", "user_id": BOT_USER, "bot_id": BOT_ID,
            })),
            "apps.connections.open" => {
                let mut world = self.world();
                world.next += 1;
                let ticket = format!("ticket=SECRETTICKET{}&app_id=A1", world.next);
                world.tickets.push(ticket.clone());
                let base = world.socket_host.clone().unwrap_or_else(|| format!("ws://{}", self.address));
                Ok(json!({ "url": format!("{base}/link/?{ticket}") }))
            }
            "chat.postMessage" => self.post(fields),
            "chat.postEphemeral" => {
                channel(&fields)?;
                text(&fields, "user")?;
                text(&fields, "text")?;
                self.world().ephemerals.push(fields);
                Ok(json!({ "message_ts": "1700000001.000001" }))
            }
            "chat.update" => self.update(fields),
            "users.info" => {
                let user = text(&fields, "user")?;
                if user.starts_with("UGONE") {
                    return Err("user_not_found".to_owned());
                }
                Ok(json!({ "user": {
                    "id": user, "name": "ada", "real_name": "Ada Lovelace", "is_bot": false, "deleted": false,
                } }))
            }
            "conversations.history" | "conversations.replies" => self.history(method, &fields),
            "files.getUploadURLExternal" => {
                let name = text(&fields, "filename")?;
                let length = text(&fields, "length")?.parse().map_err(|_| "invalid_arguments")?;
                let mut world = self.world();
                let id = format!("F{:08}", world.pending_uploads.len() + 1);
                world.pending_uploads.insert(id.clone(), (name, length, None));
                Ok(json!({ "upload_url": format!("http://{}/upload/{id}", self.address), "file_id": id }))
            }
            "files.completeUploadExternal" => self.complete(fields),
            _ => Err("unknown_method".to_owned()),
        }
    }

    fn post(&self, mut fields: Map<String, Value>) -> Result<Value, String> {
        let channel = channel(&fields)?;
        let has_text = fields.get("text").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        check_message(&fields, has_text)?;
        if let Some(thread) = fields.get("thread_ts")
            && !thread.as_str().is_some_and(is_timestamp)
        {
            return Err("invalid_thread_ts".to_owned());
        }
        let mut world = self.world();
        world.next += 1;
        let ts = format!("1700000000.{:06}", world.next);
        fields.insert("ts".to_owned(), json!(ts));
        fields.insert("bot_id".to_owned(), json!(BOT_ID));
        fields.insert("user".to_owned(), json!(BOT_USER));
        let message = Value::Object(fields);
        world.posts.push(message.clone());
        Ok(json!({ "channel": channel, "ts": ts, "message": message }))
    }

    fn update(&self, fields: Map<String, Value>) -> Result<Value, String> {
        let channel = channel(&fields)?;
        let ts = text(&fields, "ts")?;
        let has_text = fields.get("text").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        check_message(&fields, has_text)?;
        let mut world = self.world();
        let post = world
            .posts
            .iter_mut()
            .find(|post| post["ts"] == ts.as_str() && post["channel"] == channel.as_str());
        let post = post.ok_or("message_not_found")?;
        post["text"] = fields.get("text").cloned().unwrap_or_default();
        // Blocks stay unless the update has the field.
        if let Some(blocks) = fields.get("blocks") {
            post["blocks"] = blocks.clone();
        }
        Ok(json!({ "channel": channel, "ts": ts, "text": post["text"], "message": post }))
    }

    fn history(&self, method: &str, fields: &Map<String, Value>) -> Result<Value, String> {
        let channel = channel(fields)?;
        let shows_metadata = matches!(fields.get("include_all_metadata"), Some(value) if value == "true" || value == "1" || value == true);
        let thread = if method == "conversations.replies" { Some(text(fields, "ts")?) } else { None };
        let mut messages: Vec<Value> = self
            .posts()
            .into_iter()
            .filter(|post| post["channel"] == channel.as_str())
            .filter(|post| match &thread {
                Some(thread) => post["thread_ts"] == thread.as_str() || post["ts"] == thread.as_str(),
                None => post["thread_ts"].is_null(),
            })
            .collect();
        for message in &mut messages {
            if let (false, Some(message)) = (shows_metadata, message.as_object_mut()) {
                message.remove("metadata");
            }
        }
        Ok(json!({ "messages": messages, "has_more": false }))
    }

    fn complete(&self, fields: Map<String, Value>) -> Result<Value, String> {
        let files = fields.get("files").and_then(Value::as_array).cloned().ok_or("invalid_arguments")?;
        let mut world = self.world();
        let mut shared = Vec::new();
        for file in files {
            let id = file["id"].as_str().ok_or("invalid_arguments")?.to_owned();
            let (name, _, bytes) = world.pending_uploads.remove(&id).ok_or("file_not_found")?;
            let optional = |field: &str| fields.get(field).and_then(Value::as_str).map(str::to_owned);
            world.uploads.push(Upload {
                name,
                bytes: bytes.ok_or("file_not_found")?,
                channel: optional("channel_id").or_else(|| optional("channels")).unwrap_or_default(),
                thread: optional("thread_ts"),
                comment: optional("initial_comment"),
            });
            shared.push(json!({ "id": id, "title": file["title"] }));
        }
        Ok(json!({ "files": shared }))
    }
}

fn ok_false(code: &str) -> Answer {
    let mut body = json!({ "ok": false, "error": code });
    if code == "missing_scope" {
        body["needed"] = json!("chat:write");
        body["provided"] = json!("im:history");
    }
    Answer::json(200, &body)
}

/// Forms hold structures as JSON texts.
fn decoded(mut fields: Map<String, Value>) -> Map<String, Value> {
    for name in ["blocks", "files", "metadata", "attachments"] {
        if let Some(Value::String(text)) = fields.get(name)
            && let Ok(value) = serde_json::from_str::<Value>(text)
        {
            fields.insert(name.to_owned(), value);
        }
    }
    fields
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<String, String> {
    match fields.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        _ => Err("invalid_arguments".to_owned()),
    }
}

fn channel(fields: &Map<String, Value>) -> Result<String, String> {
    let channel = text(fields, "channel").map_err(|_| "channel_not_found")?;
    let is_known = channel.starts_with(['C', 'D', 'G']) && channel.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_known || channel.starts_with("CGONE") {
        return Err("channel_not_found".to_owned());
    }
    if channel.starts_with("CFOREIGN") {
        return Err("not_in_channel".to_owned());
    }
    Ok(channel)
}

fn check_message(fields: &Map<String, Value>, has_text: bool) -> Result<(), String> {
    let has_blocks = fields.get("blocks").and_then(Value::as_array).is_some_and(|blocks| !blocks.is_empty());
    if !has_text && !has_blocks {
        return Err("no_text".to_owned());
    }
    if fields.get("text").and_then(Value::as_str).is_some_and(|text| text.chars().count() > 40_000) {
        return Err("msg_too_long".to_owned());
    }
    if let Some(metadata) = fields.get("metadata") {
        let is_valid = metadata["event_type"].is_string() && metadata["event_payload"].is_object();
        if !is_valid {
            return Err("invalid_metadata_format".to_owned());
        }
    }
    fields.get("blocks").map_or(Ok(()), blocks::check)
}

fn is_timestamp(text: &str) -> bool {
    text.split_once('.').is_some_and(|(seconds, rest)| {
        seconds.len() == 10
            && rest.len() == 6
            && (seconds.to_owned() + rest).chars().all(|c| c.is_ascii_digit())
    })
}
