//! The REST interface, with its rate limits.

use std::time::Instant;

use serde_json::{Value, json};

use super::super::exchange::{Answer, Call};
use super::message_check::check;
use super::objects::{application, own_user, timestamp};
use super::{BOT, CHANNEL, FakeDiscord, Fault, GUILD, HIDDEN, TOKEN, World};

const MAX_FILE: usize = 10 << 20;

/// Names and contents.
type Files = Vec<(String, Vec<u8>)>;

/// A refusal: the status and the code.
type Refusal = (u16, u64);

impl FakeDiscord {
    /// Returns none to cut the connection.
    pub(super) fn answer(&self, call: &Call) -> Option<Answer> {
        if call.path.starts_with("/attachments/") {
            return Some(self.file(call));
        }
        let Some(path) = call.path.strip_prefix("/api/v10/") else {
            return Some(refused((404, 0)));
        };
        let path: Vec<&str> = path.split('/').collect();
        let (body, files) = match body(call) {
            Some(body) => body,
            None => return Some(refused((400, 50_109))),
        };
        let name = route(&call.method, &path);
        let fault = {
            let mut world = self.world();
            world.calls.push((name.to_owned(), body.clone()));
            let at = world.faults.iter().position(|(route, _)| route == name);
            at.and_then(|at| world.faults.remove(at)).map(|(_, fault)| fault)
        };
        match fault {
            Some(Fault::Limited(seconds)) => return Some(limited(seconds, false)),
            Some(Fault::LimitedEverywhere(seconds)) => return Some(limited(seconds, true)),
            Some(Fault::Before(status)) => {
                return Some(Answer::bytes(status, "text/html", b"<html>".to_vec()));
            }
            Some(Fault::Refused(status, code)) => return Some(refused((status, code))),
            Some(Fault::After(_) | Fault::Cut) | None => {}
        }
        let has_path_token = matches!(path.first(), Some(&"interactions" | &"webhooks"));
        let mut world = self.world();
        let may_call = call.header("authorization") == Some(&format!("Bot {TOKEN}")) && !world.is_revoked;
        if !may_call && !has_path_token {
            return Some(refused((401, 0)));
        }
        let limit = match (name, path.get(1)) {
            ("send" | "edit", Some(channel)) => Some(world.count(name, channel)),
            _ => None,
        };
        if let Some(Err(wait)) = limit {
            return Some(limited(wait, false));
        }
        let answer = match world.effect(name, &path, call, body, files, self) {
            Ok(Value::Null) => Answer { status: 204, headers: Vec::new(), body: Vec::new() },
            Ok(body) => Answer::json(200, &body),
            Err(refusal) => refused(refusal),
        };
        let answer = match limit {
            Some(Ok((remaining, reset))) => answer
                .with("X-RateLimit-Bucket", &format!("bucket-{name}"))
                .with("X-RateLimit-Limit", &world.bucket.0.to_string())
                .with("X-RateLimit-Remaining", &remaining.to_string())
                .with("X-RateLimit-Reset-After", &format!("{reset:.3}"))
                .with("X-RateLimit-Reset", &format!("{reset:.3}")),
            _ => answer,
        };
        match fault {
            Some(Fault::After(status)) => Some(Answer::bytes(status, "text/html", b"<html>".to_vec())),
            Some(Fault::Cut) => None,
            _ => Some(answer),
        }
    }

    fn file(&self, call: &Call) -> Answer {
        let world = self.world();
        if call.header("authorization").is_some() {
            return Answer::bytes(400, "text/plain", b"files take no credentials".to_vec());
        }
        match (world.redirects.get(&call.path), world.files.get(&call.path)) {
            (Some(to), _) => Answer::bytes(302, "text/plain", Vec::new()).with("Location", to),
            (None, Some(bytes)) => Answer::bytes(200, "application/octet-stream", bytes.clone()),
            (None, None) => Answer::bytes(404, "text/plain", b"no such file".to_vec()),
        }
    }
}

