//! Slack's rules for blocks.

use std::collections::HashSet;

use serde_json::Value;

const MAX_BLOCKS: usize = 50;
const MAX_TEXT: usize = 13_200;

pub(super) fn check(blocks: &Value) -> Result<(), String> {
    let invalid = || Err("invalid_blocks".to_owned());
    let Some(blocks) = blocks.as_array() else { return Err("invalid_blocks_format".to_owned()) };
    if blocks.len() > MAX_BLOCKS || !blocks.iter().all(is_block) {
        return invalid();
    }
    let mut ids = HashSet::new();
    for button in blocks.iter().filter_map(|block| block["elements"].as_array()).flatten() {
        if button["type"] == "button" && !ids.insert(button["action_id"].to_string()) {
            return invalid();
        }
    }
    let length: usize = blocks.iter().map(text_length).sum();
    if length > MAX_TEXT { Err("msg_blocks_too_long".to_owned()) } else { Ok(()) }
}

fn text_length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(values) => values.iter().map(text_length).sum(),
        Value::Object(fields) => {
            ["text", "elements", "url"].iter().filter_map(|name| fields.get(*name)).map(text_length).sum()
        }
        _ => 0,
    }
}

fn is_block(block: &Value) -> bool {
    let elements = || block["elements"].as_array().filter(|elements| !elements.is_empty());
    match block["type"].as_str() {
        Some("rich_text") => elements().is_some_and(|elements| elements.iter().all(is_rich_element)),
        Some("section") => is_text(&block["text"], 3_000),
        Some("actions") => {
            elements().is_some_and(|elements| elements.len() <= 25 && elements.iter().all(is_button))
        }
        Some("divider") => true,
        _ => false,
    }
}

fn is_rich_element(element: &Value) -> bool {
    let Some(children) = element["elements"].as_array().filter(|children| !children.is_empty()) else {
        return false;
    };
    match element["type"].as_str() {
        Some("rich_text_section" | "rich_text_quote") => children.iter().all(is_inline),
        Some("rich_text_preformatted") => {
            children.iter().all(|child| is_inline(child) && child["style"].is_null())
        }
        Some("rich_text_list") => {
            let is_item = |child: &Value| child["type"] == "rich_text_section" && is_rich_element(child);
            let style = element["style"].as_str();
            let indent = element["indent"].as_u64().unwrap_or(0);
            matches!(style, Some("bullet" | "ordered")) && indent <= 8 && children.iter().all(is_item)
        }
        _ => false,
    }
}

fn is_inline(element: &Value) -> bool {
    let has_text = |name: &str| element[name].as_str().is_some_and(|text| !text.is_empty());
    let known = ["bold", "italic", "strike", "code"];
    let is_styled = match &element["style"] {
        Value::Null => true,
        Value::Object(styles) => {
            styles.iter().all(|(name, set)| known.contains(&name.as_str()) && set.is_boolean())
        }
        _ => false,
    };
    is_styled
        && match element["type"].as_str() {
            Some("text") => has_text("text"),
            Some("link") => has_text("url") && (element["text"].is_null() || has_text("text")),
            Some("user") => has_text("user_id"),
            _ => false,
        }
}

fn is_text(text: &Value, limit: usize) -> bool {
    matches!(text["type"].as_str(), Some("mrkdwn" | "plain_text"))
        && text["text"].as_str().is_some_and(|text| (1..=limit).contains(&text.chars().count()))
}

fn is_button(element: &Value) -> bool {
    let value = element["value"].as_str().unwrap_or_default();
    let action = element["action_id"].as_str().unwrap_or_default();
    element["type"] == "button"
        && element["text"]["type"] == "plain_text"
        && is_text(&element["text"], 75)
        && value.len() <= 2_000
        && (1..=255).contains(&action.len())
}
