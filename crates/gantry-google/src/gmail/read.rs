//! `read`: one message, and its attachments on request.

use gantry_tool::ToolError;

use super::message::{StoredMessage, full, stored_bytes};
use super::{Ctx, Input};
use crate::file_place;
use crate::ids::{object_id, required};
use crate::mail::{Content, Mailbox, Part};
use crate::others_words::{fenced, line};
use crate::times;

/// More attachments than this are only counted.
const LISTED_ATTACHMENTS: usize = 50;
/// How many parts of a text are loaded separately.
const MAX_LOADED_PARTS: usize = 10;

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state.google;
    let id = object_id("message_id", required("read", "message_id", input.message_id.as_deref())?)?;
    let save = match (input.attachment, &input.save_to) {
        (None, None) => None,
        (Some(number), Some(path)) => Some((number, path.as_str())),
        _ => return Err(ToolError::input("attachment and save_to belong together: give both, or neither")),
    };
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let message = full(ctx, &account, id).await?;
    match save {
        None => show(ctx, &account, message).await,
        Some((number, path)) => save_attachment(ctx, &account, message, number, path).await,
    }
}

async fn show(ctx: &Ctx, account: &str, message: StoredMessage) -> Result<String, ToolError> {
    let date = message.received().map(|at| times::shown(at, &ctx.state.google.zone)).unwrap_or_default();
    let unread = if message.is_unread() { ", unread" } else { "" };
    let (id, thread) = (message.id.clone(), message.thread_id.clone());
    let labels = message.label_ids.join(", ");
    let head = format!(
        "Message {id}, thread {thread}{unread}. Date: {date}. Account: {account}.\nLabels: {}",
        line(&labels, 500)
    );
    let mut lines = headers(&message);
    let mut part = message.part();
    for part in part.unloaded_text().into_iter().take(MAX_LOADED_PARTS) {
        if let Content::Stored { id: stored, .. } = &part.content {
            part.content = Content::Bytes(stored_bytes(ctx, account, &id, stored).await?);
        }
    }
    let body = part.text();
    lines.push(String::new());
    lines.push(if body.text.is_empty() { "(no text)".to_owned() } else { body.text });
    lines.extend(body.notes.iter().map(|note| format!("({note})")));
    lines.extend(attachments(&part));
    Ok(format!("{head}\n{}", fenced(&format!("message {id}"), &lines.join("\n"))))
}

fn headers(message: &StoredMessage) -> Vec<String> {
    let headers = message.headers();
    let mut lines = vec![format!("Subject: {}", line(&headers.subject, 500))];
    for (name, list) in
        [("From", &headers.from), ("Reply-To", &headers.reply_to), ("To", &headers.to), ("Cc", &headers.cc)]
    {
        if !list.is_empty() {
            let shown: Vec<String> = list.iter().map(Mailbox::shown).collect();
            lines.push(format!("{name}: {}", line(&shown.join(", "), 2_000)));
        }
    }
    if let Some(id) = &headers.message_id {
        lines.push(format!("Message-ID: <{id}>"));
    }
    let checks = message.sender_checks().unwrap_or_else(|| "none".to_owned());
    lines.push(format!("Sender checks by Gmail: {}", line(&checks, 300)));
    lines
}

fn attachments(part: &Part) -> Vec<String> {
    let files = part.attachments();
    if files.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "Attachments:".to_owned()];
    lines.extend(files.iter().take(LISTED_ATTACHMENTS).map(|file| {
        let name = if file.name.is_empty() { "(no name)".to_owned() } else { line(&file.name, 200) };
        format!("{}. {name} ({}, {} bytes)", file.number, line(file.mime, 100), file.size)
    }));
    if let Some(more) = files.len().checked_sub(LISTED_ATTACHMENTS).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    lines
}

async fn save_attachment(
    ctx: &Ctx,
    account: &str,
    message: StoredMessage,
    number: u32,
    path: &str,
) -> Result<String, ToolError> {
    let id = message.id.clone();
    let part = message.part();
    let files = part.attachments();
    let Some(file) = files.iter().find(|file| file.number == number as usize) else {
        let count = files.len();
        return Err(ToolError::input(format!("the message {id} has no attachment {number}; it has {count}")));
    };
    let bytes = match file.content {
        Content::Stored { id: stored, .. } => stored_bytes(ctx, account, &id, stored).await?,
        Content::Bytes(bytes) => bytes.clone(),
        Content::Text(text) => text.clone().into_bytes(),
        Content::Parts(_) => Vec::new(),
    };
    let (name, size) = (line(&file.name, 200), bytes.len());
    file_place::create(&ctx.state.google.files, &ctx.call, path, bytes).await?;
    let saved = format!("Saved attachment {number} of message {id} to {}: {size} bytes.", line(path, 500));
    Ok(format!("{saved}\n{}", fenced(&format!("message {id}"), &format!("Name: {name}"))))
}
