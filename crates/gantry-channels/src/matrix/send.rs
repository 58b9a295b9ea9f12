//! Sends: each message is a notice with a transaction id, which the homeserver accepts once.

use bytes::Bytes;
use gantry_net::{Method, StatusCode};
use serde_json::{Value, json};

use super::Matrix;
use super::api::{ApiError, Call, CallBody};
use super::event::{is_id, mxc};
use crate::adapter::{Content, Outbound, SendOutcome};
use crate::address::PeerKind;
use crate::render::{html, plain};

/// The most bytes of a text with its HTML, in JSON. An edit holds them twice, and an event has at most 65,536.
pub(super) const MAX_TEXT: usize = 28_000;
pub(super) const MAX_FILE: usize = 50 << 20;
const UPLOAD_LIMIT: std::time::Duration = std::time::Duration::from_secs(180);
const MAX_NAME: usize = 255;

/// The bytes that a text needs in an event.
pub(super) fn measure(markdown: &str) -> usize {
    json!(plain::render(markdown)).to_string().len() + json!(html::render(markdown)).to_string().len()
}

pub(super) async fn send(matrix: &Matrix, message: &Outbound) -> SendOutcome {
    let room = &message.address.chat;
    if !is_id(room, '!') {
        return SendOutcome::Refused(
            "the receiver is not a Matrix room; its id starts with \"!\"".to_owned(),
        );
    }
    let ids = [message.address.thread.as_deref(), message.reply_to.as_deref()];
    if ids.into_iter().flatten().any(|id| !is_id(id, '$')) {
        return SendOutcome::Refused("the thread or the message to answer is not a Matrix event".to_owned());
    }
    match matrix.rooms.room(&matrix.api, room).await {
        Ok(found) if found.is_encrypted => {
            return SendOutcome::Refused(
                "the room is encrypted, which is not supported; use another room".to_owned(),
            );
        }
        Ok(found) if message.address.kind == PeerKind::Dm && !found.is_dm() => {
            return SendOutcome::Refused(
                "other people joined the room, so it is not a chat of two any more; write to the agent in another room"
                    .to_owned(),
            );
        }
        Ok(_) => {}
        Err(err) => return err.to_outcome(),
    }
    match content(matrix, message).await {
        Ok(content) => put(matrix, message, content).await.unwrap_or_else(|err| err.to_outcome()),
        Err(outcome) => outcome,
    }
}

async fn put(matrix: &Matrix, message: &Outbound, mut content: Value) -> Result<SendOutcome, ApiError> {
    let path = ["client", "v3", "rooms", &message.address.chat, "send", "m.room.message", &message.key];
    let attempt = |content: Value| matrix.api.json(Call::new(Method::PUT, &path, CallBody::Json(content)));
    let sent = match attempt(content.clone()).await {
        Err(err) if err.code() == "M_TOO_LARGE" && content.get("formatted_body").is_some() => {
            remove_formatting(&mut content);
            attempt(content).await?
        }
        sent => sent?,
    };
    Ok(SendOutcome::Sent { message_id: sent["event_id"].as_str().map(str::to_owned) })
}

fn remove_formatting(content: &mut Value) {
    for place in ["", "/m.new_content"] {
        if let Some(Value::Object(fields)) = content.pointer_mut(place) {
            fields.remove("format");
            fields.remove("formatted_body");
        }
    }
}

async fn content(matrix: &Matrix, message: &Outbound) -> Result<Value, SendOutcome> {
    let mut content = match &message.content {
        Content::Text(markdown) | Content::Question { markdown, .. } => text(markdown),
        Content::Edit { message_id, markdown } => return edit(message_id, markdown),
        Content::File { name, mime, bytes, caption } => {
            let url = upload(matrix, name, mime, bytes).await?;
            file(name, mime, bytes.len(), caption, &url)
        }
    };
    if let Some(relation) = relation(message) {
        content["m.relates_to"] = relation;
    }
    Ok(content)
}

/// A notice, so that other bots do not answer it. It mentions nobody, and asks for no previews of its links.
fn text(markdown: &str) -> Value {
    json!({
        "msgtype": "m.notice",
        "body": plain::render(markdown),
        "format": "org.matrix.custom.html",
        "formatted_body": html::render(markdown),
        "m.mentions": {},
        "com.beeper.linkpreviews": [],
    })
}

