//! Encodes a turn as bytes, in either wire format.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde_json::{Value, json};

use super::Heard;
use super::script::{Failure, Quirks, Say, Script, Turn};
use crate::Usage;
use crate::provider::ProviderKind;

pub(super) enum Emit {
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Sends nothing more and keeps the connection open.
    Stall,
    Close,
}

/// The last chunk.
const END: &[u8] = b"0\r\n\r\n";

/// `Event` is a part of a stream before it is divided into writes.
enum Event {
    Data(Vec<u8>),
    Wait(Duration),
}

pub(super) fn turn(turn: &Turn, heard: &Heard, script: &Script) -> Vec<Emit> {
    let kind = heard.kind();
    let mut emits = Vec::new();
    if turn.delay_ms > 0 {
        emits.push(Emit::Wait(Duration::from_millis(turn.delay_ms)));
    }
    match &turn.fail {
        Some(Failure::Close) => return vec![Emit::Close],
        Some(Failure::Status { status, retry_after, message, location }) => {
            let message = message.as_deref().unwrap_or("as the script says");
            let after = retry_after.as_ref().map(|value| ("retry-after", value.as_str()));
            let to = location.as_ref().map(|value| ("location", value.as_str()));
            let headers: Vec<(&str, &str)> = after.into_iter().chain(to).collect();
            emits.extend(failure(*status, &headers, message, kind));
            return emits;
        }
        _ => {}
    }
    let events = match kind {
        ProviderKind::Anthropic => anthropic(turn, heard),
        ProviderKind::Openai => openai(turn, heard, script.quirks),
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    emits.push(Emit::Bytes(head.into()));
    let mut writer = Writer { turn, emits, pending: Vec::new(), written: 0 };
    let mut sent = 0;
    for event in events {
        let mut bytes = match event {
            Event::Data(bytes) if script.quirks.crlf => {
                String::from_utf8_lossy(&bytes).replace('\n', "\r\n").into_bytes()
            }
            Event::Data(bytes) => bytes,
            Event::Wait(time) => {
                writer.flush();
                writer.emits.push(Emit::Wait(time));
                continue;
            }
        };
        let end = match &turn.fail {
            Some(Failure::Cut(after)) if sent + bytes.len() > *after => Some((*after - sent, Emit::Close)),
            Some(Failure::End(after)) if sent + bytes.len() > *after => {
                Some((*after - sent, Emit::Bytes(END.to_vec())))
            }
            Some(Failure::Stall(after)) if sent + bytes.len() > *after => Some((*after - sent, Emit::Stall)),
            Some(Failure::Error { kind: name, message, after }) if sent >= *after => {
                let error = json!({"type": name, "message": message});
                bytes = match kind {
                    ProviderKind::Anthropic => {
                        event_bytes("error", &json!({"type": "error", "error": error}))
                    }
                    ProviderKind::Openai => data(&json!({"error": error})),
                };
                Some((bytes.len(), Emit::Close))
            }
            _ => None,
        };
        sent += bytes.len();
        match end {
            Some((length, end)) => {
                writer.write(&bytes[..length]);
                writer.flush();
                writer.emits.push(end);
                return writer.emits;
            }
            None => writer.write(&bytes),
        }
    }
    writer.flush();
    writer.emits.push(match turn.fail {
        Some(Failure::Linger) => Emit::Stall,
        _ => Emit::Bytes(END.to_vec()),
    });
    writer.emits
}

/// `Writer` sends chunks of the sizes that the turn specifies, each in its own packet where
/// possible.
struct Writer<'a> {
    turn: &'a Turn,
    emits: Vec<Emit>,
    pending: Vec<u8>,
    written: usize,
}

impl Writer<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let sizes = &self.turn.writes;
        if sizes.is_empty() {
            return self.flush();
        }
        loop {
            let size = sizes[self.written % sizes.len()].max(1);
            if self.pending.len() < size {
                return;
            }
            let piece: Vec<u8> = self.pending.drain(..size).collect();
            self.chunk(&piece);
        }
    }

    fn flush(&mut self) {
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.chunk(&rest);
        }
    }

    fn chunk(&mut self, piece: &[u8]) {
        self.written += 1;
        if self.turn.pause_ms > 0 {
            self.emits.push(Emit::Wait(Duration::from_millis(self.turn.pause_ms)));
        }
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        self.emits.push(Emit::Bytes(chunk));
    }
}

pub(super) fn json(status: u16, body: &Value) -> Vec<Emit> {
    respond(status, &[], &body.to_string())
}

pub(super) fn failure(status: u16, headers: &[(&str, &str)], message: &str, kind: ProviderKind) -> Vec<Emit> {
    let name = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    let error = json!({"type": name, "message": message});
    let body = match kind {
        ProviderKind::Anthropic => json!({"type": "error", "error": error}),
        ProviderKind::Openai => json!({"error": error}),
    };
    respond(status, headers, &body.to_string())
}

