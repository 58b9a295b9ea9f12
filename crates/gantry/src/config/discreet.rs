//! What is wrong with a configuration, told without the secrets in it.

use std::ops::Range;

use gantry_tool::{Masker, Violation};
use serde_json::Value;

/// The values that stand under names of secrets.
pub(super) struct Secrets(Masker);

impl Secrets {
    pub(super) fn of(config: &Value) -> Secrets {
        let mut found = Vec::new();
        collect(config, false, &mut found);
        Secrets(Masker::new(found))
    }

    pub(super) fn hide(&self, violation: &mut Violation) {
        if violation.path.split('.').any(Masker::is_secret_name) {
            violation.message =
                "the value cannot be used here, and is not shown: it may be a secret".to_owned();
        }
        self.0.mask_text(&mut violation.message);
    }
}

fn collect(value: &Value, is_secret: bool, found: &mut Vec<String>) {
    match value {
        Value::String(text) if is_secret => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, is_secret, found)),
        Value::Object(object) => {
            for (name, item) in object {
                collect(item, is_secret || Masker::is_secret_name(name), found);
            }
        }
        _ => {}
    }
}

/// An error of the syntax: with the line it is about, unless that line may hold a secret.
pub(super) fn syntax(text: &str, span: Option<Range<usize>>, message: &str, whole: String) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else { return message.to_owned() };
    let number = before.matches('\n').count();
    let line = text.lines().nth(number).unwrap_or_default();
    if line.split(['=', '{', ',']).any(Masker::is_secret_name) {
        return format!("line {}, which is not shown since it may hold a secret: {message}", number + 1);
    }
    whole
}
