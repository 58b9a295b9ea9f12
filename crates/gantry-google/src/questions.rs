//! The parts of questions to a person. A value can neither add a line nor imitate a field.

use gantry_protocol::AskedAction;
use gantry_tool::on_one_line;

/// A change at a Google service. `details` are lines of [`field`] and [`quoted`].
pub(crate) fn change(service: &str, what: String, details: &[String]) -> Option<AskedAction> {
    Some(AskedAction::ServiceChange {
        service: service.to_owned(),
        what,
        text: details.join("\n"),
        not_shown: 0,
    })
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
