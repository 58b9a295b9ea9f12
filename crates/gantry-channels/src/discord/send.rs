//! Sends messages, questions, edits and files.

use std::time::Duration;

use bytes::Bytes;
use gantry_net::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Body, Call};
use super::cursor::is_id;
use super::error::ApiError;
use super::{Discord, MAX_BUTTONS, MAX_FILE, MAX_TEXT, NO_MENTIONS, nonce};
use crate::adapter::{Button, Content, Outbound, SendOutcome};
use crate::address::Address;
use crate::render;

/// No link shows a preview.
const SUPPRESS_EMBEDS: u64 = 1 << 2;
/// When an attempt may have had an effect, it is repeated after these pauses. Discord ignores a repetition because of the
/// nonce. All attempts are made within one call: Discord forgets a nonce after some minutes, so nothing later repeats it.
pub(super) const PAUSES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];
/// The limit for the upload of a file.
const UPLOAD_LIMIT: Duration = Duration::from_secs(120);
const BUTTONS_IN_A_ROW: usize = 5;
const MAX_LABEL: usize = 80;

#[derive(Deserialize)]
struct Posted {
    id: String,
}

impl Discord {
    pub(super) async fn deliver(&self, message: &Outbound) -> SendOutcome {
        if !is_id(channel_of(&message.address)) {
            return SendOutcome::Refused(format!("{:?} is not a channel of Discord", message.address.peer()));
        }
        match &message.content {
            Content::Text(markdown) => self.post(message, markdown, &[]).await,
            Content::Question { markdown, buttons } => self.post(message, markdown, buttons).await,
            Content::Edit { message_id, markdown } => self.edit(&message.address, message_id, markdown).await,
            Content::File { name, mime, bytes, caption } => {
                if bytes.len() > MAX_FILE {
                    return SendOutcome::Refused(format!(
                        "the file has {} bytes; Discord takes at most {MAX_FILE}",
                        bytes.len()
                    ));
                }
                self.upload(message, name, mime, bytes, caption).await
            }
        }
    }

    async fn post(&self, message: &Outbound, markdown: &str, buttons: &[Button]) -> SendOutcome {
        let text = render::discord::render(markdown);
        if text.is_empty() {
            return SendOutcome::Refused("the message is empty".to_owned());
        }
        let mut body = body(message, &text);
        if !buttons.is_empty() {
            body["components"] = rows(buttons);
        }
        self.create(message, &body, None).await
    }

    async fn upload(
        &self,
        message: &Outbound,
        name: &str,
        mime: &str,
        bytes: &Bytes,
        caption: &str,
    ) -> SendOutcome {
        let name: String =
            name.chars().filter(|c| !c.is_control() && !"/\\\"".contains(*c)).take(200).collect();
        let name = if name.trim_matches('.').is_empty() { "file".to_owned() } else { name };
        let caption: String = render::discord::render(caption).chars().take(MAX_TEXT).collect();
        let mut body = body(message, &caption);
        body["attachments"] = json!([{ "id": 0, "filename": name }]);
        self.create(message, &body, Some((&name, mime, bytes))).await
    }

    async fn create(
        &self,
        message: &Outbound,
        body: &Value,
        file: Option<(&str, &str, &Bytes)>,
    ) -> SendOutcome {
        let channel = channel_of(&message.address);
        // A thread is a channel of its own at Discord, so it must belong to the chat that was allowed.
        if message.address.thread.is_some() {
            match self.place(channel).await {
                Ok(place) if place.parent.as_deref() == Some(&message.address.chat) => {}
                Ok(_) => {
                    return SendOutcome::Refused("the thread does not belong to this channel".to_owned());
                }
                Err(err) => return err.outcome(),
            }
        }
        let mut pauses = self.pauses.iter();
        loop {
            let path = ["channels", channel, "messages"];
            let mut call = Call::new(Method::POST, "send the message", &path);
            call.object = channel;
            call.body = match file {
                Some((name, mime, bytes)) => {
                    call.limit = UPLOAD_LIMIT;
                    Body::File { message: body, name, mime, bytes }
                }
                None => Body::Json(body),
            };
            match self.call::<Posted>(call).await {
                Ok(Posted { id }) => return SendOutcome::Sent { message_id: Some(id) },
                Err(err) => match (err.outcome(), pauses.next()) {
                    (SendOutcome::Unknown(_), Some(pause)) => tokio::time::sleep(*pause).await,
                    (outcome, _) => return outcome,
                },
            }
        }
    }

    /// An edit may be made twice.
    async fn edit(&self, address: &Address, message_id: &str, markdown: &str) -> SendOutcome {
        let text: String = render::discord::render(markdown).chars().take(MAX_TEXT).collect();
        if text.is_empty() || !is_id(message_id) {
            return SendOutcome::Refused("there is no message to change, or no text".to_owned());
        }
        let body = json!({
            "content": text,
            "components": [],
            "flags": SUPPRESS_EMBEDS,
            "allowed_mentions": { NO_MENTIONS: [] },
        });
        let channel = channel_of(address);
        let path = ["channels", channel, "messages", message_id];
        let mut call = Call::new(Method::PATCH, "change the message", &path);
        (call.object, call.body) = (channel, Body::Json(&body));
        match self.call::<Posted>(call).await {
            Ok(Posted { id }) => SendOutcome::Sent { message_id: Some(id) },
            Err(err) => match err.outcome() {
                SendOutcome::Unknown(why) => SendOutcome::Retry { why, after: None },
                outcome => outcome,
            },
        }
    }

    /// Shows "typing" for about ten seconds.
    pub(super) async fn show_typing(&self, address: &Address) -> Result<(), ApiError> {
        let channel = channel_of(address);
        if !is_id(channel) {
            return Ok(());
        }
        let path = ["channels", channel, "typing"];
        let mut call = Call::new(Method::POST, "show typing", &path);
        call.object = channel;
        self.call::<Value>(call).await.map(|_| ())
    }
}

/// A thread is a channel of its own.
fn channel_of(address: &Address) -> &str {
    address.thread.as_deref().unwrap_or(&address.chat)
}

fn body(message: &Outbound, text: &str) -> Value {
    let mut body = json!({
        "content": text,
        "nonce": nonce::nonce(&message.key),
        "enforce_nonce": true,
        "flags": SUPPRESS_EMBEDS,
        "allowed_mentions": { NO_MENTIONS: [] },
    });
    if let Some(id) = message.reply_to.as_deref().filter(|id| is_id(id)) {
        body["message_reference"] = json!({ "message_id": id, "fail_if_not_exists": false });
    }
    body
}

fn rows(buttons: &[Button]) -> Value {
    let buttons: Vec<Value> = buttons
        .iter()
        .take(MAX_BUTTONS)
        .enumerate()
        .map(|(number, button)| {
            let label: String = button.label.chars().filter(|c| !c.is_control()).take(MAX_LABEL).collect();
            let label = if label.trim().is_empty() { (number + 1).to_string() } else { label };
            json!({ "type": 2, "style": 2, "label": label, "custom_id": button.handle })
        })
        .collect();
    let rows = buttons.chunks(BUTTONS_IN_A_ROW).map(|row| json!({ "type": 1, "components": row }));
    rows.collect()
}