impl World {
    /// Counts a request. Returns how many are left and when the window ends, or how long to wait.
    fn count(&mut self, name: &str, channel: &str) -> Result<(u32, f64), f64> {
        let (limit, length) = self.bucket;
        let window = self.windows.entry(format!("{name}:{channel}")).or_insert((Instant::now(), 0));
        if window.0.elapsed() >= length {
            *window = (Instant::now(), 0);
        }
        let reset = length.saturating_sub(window.0.elapsed()).as_secs_f64();
        if window.1 >= limit {
            return Err(reset);
        }
        window.1 += 1;
        Ok((limit - window.1, reset))
    }

    fn effect(
        &mut self,
        name: &str,
        path: &[&str],
        call: &Call,
        body: Value,
        files: Files,
        fake: &FakeDiscord,
    ) -> Result<Value, Refusal> {
        match (name, path) {
            ("me", _) => Ok(own_user()),
            ("application", _) => Ok(application(self.flags())),
            ("gateway", _) => Ok(json!({
                "url": self.gateway_url.clone().unwrap_or_else(|| fake.gateway_url()), "shards": 1,
                "session_start_limit": {
                    "total": 1_000, "remaining": self.identify_budget, "reset_after": 3_600_000, "max_concurrency": 1,
                },
            })),
            ("open", _) => {
                let person = id_of(&body["recipient_id"]).ok_or((400, 50_035))?;
                self.channels.get(self.direct_with(&person)).cloned().ok_or((404, 10_003))
            }
            ("threads", ["guilds", guild, ..]) if *guild == GUILD => {
                let threads: Vec<&Value> = self.channels.values().filter(|one| one["type"] == 11).collect();
                Ok(json!({ "threads": threads, "members": [] }))
            }
            ("channel", ["channels", channel]) => {
                self.visible(channel)?;
                Ok(self.channels[*channel].clone())
            }
            ("typing", ["channels", channel, ..]) => self.visible(channel).map(|()| Value::Null),
            ("history", ["channels", channel, ..]) => self.history(channel, call),
            ("send", ["channels", channel, ..]) => self.send(channel, &body, files),
            ("edit", ["channels", channel, _, message]) => self.edit(channel, message, &body),
            ("callback", ["interactions", id, token, ..]) => {
                self.callback(token, body)?;
                if !call.query.iter().any(|(name, _)| name == "with_response") {
                    return Ok(Value::Null);
                }
                let answer = self.next_id();
                let mut message = self.built(&answer, CHANNEL, "answered", own_user());
                message["flags"] = json!(64);
                Ok(json!({
                    "interaction": {
                        "id": id, "type": 3, "response_message_id": answer, "response_message_loading": false,
                        "response_message_ephemeral": true,
                    },
                    "resource": { "type": 4, "message": message },
                }))
            }
            ("complete", ["webhooks", _, token, ..]) => self.complete(token, body),
            _ => Err((404, 0)),
        }
    }

