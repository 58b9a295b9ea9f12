//! Sends texts, questions and files, and templates to people who have not written for 24 hours.

use serde_json::{Value, json};

use super::api::{CallError, OUTSIDE_WINDOW};
use super::recipient::receiver;
use super::window::Window;
use super::{WhatsApp, locked};
use crate::adapter::{Button, Content, Outbound, SendOutcome};
use crate::address::PeerKind;
use crate::chat_channel::numbered;
use crate::chats::now_ms;
use crate::connection::REQUEST_LIMIT;
use crate::render;

/// The longest text of a question with buttons or a list.
const MAX_QUESTION: usize = 1_024;
const MAX_CAPTION: usize = 1_024;
/// The longest value of a template's variable.
const MAX_VARIABLE: usize = 900;
const MAX_BUTTONS: usize = 3;
const MAX_BUTTON_TITLE: usize = 20;
pub(super) const MAX_ROWS: usize = 10;
const MAX_ROW_TITLE: usize = 24;
const MAX_ROW_DESCRIPTION: usize = 72;

impl WhatsApp {
    pub(super) async fn deliver(&self, message: &Outbound) -> SendOutcome {
        let outcome = match self.attempt(message).await {
            Ok(outcome) => outcome,
            Err(err) => err.outcome(),
        };
        match outcome {
            // Its status may have come before the answer.
            SendOutcome::Unknown(why) => {
                let arrived = locked(&self.arrived);
                let found = arrived.iter().find(|(key, _)| *key == message.key);
                found.map_or(SendOutcome::Unknown(why), |(_, id)| SendOutcome::Sent {
                    message_id: Some(id.clone()),
                })
            }
            outcome => outcome,
        }
    }

    async fn attempt(&self, message: &Outbound) -> Result<SendOutcome, CallError> {
        let Some(mut body) = receiver(&message.address) else {
            let why =
                "the receiver must be a phone number or an id of WhatsApp such as DE.13491208655302741918";
            return Ok(SendOutcome::Refused(why.to_owned()));
        };
        body["messaging_product"] = json!("whatsapp");
        body["biz_opaque_callback_data"] = json!(message.key);
        let chat = &message.address.chat;
        let is_dm = message.address.kind == PeerKind::Dm;
        if is_dm && locked(&self.windows).of(chat, now_ms()) == Window::Closed {
            return self.send_template(message, body).await;
        }
        let template = body.clone();
        if let Some(answered) = &message.reply_to {
            body["context"] = json!({ "message_id": answered });
        }
        match &message.content {
            Content::Text(markdown) => insert_text(&mut body, markdown),
            Content::Question { markdown, buttons } => insert_question(&mut body, markdown, buttons),
            Content::Edit { .. } => {
                return Ok(SendOutcome::Refused("WhatsApp does not let programs change messages".to_owned()));
            }
            Content::File { name, mime, bytes, caption } => {
                let file = match self.upload(name, mime, bytes).await {
                    Ok(file) => file,
                    // Nobody has seen anything yet.
                    Err(err) => return Ok(not_sent(err.outcome())),
                };
                let caption =
                    render::split(caption, MAX_CAPTION, &render::whatsapp::measure).into_iter().next();
                file.insert(&mut body, name, &render::whatsapp::render(&caption.unwrap_or_default()));
            }
        }
        if body["text"]["body"] == "" {
            return Ok(SendOutcome::Refused("the message has no text".to_owned()));
        }
        match self.post_message(&body).await {
            Err(CallError::Refused { code: OUTSIDE_WINDOW, .. }) if is_dm => {
                locked(&self.windows).close(chat);
                self.send_template(message, template).await
            }
            sent => sent,
        }
    }

    async fn post_message(&self, body: &Value) -> Result<SendOutcome, CallError> {
        let sent = self.post("messages", "application/json", body.to_string().into(), REQUEST_LIMIT).await?;
        Ok(SendOutcome::Sent { message_id: sent["messages"][0]["id"].as_str().map(str::to_owned) })
    }

