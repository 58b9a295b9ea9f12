//! Sends messages, questions, edits and files.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Telegram;
use super::api::CallError;
use crate::adapter::{Button, Content, Outbound, SendOutcome};
use crate::connection::REQUEST_LIMIT;
use crate::multipart::Multipart;
use crate::render::{self, telegram::Message};

/// The time for the upload of a file.
const UPLOAD_LIMIT: Duration = Duration::from_secs(300);
const MAX_CAPTION: usize = 1024;
/// Larger pictures are sent as documents.
const MAX_PHOTO: usize = 10 << 20;
const MAX_CALLBACK_DATA: usize = 64;

impl Telegram {
    pub(super) async fn send_message(&self, message: &Outbound) -> SendOutcome {
        let mut chat = self.current_chat(&message.address.chat);
        let mut formatting = Formatting::Entities;
        // Each problem is fixed at most once: another chat id, no formatting, a document instead of a photo.
        for _ in 0..3 {
            let err = match self.attempt(message, &chat, formatting).await {
                Ok(outcome) => return outcome,
                Err(err) => err,
            };
            match &err {
                CallError::Rejected { migrate_to: Some(to), .. } => {
                    self.migrated(&message.address.chat, &to.to_string());
                    chat = to.to_string();
                }
                CallError::Rejected { code: 400, description, .. } if is_unchanged(description) => {
                    return SendOutcome::Sent { message_id: edited_id(message) };
                }
                CallError::Rejected { code: 400, description, .. }
                    if formatting == Formatting::Entities && is_about_formatting(description) =>
                {
                    formatting = Formatting::Plain;
                }
                _ => return err.to_outcome(),
            }
        }
        SendOutcome::Refused("Telegram rejected the message in every form".to_owned())
    }

    async fn attempt(
        &self,
        message: &Outbound,
        chat: &str,
        formatting: Formatting,
    ) -> Result<SendOutcome, CallError> {
        let refused = |why: &str| Ok(SendOutcome::Refused(why.to_owned()));
        let Ok(chat) = chat.parse::<i64>() else { return refused("the chat's id must be a number") };
        let mut fields = Map::new();
        fields.insert("chat_id".to_owned(), chat.into());
        let number = |text: &Option<String>| text.as_ref().map(|text| text.parse::<i64>());
        match number(&message.address.thread) {
            Some(Ok(thread)) => drop(fields.insert("message_thread_id".to_owned(), thread.into())),
            Some(Err(_)) => return refused("the topic's id must be a number"),
            None => {}
        }
        if let Some(Ok(answered)) = number(&message.reply_to) {
            let reply = json!({ "message_id": answered, "allow_sending_without_reply": true });
            fields.insert("reply_parameters".to_owned(), reply);
        }
        let (method, markdown) = match &message.content {
            Content::Text(markdown) => ("sendMessage", markdown),
            Content::Question { markdown, buttons } => {
                if buttons.iter().any(|button| button.handle.len() > MAX_CALLBACK_DATA) {
                    return refused("a button's handle is too long for Telegram");
                }
                fields.insert("reply_markup".to_owned(), keyboard(buttons));
                ("sendMessage", markdown)
            }
            Content::Edit { message_id, markdown } => {
                let Ok(id) = message_id.parse::<i64>() else {
                    return refused("the message's id must be a number");
                };
                fields.remove("message_thread_id");
                fields.remove("reply_parameters");
                fields.insert("message_id".to_owned(), id.into());
                ("editMessageText", markdown)
            }
            Content::File { .. } => return self.send_file(message, fields, formatting).await,
        };
        let text = formatting.render(markdown);
        if text.text.is_empty() {
            return refused("the message has no text");
        }
        fields.insert("text".to_owned(), text.text.into());
        if !text.entities.is_empty() {
            fields.insert("entities".to_owned(), json!(text.entities));
        }
        fields.insert("link_preview_options".to_owned(), json!({ "is_disabled": true }));
        let sent = self.api.call(method, Value::Object(fields), REQUEST_LIMIT).await?;
        Ok(SendOutcome::Sent { message_id: id_of(&sent).or_else(|| edited_id(message)) })
    }

    async fn send_file(
        &self,
        message: &Outbound,
        fields: Map<String, Value>,
        formatting: Formatting,
    ) -> Result<SendOutcome, CallError> {
        let Content::File { name, mime, bytes, caption } = &message.content else {
            return Ok(SendOutcome::Refused("the message has no file".to_owned()));
        };
        let is_photo = matches!(mime.as_str(), "image/jpeg" | "image/png") && bytes.len() <= MAX_PHOTO;
        let first = render::split(caption, MAX_CAPTION, &render::telegram::measure).into_iter().next();
        let caption = formatting.render(&first.unwrap_or_default());
        let body = |field: &str| {
            let mut form = Multipart::new();
            for (key, value) in &fields {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                form = form.text(key, &text);
            }
            if !caption.text.is_empty() {
                form = form.text("caption", &caption.text);
                form = form.text("caption_entities", &json!(caption.entities).to_string());
            }
            form.file(field, name, mime, bytes).finish()
        };
        if is_photo {
            let (content_type, form) = body("photo");
            match self.api.post("sendPhoto", &content_type, form, UPLOAD_LIMIT).await {
                Ok(sent) => return Ok(SendOutcome::Sent { message_id: id_of(&sent) }),
                // A picture of an unusual form is still a file.
                Err(CallError::Rejected { code: 400, description, .. }) if description.contains("PHOTO") => {}
                Err(err) => return Err(err),
            }
        }
        let (content_type, form) = body("document");
        let sent = self.api.post("sendDocument", &content_type, form, UPLOAD_LIMIT).await?;
        Ok(SendOutcome::Sent { message_id: id_of(&sent) })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Formatting {
    Entities,
    Plain,
}

impl Formatting {
    fn render(self, markdown: &str) -> Message {
        let mut message = render::telegram::render(markdown);
        if self == Formatting::Plain {
            message.entities.clear();
        }
        message
    }
}

fn keyboard(buttons: &[Button]) -> Value {
    let rows = buttons.iter().map(|button| json!([{ "text": button.label, "callback_data": button.handle }]));
    json!({ "inline_keyboard": rows.collect::<Vec<_>>() })
}

fn id_of(sent: &Value) -> Option<String> {
    sent["message_id"].as_i64().map(|id| id.to_string())
}

fn edited_id(message: &Outbound) -> Option<String> {
    match &message.content {
        Content::Edit { message_id, .. } => Some(message_id.clone()),
        _ => None,
    }
}

fn is_unchanged(description: &str) -> bool {
    description.contains("message is not modified")
}

fn is_about_formatting(description: &str) -> bool {
    let description = description.to_ascii_lowercase();
    ["entit", "can't parse", "wrong url", "button_url"].iter().any(|text| description.contains(text))
}
