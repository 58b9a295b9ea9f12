//! The limits that Meta documents for messages and files.

use serde_json::Value;

use super::Upload;

type Checked = Result<(), String>;

/// The types of files that the API takes.
const MIMES: [&str; 16] = [
    "application/msword",
    "application/pdf",
    "application/vnd.ms-excel",
    "application/vnd.ms-powerpoint",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "audio/aac",
    "audio/amr",
    "audio/mp4",
    "audio/mpeg",
    "audio/ogg",
    "image/jpeg",
    "image/png",
    "text/plain",
    "video/mp4",
];

/// Checks a message or a read receipt.
pub(super) fn message(body: &Value, uploads: &[Upload]) -> Checked {
    require(body["messaging_product"] == "whatsapp", "messaging_product must be whatsapp")?;
    if body["status"] == "read" {
        let is_typing = body.get("typing_indicator").is_none_or(|typing| typing["type"] == "text");
        return require(is_typing && body["message_id"].is_string(), "message_id is required");
    }
    let (to, recipient) = (body["to"].as_str(), body["recipient"].as_str());
    require(to.is_some() != recipient.is_some(), "exactly one of to and recipient is required")?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match body["recipient_type"].as_str() {
        Some("group") => {}
        Some("individual") | None => {
            require(to.is_none_or(is_number), "to must be a phone number")?;
            require(recipient.is_none_or(|id| id.get(2..3) == Some(".")), "recipient must be a BSUID")?;
        }
        Some(_) => return Err("recipient_type is invalid".to_owned()),
    }
    if let Some(context) = body.get("context") {
        length(&context["message_id"], 1, 512, "context.message_id")?;
    }
    if let Some(data) = body.get("biz_opaque_callback_data") {
        length(data, 1, 512, "biz_opaque_callback_data")?;
    }
    let kind = body["type"].as_str().unwrap_or("text");
    let content = &body[kind];
    match kind {
        "text" => length(&content["body"], 1, 4_096, "text.body"),
        "interactive" => interactive(content),
        "image" | "audio" | "video" | "document" => {
            let is_known = uploads.iter().any(|upload| content["id"] == upload.id.as_str());
            require(is_known || content["link"].is_string(), "the media id is unknown")?;
            require(kind != "audio" || content.get("caption").is_none(), "audio has no caption")?;
            optional(content, "caption", 1_024)
        }
        "template" => template(content),
        "reaction" => require(content["message_id"].is_string(), "reaction.message_id is required"),
        other => Err(format!("the type {other} is unknown")),
    }
}

fn interactive(content: &Value) -> Checked {
    length(&content["body"]["text"], 1, 1_024, "interactive.body.text")?;
    let action = &content["action"];
    let mut ids: Vec<&str> = Vec::new();
    match content["type"].as_str() {
        Some("button") => {
            let buttons = action["buttons"].as_array().ok_or("buttons are required")?;
            require((1..=3).contains(&buttons.len()), "1 to 3 buttons are allowed")?;
            let mut titles: Vec<&str> = Vec::new();
            for button in buttons {
                require(button["type"] == "reply", "a button must be of the type reply")?;
                length(&button["reply"]["title"], 1, 20, "button title")?;
                length(&button["reply"]["id"], 1, 256, "button id")?;
                titles.extend(button["reply"]["title"].as_str());
                ids.extend(button["reply"]["id"].as_str());
            }
            titles.sort_unstable();
            titles.dedup();
            require(titles.len() == buttons.len(), "titles of buttons must differ")?;
        }
        Some("list") => {
            length(&action["button"], 1, 20, "list button")?;
            let sections = action["sections"].as_array().ok_or("sections are required")?;
            let rows: Vec<&Value> =
                sections.iter().filter_map(|section| section["rows"].as_array()).flatten().collect();
            require((1..=10).contains(&rows.len()), "1 to 10 rows are allowed")?;
            for row in rows {
                length(&row["title"], 1, 24, "row title")?;
                length(&row["id"], 1, 200, "row id")?;
                optional(row, "description", 72)?;
                ids.extend(row["id"].as_str());
            }
        }
        _ => return Err("interactive.type is invalid".to_owned()),
    }
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    require(ids.len() == all, "ids must differ")
}

fn template(content: &Value) -> Checked {
    length(&content["name"], 1, 512, "template.name")?;
    length(&content["language"]["code"], 2, 10, "template.language.code")?;
    for component in content["components"].as_array().into_iter().flatten() {
        for parameter in component["parameters"].as_array().into_iter().flatten() {
            length(&parameter["text"], 1, 1_024, "parameter")?;
            let text = parameter["text"].as_str().unwrap_or_default();
            let is_bad = text.contains(['\n', '\t']) || text.contains("     ");
            require(!is_bad, "parameters cannot have line ends, tabs or more than 4 blanks")?;
        }
    }
    Ok(())
}

/// Checks the fields of an upload.
pub(super) fn upload(parts: &[(String, Option<String>, Vec<u8>)], number: u64) -> Result<Upload, String> {
    let field = |name: &str| parts.iter().find(|(known, ..)| known == name);
    let text = |name: &str| field(name).map(|(.., value)| String::from_utf8_lossy(value).into_owned());
    require(text("messaging_product").as_deref() == Some("whatsapp"), "messaging_product is required")?;
    let (_, name, bytes) = field("file").ok_or("file is required")?;
    let mime = text("type").ok_or("type is required")?;
    require(MIMES.contains(&mime.as_str()), "the type of the file is not supported")?;
    let limit = match mime.split('/').next() {
        Some("image") => 5 << 20,
        Some("audio" | "video") => 16 << 20,
        _ => 100 << 20,
    };
    require(bytes.len() <= limit, "the file is too large")?;
    Ok(Upload {
        id: (9_000_000 + number).to_string(),
        name: name.clone().unwrap_or_default(),
        mime,
        bytes: bytes.clone(),
    })
}

fn optional(content: &Value, field: &str, most: usize) -> Checked {
    content.get(field).map_or(Ok(()), |value| length(value, 1, most, field))
}

fn length(value: &Value, least: usize, most: usize, what: &str) -> Checked {
    let length = value.as_str().map(|text| text.chars().count());
    let is_valid = length.is_some_and(|length| (least..=most).contains(&length));
    require(is_valid, &format!("{what} must have {least} to {most} characters"))
}

fn require(holds: bool, why: &str) -> Checked {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}
