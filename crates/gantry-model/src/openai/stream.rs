//! Reads the stream of chat completions, with the differences between servers: ids, indices, counts
//! and the last line may be missing.

use serde_json::{Map, Value, json};

use crate::calls::{fresh, parse_arguments};
use crate::estimate::of_text;
use crate::fault::Fault;
use crate::model::Model;
use crate::openai::think::{Piece, ThinkTags};
use crate::{Block, Message, Reply, Role, StopReason, StreamEvent, Usage};

#[derive(Debug)]
pub(crate) struct Decoder {
    model: Model,
    prompt_tokens: u64,
    tags: ThinkTags,
    text: String,
    thinking: String,
    calls: Vec<StreamedCall>,
    usage: Option<Usage>,
    stop: Option<String>,
    done: bool,
}

#[derive(Debug)]
struct StreamedCall {
    index: Option<u64>,
    /// The server's id; empty if it sent none.
    given: String,
    id: String,
    name: String,
    arguments: String,
    /// Set once the call was reported, which requires its name. That is usually at once.
    begun: bool,
}

impl StreamedCall {
    fn is_whole(&self) -> bool {
        !self.name.is_empty() && serde_json::from_str::<Map<String, Value>>(&self.arguments).is_ok()
    }
}

impl Decoder {
    pub(crate) fn new(model: Model, prompt_tokens: u64) -> Decoder {
        Decoder {
            model,
            prompt_tokens,
            tags: ThinkTags::default(),
            text: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            usage: None,
            stop: None,
            done: false,
        }
    }

    /// Takes the data of one event and passes on what it says at once.
    pub(crate) fn event(&mut self, data: &str, events: &mut dyn FnMut(StreamEvent)) -> Result<(), Fault> {
        match data.trim() {
            "" => return Ok(()),
            "[DONE]" => {
                self.done = true;
                let held = self.tags.finish();
                self.add_all(held, events);
                return Ok(());
            }
            _ => {}
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|err| Fault::passing(format!("its stream contains invalid JSON: {err}")))?;
        if !chunk["error"].is_null() {
            return Err(Fault::of_event(&self.model, &chunk));
        }
        self.count(&chunk["usage"]);
        let choice = &chunk["choices"][0];
        let delta = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        for key in ["reasoning_content", "reasoning"] {
            if let Some(thought) = delta[key].as_str().filter(|thought| !thought.is_empty()) {
                self.add(Piece::Thinking(thought.to_owned()), events);
                break;
            }
        }
        self.content(&delta["content"], events);
        // A refusal replaces the model's text.
        self.content(&delta["refusal"], events);
        let calls = delta["tool_calls"].as_array();
        for call in calls.into_iter().flatten() {
            self.call(call, events);
        }
        // Older servers send one call, without a list, an index or an id.
        if calls.is_none() && delta["function_call"].is_object() {
            self.call(&json!({"function": delta["function_call"]}), events);
        }
        if let Some(stop) = choice["finish_reason"].as_str() {
            if stop == "error" {
                return Err(Fault::passing("the server behind it failed"));
            }
            self.stop = Some(stop.to_owned());
            let held = self.tags.finish();
            self.add_all(held, events);
        }
        Ok(())
    }