fn respond(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<Emit> {
    let mut text = format!("HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    vec![Emit::Bytes(text.into_bytes())]
}

/// Returns a signature that only this server can create, for this model and text.
pub(super) fn sign(model: &str, words: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (model, words).hash(&mut hasher);
    format!("sig+{:016x}/==", hasher.finish())
}

fn data(value: &Value) -> Vec<u8> {
    format!("data: {value}\n\n").into_bytes()
}

fn event_bytes(name: &str, value: &Value) -> Vec<u8> {
    format!("event: {name}\ndata: {value}\n\n").into_bytes()
}

fn pieces(text: &str, size: Option<usize>) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(size.unwrap_or(24).max(1)).map(|piece| piece.iter().collect()).collect()
}

/// Returns an id from the conversation so far and the position of the call. It is unique, also
/// across restarts.
fn call_id(prefix: &str, heard: &Heard, at: usize) -> String {
    let mut hasher = DefaultHasher::new();
    heard.body["messages"].to_string().hash(&mut hasher);
    format!("{prefix}_{:012x}{at:02}", hasher.finish() & 0xffff_ffff_ffff)
}

fn usage(turn: &Turn, heard: &Heard) -> Usage {
    let said: usize = turn.say.iter().map(|say| format!("{say:?}").len()).sum();
    turn.usage.unwrap_or(Usage {
        input_tokens: (heard.bytes / 4) as u64,
        output_tokens: (said / 4) as u64 + 1,
        ..Usage::default()
    })
}

fn anthropic(turn: &Turn, heard: &Heard) -> Vec<Event> {
    let model = heard.body["model"].as_str().unwrap_or_default();
    let usage = usage(turn, heard);
    let mut events = Vec::new();
    let mut tell = |name: &str, mut value: Value| {
        value["type"] = json!(name);
        events.push(Event::Data(event_bytes(name, &value)));
    };
    tell(
        "message_start",
        json!({"message": {"id": call_id("msg", heard, 0), "type": "message", "role": "assistant", "model": model,
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": {
                "input_tokens": usage.input_tokens, "output_tokens": 1,
                "cache_read_input_tokens": usage.cache_read_tokens,
                "cache_creation_input_tokens": usage.cache_write_tokens}}}),
    );
    let mut index = 0;
    let mut stop = "end_turn";
    for (at, say) in turn.say.iter().enumerate() {
        let mut blocks: Vec<(Value, Vec<Value>)> = Vec::new();
        let texts = |kind: &str, key: &str, text: &str| -> Vec<Value> {
            pieces(text, turn.piece).into_iter().map(|piece| json!({"type": kind, key: piece})).collect()
        };
        match say {
            Say::Text(text) => {
                blocks.push((json!({"type": "text", "text": ""}), texts("text_delta", "text", text)));
            }
            Say::Thinking(text) => {
                let mut deltas = texts("thinking_delta", "thinking", text);
                deltas.push(json!({"type": "signature_delta", "signature": sign(model, text)}));
                blocks.push((json!({"type": "thinking", "thinking": "", "signature": ""}), deltas));
            }
            Say::Redacted(data) => {
                blocks.push((
                    json!({"type": "redacted_thinking", "data": format!("{data}:{}", sign(model, data))}),
                    vec![],
                ));
            }
            Say::Call { name, .. } | Say::CallAs { name, .. } | Say::Malformed { name, .. } => {
                let (id, arguments) = match say {
                    Say::CallAs { id, input, .. } => (id.clone(), input.to_string()),
                    Say::Call { input, .. } => (call_id("toolu", heard, at), input.to_string()),
                    Say::Malformed { arguments, .. } => (call_id("toolu", heard, at), arguments.clone()),
                    _ => continue,
                };
                stop = "tool_use";
                let start = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                blocks.push((start, texts("input_json_delta", "partial_json", &arguments)));
            }
            Say::Search { query, text } => {
                let id = call_id("srvtoolu", heard, at);
                let start = json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}});
                let input = json!({"query": query}).to_string();
                blocks.push((start, texts("input_json_delta", "partial_json", &input)));
                let found = json!({"type": "web_search_result", "url": "https://example.org/", "title": query,
                    "encrypted_content": sign(model, query), "page_age": null});
                let result = json!({"type": "web_search_tool_result", "tool_use_id": id, "content": [found]});
                blocks.push((result, vec![]));
                let citation = json!({"type": "web_search_result_location", "url": "https://example.org/",
                    "title": query, "encrypted_index": sign(model, text), "cited_text": text});
                let mut deltas = vec![json!({"type": "citations_delta", "citation": citation})];
                deltas.extend(texts("text_delta", "text", text));
                blocks.push((json!({"type": "text", "text": "", "citations": []}), deltas));
            }
            Say::Pings { count, every_ms } => {
                for _ in 0..*count {
                    events.push(Event::Wait(Duration::from_millis(*every_ms)));
                    events.push(Event::Data(event_bytes("ping", &json!({"type": "ping"}))));
                }
            }
            Say::Wait(ms) => events.push(Event::Wait(Duration::from_millis(*ms))),
        }
        for (start, deltas) in blocks {
            let mut tell = |name: &str, mut value: Value| {
                value["type"] = json!(name);
                value["index"] = json!(index);
                events.push(Event::Data(event_bytes(name, &value)));
            };
            tell("content_block_start", json!({"content_block": start}));
            deltas.into_iter().for_each(|delta| tell("content_block_delta", json!({"delta": delta})));
            tell("content_block_stop", json!({}));
            index += 1;
        }
    }
    let stop = turn.stop.as_deref().unwrap_or(stop);
    let end = json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"output_tokens": usage.output_tokens}});
    events.push(Event::Data(event_bytes("message_delta", &end)));
    events.push(Event::Data(event_bytes("message_stop", &json!({"type": "message_stop"}))));
    events
}

