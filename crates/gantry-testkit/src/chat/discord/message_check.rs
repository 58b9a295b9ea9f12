//! Checks messages as Discord does.

use serde_json::{Map, Value};

const MAX_TEXT: usize = 2_000;
const MAX_NONCE: usize = 25;
/// What a bot may set: no previews, no notification.
const ALLOWED_FLAGS: u64 = 1 << 2 | 1 << 12;
const FIELDS: [&str; 14] = [
    "content",
    "nonce",
    "enforce_nonce",
    "tts",
    "embeds",
    "embed",
    "flags",
    "allowed_mentions",
    "message_reference",
    "components",
    "attachments",
    "sticker_ids",
    "poll",
    "shared_client_theme",
];

/// Checks a message. `files` is the number of its files. Returns the code of the refusal.
pub(super) fn check(message: &Value, files: usize, is_edit: bool) -> Result<(), u64> {
    const INVALID: u64 = 50_035;
    let Some(message) = message.as_object() else { return Err(50_109) };
    if message.keys().any(|field| !FIELDS.contains(&field.as_str())) {
        return Err(INVALID);
    }
    let content = match message.get("content") {
        None | Some(Value::Null) => "",
        Some(Value::String(content)) => content,
        Some(_) => return Err(INVALID),
    };
    if content.chars().count() > MAX_TEXT {
        return Err(INVALID);
    }
    let has_embeds = message.get("embeds").and_then(Value::as_array).is_some_and(|embeds| !embeds.is_empty());
    if content.trim().is_empty() && files == 0 && !has_embeds && !is_edit {
        return Err(50_006);
    }
    let is_valid = is_nonce(message.get("nonce"))
        && message
            .get("flags")
            .is_none_or(|flags| flags.as_u64().is_some_and(|flags| flags & !ALLOWED_FLAGS == 0))
        && message.get("allowed_mentions").is_none_or(are_mentions)
        && message.get("components").is_none_or(are_rows)
        && message.get("enforce_nonce").is_none_or(Value::is_boolean)
        && are_attachments(message, files);
    if is_valid { Ok(()) } else { Err(INVALID) }
}

fn is_nonce(nonce: Option<&Value>) -> bool {
    match nonce {
        None | Some(Value::Null) => true,
        Some(Value::String(nonce)) => nonce.chars().count() <= MAX_NONCE,
        Some(nonce) => nonce.is_i64() || nonce.is_u64(),
    }
}

fn are_mentions(mentions: &Value) -> bool {
    let Some(mentions) = mentions.as_object() else { return mentions.is_null() };
    let kinds = mentions.get("parse").and_then(Value::as_array);
    let kinds = kinds.into_iter().flatten();
    let fields = ["parse", "users", "roles", "replied_user"];
    mentions.keys().all(|field| fields.contains(&field.as_str()))
        && kinds.into_iter().all(|kind| matches!(kind.as_str(), Some("users" | "roles" | "everyone")))
}

fn are_rows(rows: &Value) -> bool {
    let Some(rows) = rows.as_array() else { return rows.is_null() };
    let mut ids: Vec<&str> = Vec::new();
    rows.len() <= 5
        && rows.iter().all(|row| {
            let buttons = row["components"].as_array().filter(|_| row["type"] == 1);
            buttons.is_some_and(|buttons| {
                (1..=5).contains(&buttons.len())
                    && buttons.iter().all(|button| {
                        let id = button["custom_id"].as_str().unwrap_or_default();
                        let label = button["label"].as_str().unwrap_or_default().chars().count();
                        let is_new = !ids.contains(&id);
                        ids.push(id);
                        button["type"] == 2
                            && button["style"].as_u64().is_some_and(|style| (1..=4).contains(&style))
                            && (1..=100).contains(&id.chars().count())
                            && (1..=80).contains(&label)
                            && is_new
                    })
            })
        })
}

/// Each description of a file belongs to a file.
fn are_attachments(message: &Map<String, Value>, files: usize) -> bool {
    let listed = message.get("attachments").and_then(Value::as_array);
    listed.is_none_or(|listed| {
        listed.iter().all(|file| {
            let id = file["id"].as_u64().or_else(|| file["id"].as_str()?.parse().ok());
            id.is_some_and(|id| id < files as u64)
        })
    })
}