    /// The content is text, or a list of parts, some of which may be thinking.
    fn content(&mut self, content: &Value, events: &mut dyn FnMut(StreamEvent)) {
        match content {
            Value::String(text) => {
                let pieces = self.tags.feed(text);
                self.add_all(pieces, events);
            }
            Value::Array(parts) => parts.iter().for_each(|part| self.content(part, events)),
            Value::Object(part) => {
                let thought = ["thinking", "reasoning"].into_iter().find_map(|key| part.get(key));
                match thought {
                    Some(thought) => self.add(Piece::Thinking(text_of(thought)), events),
                    None => {
                        let pieces = self.tags.feed(part.get("text").map(text_of).as_deref().unwrap_or(""));
                        self.add_all(pieces, events);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_all(&mut self, pieces: impl IntoIterator<Item = Piece>, events: &mut dyn FnMut(StreamEvent)) {
        pieces.into_iter().for_each(|piece| self.add(piece, events));
    }

    fn add(&mut self, piece: Piece, events: &mut dyn FnMut(StreamEvent)) {
        match piece {
            Piece::Text(text) => {
                self.text.push_str(&text);
                events(StreamEvent::Text(text));
            }
            Piece::Thinking(thought) => {
                self.thinking.push_str(&thought);
                events(StreamEvent::Thinking(thought));
            }
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.done
    }

    /// Returns the reply, or an error if the stream broke off.
    pub(crate) fn finish(mut self) -> Result<Reply, Fault> {
        let held = self.tags.finish();
        self.add_all(held, &mut |_| {});
        let said = !self.text.is_empty() || !self.calls.is_empty();
        if !said && self.thinking.is_empty() && matches!(self.stop.as_deref(), None | Some("stop")) {
            return Err(Fault::Empty);
        }
        if self.stop.is_none() && !(self.done && said) {
            return Err(Fault::passing("its answer ended early"));
        }
        let stop = match self.stop.as_deref() {
            Some("length" | "max_tokens") => StopReason::MaxTokens,
            Some("content_filter") => StopReason::Refusal,
            _ if !self.calls.is_empty() => StopReason::ToolUse,
            _ => StopReason::EndTurn,
        };
        let written =
            self.calls.iter().map(|call| of_text(&call.arguments) + of_text(&call.name)).sum::<u64>();
        let estimate = Usage {
            input_tokens: self.prompt_tokens,
            output_tokens: of_text(&self.text) + of_text(&self.thinking) + written,
            ..Usage::default()
        };
        let mut content = Vec::new();
        if !self.thinking.is_empty() {
            let origin = Some(self.model.name.clone());
            content.push(Block::Thinking { text: self.thinking, signature: None, origin });
        }
        if !self.text.is_empty() {
            content.push(Block::Text { text: self.text });
        }
        for call in self.calls {
            let (input, malformed) = parse_arguments(call.arguments, json!({}));
            content.push(Block::ToolUse { id: call.id, name: call.name, input, malformed });
        }
        let message = Message { role: Role::Assistant, content };
        Ok(Reply { message, stop, usage: self.usage.unwrap_or(estimate), model: self.model.name })
    }

    fn count(&mut self, usage: &Value) {
        let Some(prompt) = usage["prompt_tokens"].as_u64() else { return };
        let details = &usage["prompt_tokens_details"];
        let cached = details["cached_tokens"].as_u64().unwrap_or(0).min(prompt);
        let written = details["cache_write_tokens"].as_u64().unwrap_or(0).min(prompt - cached);
        self.usage = Some(Usage {
            input_tokens: prompt - cached - written,
            output_tokens: usage["completion_tokens"].as_u64().unwrap_or(0),
            cache_read_tokens: cached,
            cache_write_tokens: written,
        });
    }

    fn call(&mut self, delta: &Value, events: &mut dyn FnMut(StreamEvent)) {
        let given = delta["id"].as_str().unwrap_or_default();
        let at = self.find(delta["index"].as_u64(), given, delta["function"]["name"].as_str());
        let call = &mut self.calls[at];
        if call.name.is_empty() {
            call.name = delta["function"]["name"].as_str().unwrap_or_default().to_owned();
        }
        if !call.begun && !call.name.is_empty() {
            call.begun = true;
            events(StreamEvent::ToolBegin { id: call.id.clone(), name: call.name.clone() });
        }
        let piece = match &delta["function"]["arguments"] {
            Value::String(piece) => piece.clone(),
            Value::Null => String::new(),
            // Some servers send the arguments as an object.
            whole => whole.to_string(),
        };
        if !piece.is_empty() {
            call.arguments.push_str(&piece);
            events(StreamEvent::ToolInput { id: call.id.clone(), partial: piece });
        }
    }

    /// Finds the call that a piece belongs to, or starts a new one. The id decides, then the index.
    /// Without both, a name starts a call and anything else continues the last one.
    fn find(&mut self, index: Option<u64>, given: &str, name: Option<&str>) -> usize {
        let begins = name.is_some_and(|name| !name.is_empty());
        let of_index = self.calls.iter().rposition(|call| call.index == index);
        let known = if !given.is_empty() {
            // Some servers number every call as the first one, so a new id means a new call.
            let same = |call: &StreamedCall| call.given == given && (index.is_none() || call.index == index);
            let unnamed = of_index.filter(|at| index.is_some() && self.calls[*at].given.is_empty());
            self.calls.iter().rposition(same).or(unnamed)
        } else if index.is_some() {
            of_index.filter(|at| !(begins && self.calls[*at].is_whole()))
        } else if begins {
            None
        } else {
            self.calls.len().checked_sub(1)
        };
        if let Some(at) = known {
            return at;
        }
        let is_taken = self.calls.iter().any(|call| call.id == given);
        let id = if given.is_empty() || is_taken { fresh() } else { given.to_owned() };
        self.calls.push(StreamedCall {
            index,
            given: given.to_owned(),
            id,
            name: String::new(),
            arguments: String::new(),
            begun: false,
        });
        self.calls.len() - 1
    }
}

/// Returns the text of a part, which may itself be a list of parts.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
