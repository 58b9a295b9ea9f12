//! Reports errors of a configuration without the secrets in it.

use std::ops::Range;

use gantry_tool::{Masker, Violation};
use serde_json::Value;

/// Maximum length of one message, which may quote the configuration.
const MAX_MESSAGE_CHARS: usize = 500;

/// Longer lines are quoted only around the error.
const MAX_LINE_CHARS: usize = 100;

/// The values of keys whose names look secret.
pub(super) struct Secrets(Masker);

impl Secrets {
    pub(super) fn of(config: &Value) -> Secrets {
        let mut found = Vec::new();
        collect(config, false, &mut found);
        Secrets(Masker::new(found))
    }

    pub(super) fn hide(&self, violation: &mut Violation) {
        if violation.path.split('.').any(Masker::is_secret_name) {
            violation.message = "the value is invalid; it is not shown because it may be a secret".to_owned();
        }
        self.0.mask_text(&mut violation.message);
        violation.message = cut(&violation.message, MAX_MESSAGE_CHARS);
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

/// Describes a syntax error, with its line unless that may contain a secret.
pub(super) fn syntax(text: &str, span: Option<Range<usize>>, message: &str, whole: String) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else { return message.to_owned() };
    let number = before.matches('\n').count();
    let line = text.lines().nth(number).unwrap_or_default();
    if line.split(['=', '{', ',']).any(Masker::is_secret_name) {
        return format!("line {} (not shown because it may contain a secret): {message}", number + 1);
    }
    if line.chars().nth(MAX_LINE_CHARS).is_some() || whole.chars().nth(MAX_MESSAGE_CHARS).is_some() {
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        let around = line.chars().skip(column.saturating_sub(MAX_LINE_CHARS / 2)).take(MAX_LINE_CHARS);
        let around: String = around.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let message = cut(message, MAX_MESSAGE_CHARS);
        return format!("line {}, column {}, at \"…{around}…\": {message}", number + 1, column + 1);
    }
    whole
}

fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_line_is_shown_around_the_error_only() {
        let text = format!("a = 1\nb = \"{}\" ?{}\n", "x".repeat(300_000), "y".repeat(300_000));
        let at = text.find('?').unwrap();
        let error = syntax(&text, Some(at..at + 1), "expected a newline", "w".repeat(600_000));
        assert!(
            error.starts_with("line 2, column 300008, at \"…xxx") && error.len() < 300,
            "{}",
            error.len()
        );
        assert!(error.ends_with("expected a newline"), "{error}");
        assert_eq!(syntax("a = ?", Some(4..5), "m", "whole".into()), "whole");
        let long = syntax("a = ?", Some(4..5), &"m".repeat(9_000), "w".repeat(9_000));
        assert!(long.chars().count() < 700, "{}", long.len());
    }

    #[test]
    fn a_message_does_not_repeat_all_that_was_written() {
        let mut violation = Violation { path: "a".into(), message: "é".repeat(9_000) };
        Secrets::of(&Value::Null).hide(&mut violation);
        assert_eq!(violation.message.chars().count(), MAX_MESSAGE_CHARS + 1);
    }
}