    fn visible(&self, channel: &str) -> Result<(), Refusal> {
        if channel == HIDDEN {
            return Err((403, 50_001));
        }
        if !channel.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err((400, 50_035));
        }
        self.channels.contains_key(channel).then_some(()).ok_or((404, 10_003))
    }

    fn history(&self, channel: &str, call: &Call) -> Result<Value, Refusal> {
        self.visible(channel)?;
        let field =
            |name: &str| call.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let after: u64 = field("after").unwrap_or("0").parse().map_err(|_| (400, 50_035))?;
        let limit: usize = field("limit").unwrap_or("50").parse().map_err(|_| (400, 50_035))?;
        if !(1..=100).contains(&limit) {
            return Err((400, 50_035));
        }
        let id = |message: &Value| message["id"].as_str().and_then(|id| id.parse::<u64>().ok()).unwrap_or(0);
        let of_channel = |message: &&Value| message["channel_id"] == channel && id(message) > after;
        let mut found: Vec<Value> = self.messages.iter().filter(of_channel).cloned().collect();
        found.sort_by_key(id);
        found.truncate(limit);
        found.reverse();
        for message in &mut found {
            // Only events have these.
            message.as_object_mut().into_iter().for_each(|message| {
                ["guild_id", "member", "nonce"].iter().for_each(|field| drop(message.remove(*field)));
            });
        }
        Ok(Value::Array(found))
    }

    fn send(&mut self, channel: &str, body: &Value, files: Files) -> Result<Value, Refusal> {
        self.visible(channel)?;
        check(body, files.len(), false).map_err(|code| (400, code))?;
        if files.iter().any(|(_, bytes)| bytes.len() > MAX_FILE) {
            return Err((413, 40_005));
        }
        let reference = &body["message_reference"];
        let wanted = id_of(&reference["message_id"]);
        let answered =
            wanted.as_ref().and_then(|id| self.messages.iter().find(|known| known["id"] == id.as_str()));
        let answered = answered.cloned();
        if wanted.is_some() && answered.is_none() && reference["fail_if_not_exists"] != false {
            return Err((400, 50_035));
        }
        let nonce = match &body["nonce"] {
            Value::String(nonce) => Some(nonce.clone()),
            Value::Number(nonce) => Some(nonce.to_string()),
            _ => None,
        };
        let known = nonce.clone().map(|nonce| (channel.to_owned(), nonce));
        if let Some(first) =
            known.as_ref().filter(|_| body["enforce_nonce"] == true).and_then(|key| self.nonces.get(key))
        {
            let first = self.messages.iter().find(|message| message["id"] == first.as_str());
            return first.cloned().ok_or((404, 10_008));
        }
        let id = self.next_id();
        let mut message = self.built(&id, channel, body["content"].as_str().unwrap_or_default(), own_user());
        message["flags"] = json!(body["flags"].as_u64().unwrap_or(0));
        if body["components"].is_array() {
            message["components"] = numbered(&body["components"]);
        }
        if let Some(answered) = answered {
            message["type"] = json!(19);
            message["message_reference"] =
                json!({ "type": 0, "message_id": answered["id"], "channel_id": channel });
            message["referenced_message"] = answered;
        }
        let described = files.iter().enumerate().map(|(number, (name, bytes))| {
            let url = format!("https://cdn.discordapp.com/attachments/{channel}/{id}/{name}");
            json!({
                "id": (id.parse::<u64>().unwrap_or(0) + number as u64 + 1).to_string(), "filename": name,
                "size": bytes.len(), "url": url, "proxy_url": url,
            })
        });
        message["attachments"] = described.collect();
        self.uploads.extend(files);
        if let Some(known) = known {
            message["nonce"] = json!(known.1);
            self.nonces.insert(known, id);
        }
        self.messages.push(message.clone());
        // The test's own fields are kept apart from what people see.
        self.dispatch("MESSAGE_CREATE", &message);
        Ok(message)
    }

    fn edit(&mut self, channel: &str, id: &str, body: &Value) -> Result<Value, Refusal> {
        self.visible(channel)?;
        check(body, 0, true).map_err(|code| (400, code))?;
        let now = self.next_id();
        let found =
            self.messages.iter_mut().find(|known| known["id"] == id && known["channel_id"] == channel);
        let message = found.ok_or((404, 10_008))?;
        if message["author"]["id"] != BOT {
            return Err((403, 50_005));
        }
        for field in ["content", "flags", "components"] {
            if let Some(value) = body.get(field) {
                message[field] = if field == "components" { numbered(value) } else { value.clone() };
            }
        }
        message["edited_timestamp"] = json!(timestamp(&now));
        let changed = message.clone();
        self.dispatch("MESSAGE_UPDATE", &changed);
        Ok(changed)
    }

    fn callback(&mut self, token: &str, body: Value) -> Result<(), Refusal> {
        let answers = self.presses.get_mut(token).ok_or((404, 10_062))?;
        if !answers.is_empty() {
            return Err((400, 40_060));
        }
        match body["type"].as_u64() {
            Some(5 | 6) => {}
            Some(4 | 7) => {
                let content = body["data"]["content"].as_str().unwrap_or_default();
                if content.is_empty() || content.chars().count() > 2_000 {
                    return Err((400, 50_035));
                }
            }
            _ => return Err((400, 50_035)),
        }
        answers.push(body);
        Ok(())
    }

    fn complete(&mut self, token: &str, body: Value) -> Result<Value, Refusal> {
        let answers = self.presses.get_mut(token).ok_or((404, 10_015))?;
        if answers.is_empty() || body["content"].as_str().is_none_or(str::is_empty) {
            return Err((404, 10_008));
        }
        answers.push(body);
        Ok(json!({ "id": "1" }))
    }
}

