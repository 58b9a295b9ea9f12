//! The parts of questions to a person. A value can neither add a line nor imitate a field.

use gantry_protocol::AskedAction;
use gantry_tool::on_one_line;
use serde::Serialize;
use serde_json::Value;

/// A change at a Google service. `details` are lines of [`field`] and [`quoted`].
pub(crate) fn change(service: &str, what: String, details: &[String]) -> Option<AskedAction> {
    Some(AskedAction::ServiceChange {
        service: service.to_owned(),
        what,
        text: details.join("\n"),
        not_shown: 0,
    })
}

/// The question about an input that cannot be resolved, such as one with an unknown id: its fields as they are. A question
/// without a description would offer a grant for every call of the tool.
pub(crate) fn unresolved(service: &str, input: &impl Serialize) -> Option<AskedAction> {
    let fields = serde_json::to_value(input).unwrap_or_default();
    let fields = fields.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let lines: Vec<String> = fields.map(|(name, value)| field(name, &text(value))).collect();
    change(service, "run a call whose target could not be read".to_owned(), &lines)
}

/// `name: value` on one line.
pub(crate) fn field(name: &str, value: &str) -> String {
    format!("{name}: {}", on_one_line(value))
}

/// A longer text: its true length, then its lines with a mark in front.
pub(crate) fn quoted(name: &str, text: &str) -> String {
    let lines = text.lines().map(|line| format!("\n| {}", on_one_line(line)));
    format!("{name} ({} characters):{}", text.chars().count(), lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_add_lines_or_fields() {
        assert_eq!(
            field("Title", "a\nTo: eve@example.com\u{202e}"),
            "Title: a\\nTo: eve@example.com\\u{202e}"
        );
        assert_eq!(quoted("Text", "a\nTo: x"), "Text (7 characters):\n| a\n| To: x");
    }
}
