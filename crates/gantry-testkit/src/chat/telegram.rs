//! A fake of Telegram's Bot API.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::small_http::{Answer, Request, multipart, serve};

pub const TOKEN: &str = "123456789:AAEfakefakefakefakefakefakefakefake";
pub const BOT_ID: i64 = 123_456_789;
pub const BOT_NAME: &str = "gantry_test_bot";

/// What happens to the next call of a method.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The call is rejected and has no effect.
    Reject(u16, Value),
    /// The call has its effect, and the answer is an error.
    FailAfter(u16),
    /// The call has its effect, and the connection ends.
    CutAfter,
    /// Nothing is ever answered.
    Mute,
}

#[derive(Default)]
struct State {
    updates: VecDeque<Value>,
    next_update: i64,
    next_message: i64,
    calls: Vec<(String, Value)>,
    faults: VecDeque<(String, Fault)>,
    files: BTreeMap<String, Vec<u8>>,
    paths: BTreeMap<String, String>,
    webhook: String,
    polls: usize,
    /// Calls that a real server would reject.
    invalid: Vec<String>,
}

#[derive(Clone)]
pub struct FakeTelegram {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    arrived: Arc<Notify>,
}

impl FakeTelegram {
    pub async fn start() -> FakeTelegram {
        let state = Arc::new(Mutex::new(State { next_update: 1000, next_message: 1, ..State::default() }));
        let arrived = Arc::new(Notify::new());
        let (shared, notify) = (Arc::clone(&state), Arc::clone(&arrived));
        let address = serve(move |request| handle(Arc::clone(&shared), Arc::clone(&notify), request)).await;
        FakeTelegram { address, state, arrived }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds an update of one kind, such as `message`. Returns its id.
    pub fn push(&self, kind: &str, value: Value) -> i64 {
        let mut state = self.state.lock().unwrap();
        let id = state.next_update;
        state.next_update += 1;
        state.updates.push_back(json!({ "update_id": id, kind: value }));
        drop(state);
        self.arrived.notify_waiters();
        id
    }

    /// Adds a text in a chat of two.
    pub fn push_text(&self, text: &str) -> i64 {
        self.push("message", private(json!({ "text": text })))
    }

    pub fn fail_next(&self, method: &str, fault: Fault) {
        self.state.lock().unwrap().faults.push_back((method.to_owned(), fault));
    }

    /// The fields of all calls of a method so far.
    pub fn calls(&self, method: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        state.calls.iter().filter(|(name, _)| name == method).map(|(_, fields)| fields.clone()).collect()
    }

    /// What a real server would have rejected.
    pub fn invalid(&self) -> Vec<String> {
        self.state.lock().unwrap().invalid.clone()
    }

    pub fn add_file(&self, id: &str, path: &str, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap();
        state.paths.insert(id.to_owned(), path.to_owned());
        state.files.insert(path.to_owned(), bytes.to_vec());
    }

    pub fn set_webhook(&self, url: &str) {
        self.state.lock().unwrap().webhook = url.to_owned();
    }

    /// The number of updates that are not confirmed.
    pub fn backlog(&self) -> usize {
        self.state.lock().unwrap().updates.len()
    }
}

/// A message from Ada in a chat of two, with further fields.
pub fn private(fields: Value) -> Value {
    message(json!({ "id": 42, "type": "private", "first_name": "Ada" }), fields)
}

/// A message from Ada in a chat.
pub fn message(chat: Value, fields: Value) -> Value {
    let mut message = json!({
        "message_id": 7,
        "date": 1_700_000_000,
        "chat": chat,
        "from": { "id": 42, "is_bot": false, "first_name": "Ada", "last_name": "L" },
    });
    for (key, value) in fields.as_object().cloned().unwrap_or_default() {
        message[key] = value;
    }
    message
}

async fn handle(state: Arc<Mutex<State>>, arrived: Arc<Notify>, request: Request) -> Answer {
    let path = request.path.split('?').next().unwrap_or_default().to_owned();
    let error = |code: u16, text: &str| {
        Answer::json(code, &json!({ "ok": false, "error_code": code, "description": text }))
    };
    if let Some(file) = path.strip_prefix(&format!("/file/bot{TOKEN}/")) {
        return match state.lock().unwrap().files.get(file) {
            Some(body) => {
                let content_type = "application/octet-stream".to_owned();
                Answer::bytes(200, &content_type, body.clone())
            }
            None => error(404, "Not Found"),
        };
    }
    let Some((token, method)) = path.strip_prefix("/bot").and_then(|rest| rest.split_once('/')) else {
        return error(404, "Not Found");
    };
    if token != TOKEN {
        return error(401, "Unauthorized");
    }
    let fields = fields(&request);
    let fault = {
        let mut state = state.lock().unwrap();
        let at = state.faults.iter().position(|(name, _)| name == method);
        at.and_then(|at| state.faults.remove(at)).map(|(_, fault)| fault)
    };
    match &fault {
        Some(Fault::Reject(code, answer)) => {
            let mut body = json!({ "ok": false, "error_code": code, "description": "Bad Request: scripted" });
            for (key, value) in answer.as_object().cloned().unwrap_or_default() {
                body[key] = value;
            }
            return Answer::json(*code, &body);
        }
        Some(Fault::Mute) => return Answer::Mute,
        _ => {}
    }
    let result = match method {
        "getUpdates" => get_updates(&state, &arrived, &fields).await,
        _ => effect(&mut state.lock().unwrap(), method, &fields),
    };
    state.lock().unwrap().calls.push((method.to_owned(), fields));
    match (fault, result) {
        (Some(Fault::FailAfter(code)), _) => error(code, "Internal Server Error"),
        (Some(Fault::CutAfter), _) => Answer::Cut,
        (_, Ok(result)) => Answer::json(200, &json!({ "ok": true, "result": result })),
        (_, Err((code, why))) => {
            state.lock().unwrap().invalid.push(format!("{method}: {why}"));
            error(code, &why)
        }
    }
}

/// JSON, a form, or multipart with JSON in its fields.
fn fields(request: &Request) -> Value {
    let kind = request.header("content-type").unwrap_or_default();
    if kind.starts_with("application/json") {
        return serde_json::from_slice(&request.body).unwrap_or_default();
    }
    let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let mut fields = Map::new();
    if kind.starts_with("multipart/") {
        for (name, file, value) in multipart(request) {
            let text = String::from_utf8_lossy(&value).into_owned();
            let value = match file {
                Some(file) => json!({ "file_name": file, "size": value.len(), "content": text }),
                None if name == "caption" || name == "text" => json!(text),
                None => read(&text),
            };
            fields.insert(name, value);
        }
    } else {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        for (name, value) in body.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decoded(value);
            let value = if name == "text" { json!(value) } else { read(&value) };
            fields.insert(decoded(name), value);
        }
    }
    Value::Object(fields)
}

fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                out.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

type Outcome = Result<Value, (u16, String)>;

async fn get_updates(state: &Mutex<State>, arrived: &Notify, fields: &Value) -> Outcome {
    let seconds = fields["timeout"].as_u64().unwrap_or(0).min(60);
    let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
    let mine = {
        let mut state = state.lock().unwrap();
        if !state.webhook.is_empty() {
            return Err((409, "Conflict: can't use getUpdates method while webhook is active".to_owned()));
        }
        if let Some(offset) = fields["offset"].as_i64() {
            state.updates.retain(|update| update["update_id"].as_i64() >= Some(offset));
        }
        state.polls += 1;
        state.polls
    };
    loop {
        let notified = arrived.notified();
        {
            let state = state.lock().unwrap();
            if state.polls != mine {
                return Err((409, "Conflict: terminated by other getUpdates request".to_owned()));
            }
            if !state.updates.is_empty() {
                return Ok(state.updates.iter().take(100).cloned().collect());
            }
        }
        if tokio::time::timeout_at(until, notified).await.is_err() {
            return Ok(json!([]));
        }
    }
}

fn effect(state: &mut State, method: &str, fields: &Value) -> Outcome {
    let bad = |why: &str| Err((400, format!("Bad Request: {why}")));
    let me = json!({
        "id": BOT_ID, "is_bot": true, "first_name": "Gantry", "username": BOT_NAME, "can_join_groups": true,
        "can_read_all_group_messages": false, "supports_inline_queries": false,
    });
    match method {
        "getMe" => Ok(me),
        "getWebhookInfo" => {
            Ok(json!({ "url": state.webhook, "has_custom_certificate": false, "pending_update_count": 0 }))
        }
        "deleteWebhook" => {
            state.webhook.clear();
            Ok(json!(true))
        }
        "answerCallbackQuery" => {
            if fields["text"].as_str().is_some_and(|text| text.chars().count() > 200) {
                return bad("MESSAGE_TOO_LONG");
            }
            Ok(json!(true))
        }
        "sendChatAction" => Ok(json!(true)),
        "getFile" => {
            let id = fields["file_id"].as_str().unwrap_or_default();
            match state.paths.get(id) {
                Some(path) => Ok(json!({ "file_id": id, "file_unique_id": "u", "file_path": path })),
                None => bad("invalid file_id"),
            }
        }
        "sendMessage" | "editMessageText" | "sendDocument" | "sendPhoto" => {
            let is_file = method == "sendDocument" || method == "sendPhoto";
            let (text, entities, limit) = match is_file {
                true => (&fields["caption"], &fields["caption_entities"], 1024),
                false => (&fields["text"], &fields["entities"], 4096),
            };
            let text = text.as_str().unwrap_or_default();
            let length = text.encode_utf16().count();
            let Some(chat) = fields["chat_id"].as_i64() else { return bad("chat not found") };
            if text.is_empty() && !is_file {
                return bad("message text is empty");
            }
            if length > limit {
                return bad("message is too long");
            }
            for entity in entities.as_array().into_iter().flatten() {
                let (offset, size) = (entity["offset"].as_u64(), entity["length"].as_u64());
                let end = offset.zip(size).map(|(offset, size)| offset + size);
                if end.is_none_or(|end| end > length as u64) {
                    return bad("can't parse entities: out of range");
                }
            }
            let rows = fields["reply_markup"]["inline_keyboard"].as_array().into_iter().flatten();
            for button in rows.filter_map(Value::as_array).flatten() {
                let data = button["callback_data"].as_str().unwrap_or_default().len();
                if !(1..=64).contains(&data) {
                    return bad("BUTTON_DATA_INVALID");
                }
            }
            let id = match fields["message_id"].as_i64() {
                Some(id) => id,
                None => {
                    state.next_message += 1;
                    state.next_message
                }
            };
            let mut sent = json!({
                "message_id": id, "date": 1_700_000_000, "chat": { "id": chat, "type": "private", "first_name": "A" },
                "from": me,
            });
            if is_file {
                sent["document"] = json!({ "file_id": "sent", "file_unique_id": "u" });
                sent["caption"] = json!(text);
            } else {
                sent["text"] = json!(text);
                sent["entities"] = entities.as_array().cloned().unwrap_or_default().into();
            }
            Ok(sent)
        }
        _ => Err((404, format!("Not Found: method {method}"))),
    }
}