/// Discord gives each component a number.
fn numbered(components: &Value) -> Value {
    let mut components = components.clone();
    let mut number = 0;
    for row in components.as_array_mut().into_iter().flatten() {
        number += 1;
        row["id"] = json!(number);
        for button in row["components"].as_array_mut().into_iter().flatten() {
            number += 1;
            button["id"] = json!(number);
        }
    }
    components
}

fn route(method: &str, path: &[&str]) -> &'static str {
    match (method, path) {
        ("GET", ["users", "@me"]) => "me",
        ("GET", ["applications", "@me"] | ["oauth2", "applications", "@me"]) => "application",
        ("GET", ["gateway", "bot"]) => "gateway",
        ("POST", ["users", "@me", "channels"]) => "open",
        ("GET", ["guilds", _, "threads", "active"]) => "threads",
        ("GET", ["channels", _]) => "channel",
        ("GET", ["channels", _, "messages"]) => "history",
        ("POST", ["channels", _, "messages"]) => "send",
        ("PATCH", ["channels", _, "messages", _]) => "edit",
        ("POST", ["channels", _, "typing"]) => "typing",
        ("POST", ["interactions", _, _, "callback"]) => "callback",
        ("PATCH", ["webhooks", _, _, "messages", "@original"]) => "complete",
        _ => "unknown",
    }
}

/// The JSON of a request, and its files.
fn body(call: &Call) -> Option<(Value, Files)> {
    let kind = call.header("content-type").unwrap_or_default();
    if kind.starts_with("multipart/form-data") {
        let mut message = Value::Null;
        let mut files = Vec::new();
        for (name, file_name, bytes) in call.parts() {
            match (name.as_str(), file_name) {
                ("payload_json", _) => message = serde_json::from_slice(&bytes).ok()?,
                (name, Some(file_name)) if name.starts_with("files[") => files.push((file_name, bytes)),
                _ => return None,
            }
        }
        return Some((message, files));
    }
    if call.body.is_empty() {
        return Some((Value::Null, Vec::new()));
    }
    let is_json = kind == "application/json";
    is_json.then(|| serde_json::from_slice(&call.body).ok())?.map(|body| (body, Vec::new()))
}

/// Discord takes ids as text and as numbers.
fn id_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned).or_else(|| value.as_u64().map(|id| id.to_string()))
}

fn refused((status, code): Refusal) -> Answer {
    let message = match status {
        401 => "401: Unauthorized",
        403 => "Missing Access",
        404 => "Unknown",
        _ => "Invalid Form Body",
    };
    Answer::json(status, &json!({ "message": message, "code": code }))
}

fn limited(seconds: f64, is_global: bool) -> Answer {
    let body =
        json!({ "message": "You are being rate limited.", "retry_after": seconds, "global": is_global });
    let answer = Answer::json(429, &body)
        .with("Retry-After", &format!("{}", seconds.ceil()))
        .with("Via", "1.1 google")
        .with("X-RateLimit-Scope", if is_global { "global" } else { "user" });
    if is_global { answer.with("X-RateLimit-Global", "true") } else { answer }
}
