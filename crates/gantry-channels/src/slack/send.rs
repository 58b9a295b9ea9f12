//! Sends messages, questions, edits and files.

use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use gantry_net::{HeaderValue, Method, Redirects, Request, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::{CallError, Token};
use super::{MAX_BUTTONS, MAX_UNSETTLED, Slack, rich_text, text};
use crate::adapter::{Button, Content, Outbound, SendOutcome};
use crate::address::Address;
use crate::connection::failed;

/// The type of the metadata that holds a message's key.
const METADATA: &str = "gantry_delivery";
/// The limit for the upload of a file.
const UPLOAD_LIMIT: Duration = Duration::from_secs(120);
/// When an attempt ended without an answer, the message is looked for at once and after this pause.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// How long to wait before a message is sent again that was not found.
const RESEND_PAUSE: Duration = Duration::from_secs(5);
/// How many messages are read to find one.
const MAX_LOOKED_AT: &str = "50";
const MAX_LABEL: usize = 75;

#[derive(Deserialize)]
struct Posted {
    #[serde(default)]
    ts: Option<String>,
}

#[derive(Deserialize)]
struct UploadAddress {
    upload_url: String,
    file_id: String,
}

#[derive(Deserialize)]
struct History {
    #[serde(default)]
    messages: Vec<Value>,
}

impl Slack {
    pub(super) async fn deliver(&self, message: &Outbound) -> SendOutcome {
        match &message.content {
            Content::Text(markdown) => self.post(message, markdown, &[]).await,
            Content::Question { markdown, buttons } => self.post(message, markdown, buttons).await,
            Content::Edit { message_id, markdown } => self.edit(&message.address, message_id, markdown).await,
            Content::File { name, bytes, caption, .. } => self.upload(message, name, bytes, caption).await,
        }
    }

    async fn post(&self, message: &Outbound, markdown: &str, buttons: &[Button]) -> SendOutcome {
        if self.is_unsettled(&message.key) {
            match self.find(message).await {
                Ok(Some(ts)) => return SendOutcome::Sent { message_id: Some(ts) },
                Ok(None) => {}
                Err(err) => return SendOutcome::Unknown(err.to_string()),
            }
        }
        let mut body = json!({
            "channel": message.address.chat,
            "text": text::escaped(&rich_text::plain(markdown)),
            "mrkdwn": false,
            "parse": "none",
            "link_names": false,
            "unfurl_links": false,
            "unfurl_media": false,
            "metadata": { "event_type": METADATA, "event_payload": { "key": message.key } },
        });
        insert(&mut body, "thread_ts", thread_of(message).map(Value::from));
        let plain = body.clone();
        insert(&mut body, "blocks", Some(blocks(markdown, buttons).into()));
        let mut posted = self.json::<Posted>("chat.postMessage", &body).await;
        if posted.as_ref().is_err_and(is_about_blocks) {
            posted = self.json("chat.postMessage", &plain).await;
        }
        match posted {
            Ok(Posted { ts }) => SendOutcome::Sent { message_id: ts },
            Err(err) => match err.outcome() {
                SendOutcome::Unknown(why) => self.settle(message, why).await,
                outcome => outcome,
            },
        }
    }

    /// Looks for a message that may have arrived.
    async fn settle(&self, message: &Outbound, why: String) -> SendOutcome {
        self.remember(&message.key);
        for pause in [Duration::ZERO, SECOND_LOOK] {
            tokio::time::sleep(pause).await;
            match self.find(message).await {
                Ok(Some(ts)) => return SendOutcome::Sent { message_id: Some(ts) },
                Ok(None) => {}
                Err(_) => return SendOutcome::Unknown(why),
            }
        }
        SendOutcome::Retry { why: format!("{why}; the message did not arrive"), after: Some(RESEND_PAUSE) }
    }

    /// Finds a message by its key, which is in its metadata.
    async fn find(&self, message: &Outbound) -> Result<Option<String>, CallError> {
        let mut fields = vec![
            ("channel", message.address.chat.as_str()),
            ("limit", MAX_LOOKED_AT),
            ("include_all_metadata", "true"),
        ];
        let method = match thread_of(message) {
            Some(thread) => {
                fields.push(("ts", thread));
                "conversations.replies"
            }
            None => "conversations.history",
        };
        let history: History = self.form(method, Token::Bot, &fields).await?;
        let found = history.messages.iter().find(|found| {
            found["metadata"]["event_type"] == METADATA
                && found["metadata"]["event_payload"]["key"] == message.key.as_str()
        });
        Ok(found.and_then(|found| found["ts"].as_str()).map(str::to_owned))
    }

    /// An edit may be made twice.
    async fn edit(&self, address: &Address, message_id: &str, markdown: &str) -> SendOutcome {
        let mut body = json!({
            "channel": address.chat,
            "ts": message_id,
            "text": text::escaped(&rich_text::plain(markdown)),
            "parse": "none",
            "link_names": false,
            // Without this field the old blocks stay.
            "blocks": blocks(markdown, &[]),
        });
        let mut updated = self.json::<Posted>("chat.update", &body).await;
        if updated.as_ref().is_err_and(is_about_blocks) {
            insert(&mut body, "blocks", Some(json!([])));
            updated = self.json("chat.update", &body).await;
        }
        match updated {
            Ok(Posted { ts }) => SendOutcome::Sent { message_id: ts },
            Err(err) => match err.outcome() {
                SendOutcome::Unknown(why) => SendOutcome::Retry { why, after: None },
                outcome => outcome,
            },
        }
    }

    /// Uploads in three steps. People see the file after the last one.
    async fn upload(&self, message: &Outbound, name: &str, bytes: &Bytes, caption: &str) -> SendOutcome {
        let not_sent = |outcome| match outcome {
            SendOutcome::Unknown(why) => SendOutcome::Retry { why, after: None },
            other => other,
        };
        let name: String =
            name.chars().filter(|c| !c.is_control() && !"/\\".contains(*c)).take(200).collect();
        let name = if name.is_empty() { "file".to_owned() } else { name };
        let length = bytes.len().to_string();
        let fields = [("filename", name.as_str()), ("length", length.as_str())];
        let place = match self.form::<UploadAddress>("files.getUploadURLExternal", Token::Bot, &fields).await
        {
            Ok(place) => place,
            Err(err) => return not_sent(err.outcome()),
        };
        if let Err(outcome) = self.put(&place.upload_url, bytes).await {
            return not_sent(outcome);
        }
        let mut body = json!({
            "files": [{ "id": place.file_id, "title": name }],
            "channel_id": message.address.chat,
        });
        let caption = text::escaped(&rich_text::plain(caption));
        insert(&mut body, "initial_comment", (!caption.is_empty()).then(|| caption.into()));
        insert(&mut body, "thread_ts", thread_of(message).map(Value::from));
        match self.json::<Value>("files.completeUploadExternal", &body).await {
            Ok(_) => SendOutcome::Sent { message_id: None },
            Err(err) => err.outcome(),
        }
    }

    /// The address is a capability, so no token goes along.
    async fn put(&self, url: &str, bytes: &Bytes) -> Result<(), SendOutcome> {
        let url = self.pinned(url, ["https", "http"]).map_err(SendOutcome::Refused)?;
        let mut request = Request::get(url, Instant::now() + UPLOAD_LIMIT);
        request.method = Method::POST;
        request.policy = self.connection.policy.clone();
        request.redirects = Redirects::Stop;
        request.body = bytes.clone();
        let kind = HeaderValue::from_static("application/octet-stream");
        request.headers.insert(header::CONTENT_TYPE, kind);
        let response = self.connection.client.send(request).await.map_err(|err| failed(&err))?;
        match response.status {
            status if status.is_success() => Ok(()),
            StatusCode::PAYLOAD_TOO_LARGE => {
                Err(SendOutcome::Refused("the file is too large for Slack".into()))
            }
            status => {
                Err(SendOutcome::Retry { why: format!("Slack answered {status} to the upload"), after: None })
            }
        }
    }

    fn is_unsettled(&self, key: &str) -> bool {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known == key)
    }

    fn remember(&self, key: &str) {
        let mut unsettled = self.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        if !unsettled.iter().any(|known| known == key) {
            unsettled.push_back(key.to_owned());
        }
        if unsettled.len() > MAX_UNSETTLED {
            unsettled.pop_front();
        }
    }
}

