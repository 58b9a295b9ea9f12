//! Writes a request for the Messages API. `anthropic/stream.rs` reads the answer.

use serde_json::{Map, Value, json};

use crate::calls::sent_arguments;
use crate::model::{Model, ThinkingStyle};
use crate::pairing::{ArrangedTurn, arranged};
use crate::provider::Provider;
use crate::{Block, Effort, Request, Role, Thinking};

mod stream;

pub(crate) use stream::Decoder;

pub(crate) const VERSION: &str = "2023-06-01";

/// The field that keeps the citations of the preceding text, so that they are sent back with it.
pub(crate) const CITATIONS: &str = "gantry_citations";

const SHOWN_IMAGES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];
const MIN_THINKING_TOKENS: u32 = 1024;
const MAX_SEARCHES: u32 = 5;

/// `Thoughts` says whether earlier thinking blocks are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thoughts {
    Kept,
    /// The provider did not accept them.
    Dropped,
}

pub(crate) fn encode(request: &Request, model: &Model, provider: &Provider, thoughts: Thoughts) -> Value {
    let turns = arranged(request, |block| match block {
        Block::Thinking { signature, origin, .. } => {
            thoughts == Thoughts::Kept && signature.is_some() && origin.as_deref() == Some(&model.name)
        }
        Block::Provider { provider, block } => {
            (*provider == model.provider || *provider == model.name)
                && block.is_object()
                && (thoughts == Thoughts::Kept || !is_thought(block))
        }
        Block::Text { .. } | Block::Image { .. } | Block::ToolUse { .. } | Block::ToolResult { .. } => true,
    });
    let max_tokens = match request.max_tokens {
        0 => model.facts.max_output,
        asked => asked.min(model.facts.max_output),
    };
    let mut body = Map::new();
    body.insert("model".into(), json!(model.id));
    body.insert("max_tokens".into(), json!(max_tokens));
    body.insert("stream".into(), json!(true));
    if let Some(thinking) = thinking(request, model, provider, max_tokens, &turns) {
        body.insert("thinking".into(), thinking);
    }
    if let Some(effort) = request.effort.filter(|_| model.facts.effort) {
        body.insert("output_config".into(), json!({"effort": effort_name(effort)}));
    }
    let mut tools = tools(request, provider);
    let mut system = system(request);
    // The first of two cache marks, after the part that all requests share.
    match system.iter_mut().rev().find(|(cache, _)| *cache) {
        Some((_, part)) => mark(part),
        None => tools.last_mut().into_iter().for_each(mark),
    }
    if !tools.is_empty() {
        body.insert("tools".into(), Value::Array(tools));
    }
    if !system.is_empty() {
        body.insert("system".into(), system.into_iter().map(|(_, part)| part).collect());
    }
    body.insert("messages".into(), messages(&turns));
    Value::Object(body)
}

fn system(request: &Request) -> Vec<(bool, Value)> {
    let parts = request.system.iter().filter(|part| !part.text.trim().is_empty());
    parts.map(|part| (part.cache, json!({"type": "text", "text": part.text}))).collect()
}

fn tools(request: &Request, provider: &Provider) -> Vec<Value> {
    let mut tools: Vec<Value> = Vec::new();
    for tool in &request.tools {
        let mut spec =
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema});
        if tool.eager_input_streaming && provider.first_party {
            spec["eager_input_streaming"] = json!(true);
        }
        tools.push(spec);
    }
    let named_so = request.tools.iter().any(|tool| tool.name == "web_search");
    if request.native_web_search && provider.first_party && !named_so {
        // This comes before our tools, because the cache mark is set on the last one.
        let search = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": MAX_SEARCHES});
        tools.insert(0, search);
    }
    tools
}

