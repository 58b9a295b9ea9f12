//! Writes a chat completion request, for OpenAI and compatible servers. `openai/stream.rs` reads
//! the answer.

use serde_json::{Map, Value, json};

use crate::calls::sent_arguments;
use crate::model::Model;
use crate::pairing::{ArrangedTurn, arranged};
use crate::provider::Provider;
use crate::{Block, Effort, Request, Role};

mod stream;
mod think;

pub(crate) use stream::Decoder;

pub(crate) fn encode(request: &Request, model: &Model, provider: &Provider) -> Value {
    // Thinking and provider blocks mean nothing to another provider, and this API has no place for
    // its own.
    let turns = arranged(request, |block| !matches!(block, Block::Thinking { .. } | Block::Provider { .. }));
    let max_tokens = match request.max_tokens {
        0 => model.facts.max_output,
        asked => asked.min(model.facts.max_output),
    };
    let mut body = Map::new();
    body.insert("model".into(), json!(model.id));
    body.insert("stream".into(), json!(true));
    body.insert("stream_options".into(), json!({"include_usage": true}));
    // Newer OpenAI models refuse the older name, and other servers do not know the newer one.
    let limit = if provider.first_party { "max_completion_tokens" } else { "max_tokens" };
    body.insert(limit.into(), json!(max_tokens));
    if let Some(effort) = request.effort.filter(|_| model.facts.effort) {
        let effort = match effort {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        };
        body.insert("reasoning_effort".into(), json!(effort));
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            json!({"type": "function", "function":
                {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}})
        });
        body.insert("tools".into(), tools.collect());
    }
    let system: Vec<&str> =
        request.system.iter().map(|part| part.text.as_str()).filter(|text| !text.trim().is_empty()).collect();
    let mut messages: Vec<Value> = Vec::new();
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system.join("\n\n")}));
    }
    for turn in &turns {
        match turn.role {
            Role::User => user(turn, &mut messages),
            Role::Assistant => messages.push(assistant(turn, provider)),
        }
    }
    body.insert("messages".into(), Value::Array(messages));
    Value::Object(body)
}

/// Writes one message per result, then one with everything else, because images of results have no
/// other place.
fn user(turn: &ArrangedTurn, messages: &mut Vec<Value>) {
    let mut parts: Vec<Value> = Vec::new();
    for block in &turn.content {
        match block.as_ref() {
            Block::ToolResult { id, content, is_error } => {
                let texts = content.iter().filter_map(|block| match block {
                    Block::Text { text } => Some(text.as_str()),
                    _ => None,
                });
                let mut text = texts.collect::<Vec<_>>().join("\n");
                let images: Vec<Value> = content.iter().filter_map(image).collect();
                if text.trim().is_empty() {
                    text = if images.is_empty() { "(no output)" } else { "(an image, shown below)" }.into();
                }
                if *is_error {
                    text = format!("The call failed: {text}");
                }
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
                if !images.is_empty() {
                    parts.push(json!({"type": "text", "text": format!("From the result of {}:", id)}));
                    parts.extend(images);
                }
            }
            Block::Text { text } => parts.push(json!({"type": "text", "text": text})),
            block => parts.extend(image(block)),
        }
    }
    let is_text = parts.iter().all(|part| part["type"] == "text");
    if parts.is_empty() {
        return;
    }
    // Servers that only support text accept it as a string.
    let content = if is_text {
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        json!(texts.join("\n\n"))
    } else {
        Value::Array(parts)
    };
    messages.push(json!({"role": "user", "content": content}));
}

fn image(block: &Block) -> Option<Value> {
    match block {
        Block::Image { media_type, data } => {
            let url = format!("data:{media_type};base64,{data}");
            Some(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        _ => None,
    }
}

fn assistant(turn: &ArrangedTurn, provider: &Provider) -> Value {
    let mut text = String::new();
    let mut calls: Vec<Value> = Vec::new();
    for block in &turn.content {
        match block.as_ref() {
            Block::Text { text: said } => text.push_str(said),
            Block::ToolUse { id, name, input, malformed } => {
                // Sent as text, but servers parse it again for their templates.
                let arguments = sent_arguments(input, malformed.as_deref());
                calls.push(json!({"id": id, "type": "function",
                    "function": {"name": name, "arguments": arguments.to_string()}}));
            }
            _ => {}
        }
    }
    // The templates of other servers fail on anything that is not text.
    let content = if text.is_empty() && provider.first_party { Value::Null } else { Value::String(text) };
    let mut message = json!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    message
}
