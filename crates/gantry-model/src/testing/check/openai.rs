//! The rules of chat completions, as in the strictest servers.

use serde_json::Value;

use super::{Violations, check_tools, is_plain, list};
use crate::testing::{Heard, Script};

pub(in super::super) fn check(heard: &Heard, script: &Script, found: &mut Violations) {
    let body = &heard.body;
    let bearer = format!("Bearer {}", script.key());
    found.rule(heard.header("authorization") == Some(&bearer), || "authorization is not the key".into());
    let (name, other) = if script.first_party {
        ("max_completion_tokens", "max_tokens")
    } else {
        ("max_tokens", "max_completion_tokens")
    };
    found.rule(body[name].as_u64().is_some_and(|tokens| tokens >= 1), || format!("{name} is missing"));
    found.rule(body[other].is_null(), || format!("{other} is not supported"));
    let options = &body["stream_options"];
    found.rule(options["include_usage"] == true, || "stream_options.include_usage is not true".into());
    let tools = list(&body["tools"]);
    found.rule(tools.iter().all(|tool| tool["type"] == "function"), || "a tool must be a function".into());
    found.rule(body["tools"].is_null() || !tools.is_empty(), || "tools is an empty list".into());
    let functions = tools.iter().map(|tool| &tool["function"]);
    check_tools(functions.map(|function| (&function["name"], &function["parameters"])), 64, found);
    check_messages(list(&body["messages"]), found);
}

fn check_messages(messages: &[Value], found: &mut Violations) {
    found.rule(!messages.is_empty(), || "there are no messages".into());
    let mut open: Vec<&str> = Vec::new();
    let mut before = "";
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        let content = &message["content"];
        match role {
            "system" => {
                found.rule(at == 0 && content.is_string(), || format!("messages.{at}: system comes first"))
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let known = open.iter().position(|call| *call == id);
                found.rule(known.is_some(), || {
                    format!("messages.{at}: a result of {id:?} without an open call")
                });
                if let Some(at) = known {
                    open.remove(at);
                }
                found.rule(content.as_str().is_some_and(|text| !text.is_empty()), || {
                    format!("messages.{at}: a result must be text")
                });
            }
            "user" | "assistant" => {
                found.rule(open.is_empty(), || format!("messages.{at}: nothing answers the calls {open:?}"));
                // After results a user message may follow, because there is no other place for
                // images.
                found.rule(before != role, || format!("messages.{at}: {role} twice in a row"));
                if role == "user" {
                    check_content(content, at, found);
                } else {
                    open = check_assistant(message, at, found);
                }
            }
            other => found.rule(false, || format!("messages.{at}: unknown role {other:?}")),
        }
        before = role;
    }
    found.rule(open.is_empty(), || format!("nothing answers the calls {open:?}"));
}

fn check_content(content: &Value, at: usize, found: &mut Violations) {
    let fits = match content {
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(parts) => {
            let fits = |part: &Value| match part["type"].as_str() {
                Some("text") => part["text"].as_str().is_some_and(|text| !text.trim().is_empty()),
                Some("image_url") => {
                    part["image_url"]["url"].as_str().is_some_and(|url| url.starts_with("data:image/"))
                }
                _ => false,
            };
            !parts.is_empty() && parts.iter().all(fits)
        }
        _ => false,
    };
    found.rule(fits, || format!("messages.{at}: the content is empty or has invalid content"));
}

fn check_assistant<'a>(message: &'a Value, at: usize, found: &mut Violations) -> Vec<&'a str> {
    let calls = list(&message["tool_calls"]);
    let says = message["content"].as_str().is_some_and(|text| !text.is_empty());
    let text = message["content"].is_string() || message["content"].is_null();
    found.rule(text, || format!("messages.{at}: the content must be text"));
    found.rule(says || !calls.is_empty(), || {
        format!("messages.{at}: an assistant message without text and calls")
    });
    let mut open = Vec::new();
    for call in calls {
        let id = call["id"].as_str().unwrap_or_default();
        found.rule(is_plain(Some(id), 40), || {
            format!("messages.{at}: the id {id:?} is empty, longer than 40 or of other characters")
        });
        found.rule(!open.contains(&id), || format!("messages.{at}: two calls have the id {id}"));
        open.push(id);
        found.rule(call["type"] == "function", || format!("messages.{at}: a call must be a function"));
        let name = call["function"]["name"].as_str();
        found.rule(is_plain(name, 64), || format!("messages.{at}: {name:?} is not a valid function name"));
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let object = serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object());
        found.rule(object, || {
            format!("messages.{at}: the arguments of {name:?} must be an object: {arguments}")
        });
    }
    open
}