    /// Sends the text as the variable of the account's template.
    async fn send_template(&self, message: &Outbound, mut body: Value) -> Result<SendOutcome, CallError> {
        let refused = |why: &str| {
            Ok(SendOutcome::Refused(format!("{} has not written for 24 hours: {why}", message.address.chat)))
        };
        let Some(template) = &self.template else {
            return refused(
                "WhatsApp delivers nothing until they write again; set `template` for this account to send a template",
            );
        };
        let text = match &message.content {
            Content::Text(markdown) => variable(markdown),
            Content::Question { markdown, buttons } => {
                let labels = numbered(buttons.iter().map(|button| &*button.label));
                let text = flat(&format!("{markdown}\n\n{labels}"));
                // Nobody may answer a question that was cut.
                if text.chars().count() > MAX_VARIABLE {
                    return refused("the question is too long for a template");
                }
                text
            }
            Content::File { .. } => return refused("a template cannot contain this file"),
            Content::Edit { .. } => return refused("WhatsApp does not let programs change messages"),
        };
        body["type"] = json!("template");
        body["template"] = json!({
            "name": template.name,
            "language": { "code": template.language },
            "components": [{ "type": "body", "parameters": [{ "type": "text", "text": text }] }],
        });
        self.post_message(&body).await
    }
}

/// The outcome of a step after which nobody has seen anything.
fn not_sent(outcome: SendOutcome) -> SendOutcome {
    match outcome {
        SendOutcome::Unknown(why) => SendOutcome::Retry { why, after: None },
        other => other,
    }
}

fn insert_text(body: &mut Value, markdown: &str) {
    body["type"] = json!("text");
    body["text"] = json!({ "body": render::whatsapp::render(markdown), "preview_url": false });
}

/// Up to three short choices are buttons, up to ten are rows of a list. Others are numbers: a label is never cut, because
/// people decide by it.
fn insert_question(body: &mut Value, markdown: &str, buttons: &[Button]) {
    let text = render::whatsapp::render(markdown);
    let fits = |button: &Button, limit: usize| {
        !button.label.trim().is_empty() && button.label.chars().count() <= limit
    };
    let all_fit = |limit: usize| buttons.iter().all(|button| fits(button, limit));
    let is_unique = |button: &Button| buttons.iter().filter(|other| other.label == button.label).count() == 1;
    let is_short = (1..=MAX_QUESTION).contains(&text.chars().count());
    let action = if !is_short || buttons.is_empty() || !buttons.iter().all(is_unique) {
        None
    } else if buttons.len() <= MAX_BUTTONS && all_fit(MAX_BUTTON_TITLE) {
        let buttons = buttons.iter().map(
            |button| json!({ "type": "reply", "reply": { "id": button.handle, "title": button.label } }),
        );
        Some(("button", json!({ "buttons": buttons.collect::<Vec<_>>() })))
    } else if buttons.len() <= MAX_ROWS && all_fit(MAX_ROW_DESCRIPTION) {
        let rows: Vec<Value> = buttons.iter().map(row).collect();
        Some(("list", json!({ "button": "Choose", "sections": [{ "title": "Answers", "rows": rows }] })))
    } else {
        None
    };
    match action {
        Some((kind, action)) => {
            body["type"] = json!("interactive");
            body["interactive"] = json!({ "type": kind, "body": { "text": text }, "action": action });
        }
        None => {
            let labels = numbered(buttons.iter().map(|button| &*button.label));
            insert_text(body, &format!("{markdown}\n\n{labels}"));
        }
    }
}

/// A row of a list. A long label is whole in the description.
fn row(button: &Button) -> Value {
    let mut row = json!({ "id": button.handle, "title": button.label });
    if button.label.chars().count() > MAX_ROW_TITLE {
        let start: String = button.label.chars().take(MAX_ROW_TITLE - 1).collect();
        row["title"] = json!(format!("{start}…"));
        row["description"] = json!(button.label);
    }
    row
}

/// Variables of templates cannot have line ends, tabs or many blanks.
fn flat(markdown: &str) -> String {
    let text = render::whatsapp::render(markdown);
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// The text as a variable. A longer one says that it goes on.
fn variable(markdown: &str) -> String {
    let text = flat(markdown);
    if text.chars().count() <= MAX_VARIABLE {
        return text;
    }
    let start: String = text.chars().take(MAX_VARIABLE).collect();
    format!("{start}… (answer to this message, then ask for the rest)")
}