/// The thread that the message goes to. A message in a channel does not begin one by itself.
fn thread_of(message: &Outbound) -> Option<&str> {
    message.address.thread.as_deref()
}

fn blocks(markdown: &str, buttons: &[Button]) -> Vec<Value> {
    let mut blocks: Vec<Value> = rich_text::block(markdown).into_iter().collect();
    let elements: Vec<Value> = buttons
        .iter()
        .take(MAX_BUTTONS)
        .enumerate()
        .map(|(number, button)| {
            let label: String = button.label.chars().take(MAX_LABEL).collect();
            let label = if label.trim().is_empty() { (number + 1).to_string() } else { label };
            json!({
                "type": "button",
                "action_id": format!("gantry-{number}"),
                "text": { "type": "plain_text", "text": label, "emoji": false },
                "value": button.handle,
            })
        })
        .collect();
    if !elements.is_empty() {
        blocks.push(json!({ "type": "actions", "elements": elements }));
    }
    blocks
}

fn is_about_blocks(err: &CallError) -> bool {
    let codes = ["invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"];
    matches!(err, CallError::Refused { code, .. } if codes.contains(&code.as_str()))
}

fn insert(body: &mut Value, field: &str, value: Option<Value>) {
    if let (Some(body), Some(value)) = (body.as_object_mut(), value) {
        body.insert(field.to_owned(), value);
    }
}