fn thinking(
    request: &Request,
    model: &Model,
    provider: &Provider,
    max_tokens: u32,
    turns: &[ArrangedTurn],
) -> Option<Value> {
    // Newer models do not show their thinking unless asked to.
    let adaptive = if provider.first_party && model.facts.thinking != ThinkingStyle::Unknown {
        json!({"type": "adaptive", "display": "summarized"})
    } else {
        json!({"type": "adaptive"})
    };
    let within = |tokens: u32| {
        let tokens = tokens.max(MIN_THINKING_TOKENS);
        // In this mode each turn must continue from the thinking that it began with.
        (tokens < max_tokens && !continues_without_thinking(turns))
            .then(|| json!({"type": "enabled", "budget_tokens": tokens}))
    };
    match (model.facts.thinking, request.thinking) {
        (ThinkingStyle::Unsupported, _) => None,
        (ThinkingStyle::Adaptive, Thinking::Off) => Some(json!({"type": "disabled"})),
        (_, Thinking::Off) => None,
        (ThinkingStyle::Adaptive | ThinkingStyle::Always, Thinking::Adaptive | Thinking::Budget(_)) => {
            Some(adaptive)
        }
        (ThinkingStyle::Unknown, Thinking::Adaptive) => Some(adaptive),
        (ThinkingStyle::Budget, Thinking::Adaptive) => within(max_tokens / 2),
        (ThinkingStyle::Budget | ThinkingStyle::Unknown, Thinking::Budget(tokens)) => {
            within(tokens.min(max_tokens.saturating_sub(1)))
        }
    }
}

/// Reports whether the model's last turn was a call that it made without thinking blocks that can
/// be sent back.
fn continues_without_thinking(turns: &[ArrangedTurn]) -> bool {
    let last = turns.iter().rev().find(|turn| turn.role == Role::Assistant);
    let is_call = |block: &Block| matches!(block, Block::ToolUse { .. });
    let is_thinking = |block: &Block| match block {
        Block::Thinking { .. } => true,
        Block::Provider { block, .. } => is_thought(block),
        _ => false,
    };
    last.is_some_and(|turn| {
        turn.content.iter().any(|block| is_call(block))
            && !turn.content.first().is_some_and(|block| is_thinking(block))
    })
}

fn is_thought(block: &Value) -> bool {
    block["type"] == "redacted_thinking"
}

fn effort_name(effort: Effort) -> &'static str {
    match effort {
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}

fn messages(turns: &[ArrangedTurn]) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    for turn in turns {
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let mut content: Vec<Value> = Vec::new();
        for block in &turn.content {
            match block.as_ref() {
                Block::Provider { block, .. } if block["type"] == CITATIONS => {
                    let text = content.last_mut().filter(|before| before["type"] == "text");
                    if let Some(text) = text {
                        text["citations"] = block["citations"].clone();
                    }
                }
                block => content.push(encode_block(block)),
            }
        }
        messages.push(json!({"role": role, "content": content}));
    }
    // The second cache mark moves with the conversation. The next request reads the cache up to
    // here.
    let said = messages.iter_mut().rev().find(|message| message["role"] == "user");
    let blocks = said.and_then(|message| message["content"].as_array_mut());
    blocks.and_then(|blocks| blocks.last_mut()).into_iter().for_each(mark);
    Value::Array(messages)
}

fn mark(block: &mut Value) {
    if let Some(fields) = block.as_object_mut() {
        fields.insert("cache_control".into(), json!({"type": "ephemeral"}));
    }
}

fn encode_block(block: &Block) -> Value {
    match block {
        Block::Text { text } => json!({"type": "text", "text": text}),
        Block::Image { media_type, data } if SHOWN_IMAGES.contains(&media_type.as_str()) => {
            json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
        }
        Block::Image { media_type, .. } => {
            json!({"type": "text", "text": format!("(an image of type {media_type}, which cannot be shown)")})
        }
        Block::Thinking { text, signature, .. } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        Block::ToolUse { id, name, input, malformed } => {
            let input = sent_arguments(input, malformed.as_deref());
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
        Block::ToolResult { id, content, is_error } => {
            let fits = content.iter().filter(|block| match block {
                Block::Text { text } => !text.trim().is_empty(),
                block => matches!(block, Block::Image { .. }),
            });
            let mut content: Vec<Value> = fits.map(encode_block).collect();
            if content.is_empty() {
                content.push(json!({"type": "text", "text": "(no output)"}));
            }
            let mut result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
            if *is_error {
                result["is_error"] = json!(true);
            }
            result
        }
        Block::Provider { block, .. } => block.clone(),
    }
}
