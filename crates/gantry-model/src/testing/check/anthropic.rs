//! The rules of the Messages API.

use std::collections::HashSet;

use serde_json::Value;

use super::super::encode_turn::sign;
use super::{Violations, check_tools, is_plain, list};
use crate::testing::{Heard, Script};

const MAX_MARKS: usize = 4;

pub(in super::super) fn check(heard: &Heard, script: &Script, found: &mut Violations) {
    let body = &heard.body;
    let bearer = heard.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let key = heard.header("x-api-key").or(bearer);
    found.rule(key == Some(script.key()), || "x-api-key is not the key".into());
    found.rule(heard.header("anthropic-version").is_some(), || "anthropic-version is missing".into());
    let max_tokens = body["max_tokens"].as_u64().unwrap_or(0);
    found.rule(max_tokens >= 1, || "max_tokens is missing".into());
    let known = [
        "model",
        "max_tokens",
        "stream",
        "messages",
        "system",
        "tools",
        "thinking",
        "output_config",
        "tool_choice",
    ];
    for key in body.as_object().into_iter().flat_map(|fields| fields.keys()) {
        found.rule(known.contains(&key.as_str()), || format!("{key}: extra inputs are not permitted"));
    }
    let thinking = &body["thinking"];
    if thinking["type"] == "enabled" {
        let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
        found.rule(budget >= 1024 && budget < max_tokens, || {
            format!("budget_tokens is {budget} of {max_tokens}")
        });
    } else {
        found.rule(thinking["budget_tokens"].is_null(), || "budget_tokens without thinking enabled".into());
    }
    let tools = list(&body["tools"]);
    let custom = || tools.iter().filter(|tool| tool.get("type").is_none());
    check_tools(custom().map(|tool| (&tool["name"], &tool["input_schema"])), 128, found);
    for tool in tools {
        if tool.get("eager_input_streaming").is_some() {
            let fits = script.first_party && tool.get("type").is_none();
            found.rule(fits, || "eager_input_streaming: extra inputs are not permitted".into());
        }
        if tool.get("type").is_some() {
            found.rule(script.first_party, || "server tools are not supported".into());
        }
    }
    let marks = body.to_string().matches("\"cache_control\":").count();
    found.rule(marks <= MAX_MARKS, || format!("{marks} blocks have cache_control, {MAX_MARKS} may"));
    for part in list(&body["system"]) {
        found.rule(is_text(part), || "a part of system is empty".into());
    }
    check_messages(list(&body["messages"]), body["model"].as_str().unwrap_or_default(), thinking, found);
}

fn is_text(block: &Value) -> bool {
    block["type"] == "text" && block["text"].as_str().is_some_and(|text| !text.trim().is_empty())
}

fn check_messages(messages: &[Value], model: &str, thinking: &Value, found: &mut Violations) {
    found.rule(!messages.is_empty(), || "there are no messages".into());
    let mut expected = "user";
    let mut open: Vec<&str> = Vec::new();
    let mut used: HashSet<&str> = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        found.rule(role == expected, || format!("messages.{at}: the role is {role:?}, not {expected:?}"));
        expected = if role == "user" { "assistant" } else { "user" };
        let content = list(&message["content"]);
        found.rule(!content.is_empty(), || format!("messages.{at}: the content is empty"));
        let results: Vec<&str> = content.iter().filter_map(|block| block["tool_use_id"].as_str()).collect();
        let results: Vec<&str> = if role == "user" { results } else { Vec::new() };
        for id in &open {
            let answers = results.iter().filter(|result| *result == id).count();
            found.rule(answers == 1, || format!("messages.{at}: {answers} tool_result for tool_use {id}"));
        }
        for id in &results {
            found.rule(open.contains(id), || format!("messages.{at}: tool_result of {id} without a call"));
        }
        let first_other = content.iter().position(|block| block["type"] != "tool_result");
        let last_result = content.iter().rposition(|block| block["type"] == "tool_result");
        let in_front = !matches!((first_other, last_result), (Some(other), Some(result)) if other < result);
        found.rule(in_front, || format!("messages.{at}: a tool_result does not come first"));
        open.clear();
        for block in content {
            check_block(block, role, model, at, found);
            if block["type"] == "tool_use" {
                let id = block["id"].as_str().unwrap_or_default();
                found.rule(used.insert(id), || format!("messages.{at}: `tool_use` ids must be unique: {id}"));
                open.push(id);
            }
        }
        let thinks = |block: &Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
        let goes_on = at + 2 == messages.len() && !open.is_empty() && thinking["type"] == "enabled";
        found.rule(!goes_on || content.first().is_some_and(thinks), || {
            format!("messages.{at}: expected thinking before tool_use, since thinking is enabled")
        });
    }
    found.rule(open.is_empty(), || format!("nothing answers the calls {open:?}"));
}

fn check_block(block: &Value, role: &str, model: &str, at: usize, found: &mut Violations) {
    let kind = block["type"].as_str().unwrap_or_default();
    let whose = match kind {
        "text" => role,
        "image" | "tool_result" => "user",
        _ => "assistant",
    };
    found.rule(whose == role, || format!("messages.{at}: a {kind} block is not the {role}'s"));
    match kind {
        "text" => found.rule(is_text(block), || format!("messages.{at}: text must not be empty")),
        "image" => {
            let source = &block["source"];
            let fits = source["type"] == "base64" && source["data"].is_string();
            let known = ["image/jpeg", "image/png", "image/gif", "image/webp"];
            let kind = source["media_type"].as_str().unwrap_or_default();
            found.rule(fits && known.contains(&kind), || format!("messages.{at}: an image of type {kind:?}"));
        }
        "tool_use" => {
            found.rule(is_plain(block["id"].as_str(), 256), || {
                format!("messages.{at}: {} is not a valid id", block["id"])
            });
            let name = block["name"].as_str();
            found.rule(is_plain(name, 128), || format!("messages.{at}: {name:?} is not a valid tool name"));
            found.rule(block["input"].is_object(), || {
                format!("messages.{at}: the input of {name:?} must be an object")
            });
        }
        "tool_result" => {
            let content = list(&block["content"]);
            let fits = |part: &Value| is_text(part) || part["type"] == "image";
            found.rule(!content.is_empty() && content.iter().all(fits), || {
                format!("messages.{at}: a tool_result is empty or has invalid content")
            });
        }
        "thinking" => {
            let words = block["thinking"].as_str().unwrap_or_default();
            let fits = block["signature"] == sign(model, words) && block.get("cache_control").is_none();
            found.rule(fits, || format!("messages.{at}: invalid `signature` in `thinking` block"));
        }
        "redacted_thinking" => {
            let data = block["data"].as_str().unwrap_or_default();
            let fits =
                data.rsplit_once(':').is_some_and(|(words, signature)| signature == sign(model, words));
            found.rule(fits, || format!("messages.{at}: invalid data in `redacted_thinking` block"));
        }
        "server_tool_use" => {
            found.rule(block["input"].is_object(), || format!("messages.{at}: a search without its input"));
        }
        "web_search_tool_result" => {
            let whole = list(&block["content"]).iter().all(|found| found["encrypted_content"].is_string());
            found.rule(whole, || format!("messages.{at}: a search's results were changed"));
        }
        other => found.rule(false, || format!("messages.{at}: unknown block type {other:?}")),
    }
}