fn edit(message_id: &str, markdown: &str) -> Result<Value, SendOutcome> {
    if !is_id(message_id, '$') {
        return Err(SendOutcome::Refused("the message to change is not a Matrix event".to_owned()));
    }
    let new = text(markdown);
    let mut content = new.clone();
    content["body"] = json!(format!("* {}", plain::render(markdown)));
    content["m.new_content"] = new;
    content["m.relates_to"] = json!({"rel_type": "m.replace", "event_id": message_id});
    Ok(content)
}

fn relation(message: &Outbound) -> Option<Value> {
    let reply_to = message.reply_to.as_deref();
    match &message.address.thread {
        Some(root) => Some(json!({
            "rel_type": "m.thread",
            "event_id": root,
            // Clients without threads show a reply instead.
            "is_falling_back": reply_to.is_none(),
            "m.in_reply_to": {"event_id": reply_to.unwrap_or(root)},
        })),
        None => reply_to.map(|event| json!({"m.in_reply_to": {"event_id": event}})),
    }
}

fn file(name: &str, mime: &str, size: usize, caption: &str, url: &str) -> Value {
    let kind = match mime.split('/').next() {
        // Browsers run scripts in SVG pictures.
        _ if mime.starts_with("image/svg") => "m.file",
        Some("image") => "m.image",
        Some("audio") => "m.audio",
        Some("video") => "m.video",
        _ => "m.file",
    };
    let name = file_name(name);
    let body = if caption.is_empty() { name.clone() } else { plain::render(caption) };
    let mut content = json!({
        "msgtype": kind,
        "body": body,
        "filename": name,
        "url": url,
        "info": {"mimetype": mime, "size": size},
        "m.mentions": {},
    });
    if !caption.is_empty() {
        content["format"] = json!("org.matrix.custom.html");
        content["formatted_body"] = json!(html::render(caption));
    }
    content
}

fn file_name(name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    if name.is_empty() { "file".to_owned() } else { name }
}

/// Uploads a file and returns its address. A repetition leaves an unused upload behind, never a second message.
async fn upload(matrix: &Matrix, name: &str, mime: &str, bytes: &Bytes) -> Result<String, SendOutcome> {
    let name = file_name(name);
    let query = [("filename", name.as_str())];
    let body = CallBody::File { mime: mime.to_owned(), bytes: bytes.clone() };
    let mut call = Call::new(Method::POST, &["media", "v3", "upload"], body);
    call.query = &query;
    call.within = UPLOAD_LIMIT;
    let answer = matrix.api.json(call).await.map_err(|err| match err.status() {
        Some(StatusCode::PAYLOAD_TOO_LARGE) => {
            SendOutcome::Refused(format!("the homeserver does not take files of {} bytes", bytes.len()))
        }
        _ => err.to_outcome(),
    })?;
    let url = answer["content_uri"].as_str().filter(|url| mxc(url).is_some());
    url.map(str::to_owned).ok_or_else(|| SendOutcome::Retry {
        why: "the homeserver's answer to an upload has no address".to_owned(),
        after: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_text_fits_into_an_event_even_as_an_edit() {
        for piece in ["a", "**ä** ", "\"\\\n", "<&> ", "- x\n"] {
            let count = (1..=MAX_TEXT).rev().find(|count| count * piece.len() < MAX_TEXT).unwrap_or(1);
            let longest =
                (0..count).step_by(100).rev().find(|count| measure(&piece.repeat(*count)) <= MAX_TEXT);
            let markdown = piece.repeat(longest.unwrap());
            let event = edit("$event", &markdown).unwrap().to_string();
            assert!(event.len() < 62_000, "{} for {piece:?}", event.len());
        }
    }

    #[test]
    fn formatting_is_removed_everywhere() {
        let mut content = edit("$event", "**a**").unwrap();
        remove_formatting(&mut content);
        assert!(!content.to_string().contains("format"), "{content}");
        assert_eq!(content["m.new_content"]["body"], "a");
    }

    #[test]
    fn pictures_that_can_run_scripts_are_sent_as_files() {
        assert_eq!(file("a.svg", "image/svg+xml", 1, "", "mxc://a/b")["msgtype"], "m.file");
        assert_eq!(file("a.png", "image/png", 1, "", "mxc://a/b")["msgtype"], "m.image");
        assert_eq!(file("a\r\nb", "text/plain", 1, "", "mxc://a/b")["filename"], "ab");
    }
}
