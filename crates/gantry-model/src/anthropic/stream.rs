//! Reads the stream of the Messages API, event by event, into a reply.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::CITATIONS;
use crate::calls::{fresh, parse_arguments};
use crate::fault::Fault;
use crate::model::Model;
use crate::{Block, Message, Reply, Role, StopReason, StreamEvent, Usage};

#[derive(Debug)]
pub(crate) struct Decoder {
    model: Model,
    /// Keyed by the provider's index, which is also their order.
    blocks: BTreeMap<u64, Building>,
    usage: Usage,
    stop: Option<String>,
    done: bool,
}

#[derive(Debug)]
enum Building {
    Text {
        text: String,
        citations: Vec<Value>,
    },
    Thinking {
        text: String,
        signature: String,
    },
    Call {
        id: String,
        name: String,
        input: Value,
        arguments: String,
    },
    /// A block that Gantry does not interpret. At the end its arguments are put back in place.
    Foreign {
        block: Value,
        arguments: String,
    },
}

impl Decoder {
    pub(crate) fn new(model: Model) -> Decoder {
        Decoder { model, blocks: BTreeMap::new(), usage: Usage::default(), stop: None, done: false }
    }

    /// Takes the data of one event and passes on what it says at once.
    pub(crate) fn event(&mut self, data: &str, events: &mut dyn FnMut(StreamEvent)) -> Result<(), Fault> {
        let event: Value = serde_json::from_str(data)
            .map_err(|err| Fault::passing(format!("its stream contains invalid JSON: {err}")))?;
        let index = || event["index"].as_u64().unwrap_or(0);
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.count(&event["message"]["usage"]),
            "content_block_start" => self.begin(index(), &event["content_block"], events),
            "content_block_delta" => self.add(index(), &event["delta"], events),
            "message_delta" => {
                self.count(&event["usage"]);
                self.stop = event["delta"]["stop_reason"].as_str().map(str::to_owned).or(self.stop.take());
            }
            "message_stop" => self.done = true,
            "error" => return Err(Fault::of_event(&self.model, &event)),
            // `content_block_stop` and `ping` carry nothing more. Unknown events are ignored.
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.done
    }

    /// Returns the reply, or an error if the stream broke off.
    pub(crate) fn finish(self) -> Result<Reply, Fault> {
        let Some(stop) = self.stop else {
            return Err(Fault::passing("its answer ended early"));
        };
        let mut content = Vec::new();
        for building in self.blocks.into_values() {
            building.finish(&self.model, &mut content);
        }
        let has_calls = content.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        let stop = match stop.as_str() {
            "tool_use" => StopReason::ToolUse,
            "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
            "pause_turn" => StopReason::Pause,
            "refusal" => StopReason::Refusal,
            "end_turn" | "stop_sequence" => StopReason::EndTurn,
            _ if has_calls => StopReason::ToolUse,
            _ => StopReason::EndTurn,
        };
        let message = Message { role: Role::Assistant, content };
        Ok(Reply { message, stop, usage: self.usage, model: self.model.name })
    }

    /// Later counts are totals, not increments.
    fn count(&mut self, usage: &Value) {
        for (name, count) in [
            ("input_tokens", &mut self.usage.input_tokens),
            ("output_tokens", &mut self.usage.output_tokens),
            ("cache_read_input_tokens", &mut self.usage.cache_read_tokens),
            ("cache_creation_input_tokens", &mut self.usage.cache_write_tokens),
        ] {
            *count = usage[name].as_u64().unwrap_or(*count);
        }
    }

    fn begin(&mut self, index: u64, block: &Value, events: &mut dyn FnMut(StreamEvent)) {
        let text = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
        let building = match block["type"].as_str() {
            Some("text") => {
                let text = text("text");
                say(&text, StreamEvent::Text, events);
                Building::Text { text, citations: block["citations"].as_array().cloned().unwrap_or_default() }
            }
            Some("thinking") => {
                let thought = text("thinking");
                say(&thought, StreamEvent::Thinking, events);
                Building::Thinking { text: thought, signature: text("signature") }
            }
            Some("tool_use") => {
                let taken = |id: &str| {
                    self.blocks
                        .values()
                        .any(|other| matches!(other, Building::Call { id: known, .. } if known == id))
                };
                let id = Some(text("id")).filter(|id| !id.is_empty() && !taken(id)).unwrap_or_else(fresh);
                let name = text("name");
                events(StreamEvent::ToolBegin { id: id.clone(), name: name.clone() });
                Building::Call { id, name, input: block["input"].clone(), arguments: String::new() }
            }
            _ => Building::Foreign { block: block.clone(), arguments: String::new() },
        };
        self.blocks.insert(index, building);
    }

    fn add(&mut self, index: u64, delta: &Value, events: &mut dyn FnMut(StreamEvent)) {
        let Some(building) = self.blocks.get_mut(&index) else { return };
        let piece = |key: &str| delta[key].as_str().unwrap_or_default();
        match (building, delta["type"].as_str().unwrap_or_default()) {
            (Building::Text { text, .. }, "text_delta") => {
                text.push_str(piece("text"));
                say(piece("text"), StreamEvent::Text, events);
            }
            (Building::Text { citations, .. }, "citations_delta") => {
                citations.push(delta["citation"].clone())
            }
            (Building::Thinking { text, .. }, "thinking_delta") => {
                text.push_str(piece("thinking"));
                say(piece("thinking"), StreamEvent::Thinking, events);
            }
            (Building::Thinking { signature, .. }, "signature_delta") => {
                signature.push_str(piece("signature"))
            }
            (Building::Call { id, arguments, .. }, "input_json_delta") => {
                arguments.push_str(piece("partial_json"));
                let whose = id.clone();
                say(piece("partial_json"), |partial| StreamEvent::ToolInput { id: whose, partial }, events);
            }
            (Building::Foreign { arguments, .. }, "input_json_delta") => {
                arguments.push_str(piece("partial_json"))
            }
            _ => {}
        }
    }
}

fn say(text: &str, event: impl FnOnce(String) -> StreamEvent, events: &mut dyn FnMut(StreamEvent)) {
    if !text.is_empty() {
        events(event(text.to_owned()));
    }
}

impl Building {
    fn finish(self, model: &Model, content: &mut Vec<Block>) {
        match self {
            Building::Text { text, citations } => {
                content.push(Block::Text { text });
                if !citations.is_empty() {
                    let block = json!({"type": CITATIONS, "citations": citations});
                    content.push(Block::Provider { provider: model.provider.clone(), block });
                }
            }
            Building::Thinking { text, signature } => content.push(Block::Thinking {
                text,
                signature: Some(signature).filter(|signature| !signature.is_empty()),
                origin: Some(model.name.clone()),
            }),
            Building::Call { id, name, input, arguments } => {
                let (input, malformed) = parse_arguments(arguments, input);
                content.push(Block::ToolUse { id, name, input, malformed });
            }
            Building::Foreign { mut block, arguments } => {
                let Some(fields) = block.as_object_mut() else { return };
                if let Ok(input) = serde_json::from_str::<Map<String, Value>>(&arguments) {
                    fields.insert("input".into(), Value::Object(input));
                }
                let thought = block["type"] == "redacted_thinking";
                let provider = if thought { model.name.clone() } else { model.provider.clone() };
                content.push(Block::Provider { provider, block });
            }
        }
    }
}
