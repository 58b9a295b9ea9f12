//! Checks the rules that providers document for requests. Each violation is one sentence.

use serde_json::Value;

use super::script::Script;
use super::{Heard, MAX_REQUEST_BYTES};
use crate::provider::ProviderKind;

mod anthropic;
mod openai;

pub(super) fn violations(heard: &Heard, script: &Script) -> Vec<String> {
    let mut found = Violations { violations: Vec::new() };
    if heard.bytes > MAX_REQUEST_BYTES {
        found.rule(false, || format!("the request has {} bytes", heard.bytes));
    }
    let json = heard.header("content-type").is_some_and(|kind| kind.starts_with("application/json"));
    found.rule(json, || "content-type is not application/json".into());
    let model = heard.body["model"].as_str().unwrap_or_default();
    found.rule(script.models().iter().any(|known| known == model), || format!("unknown model {model:?}"));
    found.rule(heard.body["stream"] == true, || "stream is not true".into());
    match heard.kind() {
        ProviderKind::Anthropic => anthropic::check(heard, script, &mut found),
        ProviderKind::Openai => openai::check(heard, script, &mut found),
    }
    if let Some(window) = script.window {
        let tokens = heard.bytes / 3;
        found.rule(tokens <= window, || format!("prompt is too long: {tokens} tokens > {window} maximum"));
    }
    found.violations
}

pub(super) struct Violations {
    violations: Vec<String>,
}

impl Violations {
    pub(super) fn rule(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(message());
        }
    }
}

/// Reports whether a name or an id uses only characters that every API accepts.
fn is_plain(text: Option<&str>, longest: usize) -> bool {
    text.is_some_and(|text| {
        !text.is_empty()
            && text.len() <= longest
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Checks that tools have distinct plain names and object schemas.
fn check_tools<'a>(
    tools: impl Iterator<Item = (&'a Value, &'a Value)>,
    longest: usize,
    found: &mut Violations,
) {
    let mut names = Vec::new();
    for (name, schema) in tools {
        let name = name.as_str();
        found.rule(is_plain(name, longest), || format!("{name:?} is not a valid tool name"));
        found.rule(!names.contains(&name), || format!("two tools are named {name:?}"));
        names.push(name);
        found.rule(schema["type"] == "object", || format!("the schema of {name:?} must be of type object"));
    }
}