fn openai(turn: &Turn, heard: &Heard, quirks: Quirks) -> Vec<Event> {
    let model = heard.body["model"].as_str().unwrap_or_default();
    let mut events = Vec::new();
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": model,
            "choices": choices, "usage": usage});
        Event::Data(data(&chunk))
    };
    let delta =
        |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null);
    events.push(delta(json!({"role": "assistant", "content": ""})));
    let mut stop = "stop";
    let mut index = 0;
    for (at, say) in turn.say.iter().enumerate() {
        match say {
            Say::Text(text) | Say::Search { text, .. } => {
                let texts = pieces(text, turn.piece);
                let content = |piece: String| match quirks.content_parts {
                    true => json!([{"type": "text", "text": piece}]),
                    false => json!(piece),
                };
                events.extend(texts.into_iter().map(|piece| delta(json!({"content": content(piece)}))));
            }
            Say::Thinking(text) if quirks.think_tags => {
                let texts = pieces(&format!("<think>\n{text}</think>\n\n"), turn.piece);
                events.extend(texts.into_iter().map(|piece| delta(json!({"content": piece}))));
            }
            Say::Thinking(text) if quirks.content_parts => {
                let part =
                    |piece| json!([{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]);
                let texts = pieces(text, turn.piece);
                events.extend(texts.into_iter().map(|piece| delta(json!({"content": part(piece)}))));
            }
            Say::Thinking(text) | Say::Redacted(text) => {
                let key = if quirks.reasoning { "reasoning" } else { "reasoning_content" };
                let texts = pieces(text, turn.piece);
                events.extend(texts.into_iter().map(|piece| delta(json!({key: piece}))));
            }
            Say::Call { name, .. } | Say::CallAs { name, .. } | Say::Malformed { name, .. } => {
                let (id, arguments) = match say {
                    Say::CallAs { id, input, .. } => (id.clone(), input.to_string()),
                    Say::Call { input, .. } => (call_id("call", heard, at), input.to_string()),
                    Say::Malformed { arguments, .. } => (call_id("call", heard, at), arguments.clone()),
                    _ => continue,
                };
                if quirks.function_call {
                    stop = "function_call";
                    events.push(delta(json!({"function_call": {"name": name, "arguments": ""}})));
                    let texts = pieces(&arguments, turn.piece).into_iter();
                    events.extend(texts.map(|piece| delta(json!({"function_call": {"arguments": piece}}))));
                    continue;
                }
                stop = "tool_calls";
                let place = if quirks.same_index { 0 } else { index };
                let piece = |first: bool, arguments: Value| {
                    let mut call = json!({"function": {"arguments": arguments}});
                    if !quirks.no_index {
                        call["index"] = json!(place);
                    }
                    if first {
                        call["type"] = json!("function");
                        call["function"]["name"] = json!(name);
                    }
                    if first && !quirks.no_ids {
                        call["id"] = json!(id);
                    }
                    delta(json!({"tool_calls": [call]}))
                };
                if quirks.whole_arguments {
                    let whole = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
                    events.push(piece(true, whole));
                } else {
                    events.push(piece(true, json!("")));
                    events.extend(
                        pieces(&arguments, turn.piece).into_iter().map(|text| piece(false, json!(text))),
                    );
                }
                index += 1;
            }
            Say::Pings { count, every_ms } => {
                for _ in 0..*count {
                    events.push(Event::Wait(Duration::from_millis(*every_ms)));
                    events.push(Event::Data(b": still at it\n\n".to_vec()));
                }
            }
            Say::Wait(ms) => events.push(Event::Wait(Duration::from_millis(*ms))),
        }
    }
    let stop = match turn.stop.as_deref() {
        _ if quirks.always_stop => "stop",
        Some("max_tokens") => "length",
        Some("refusal") => "content_filter",
        Some(_) | None => stop,
    };
    events.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": stop}]), Value::Null));
    if !quirks.no_usage {
        let usage = usage(turn, heard);
        let prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
        events.push(chunk(
            json!([]),
            json!({"prompt_tokens": prompt, "completion_tokens": usage.output_tokens,
                "total_tokens": prompt + usage.output_tokens, "prompt_tokens_details": {
                    "cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}}),
        ));
    }
    if !quirks.no_done {
        events.push(Event::Data(b"data: [DONE]\n\n".to_vec()));
    }
    events
}
