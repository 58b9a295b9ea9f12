//! Answers requests of Meta: the check of the address, and signed batches of events.

use std::time::Duration;

use gantry_net::{Method, StatusCode, Url};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::OUTSIDE_WINDOW;
use super::event::{Event, Status, read};
use super::recipient::receiver;
use super::{WhatsApp, locked};
use crate::adapter::{Accepted, Inbound, Intake, IntakeError, Press, WebhookAnswer, WebhookRequest};
use crate::address::{Address, PeerKind};
use crate::chats::now_ms;
use crate::render;
use crate::signature::{is_secret, is_signed};

/// The longest challenge that is sent back.
const MAX_CHALLENGE: usize = 200;
/// Meta waits for the answer to its request, so the reply to a press must not take long.
const PRESS_REPLY_LIMIT: Duration = Duration::from_secs(3);
/// How many statuses and presses are remembered.
pub(super) const MAX_REMEMBERED: usize = 1_000;

impl WhatsApp {
    pub(super) async fn answer(&self, request: WebhookRequest, intake: &dyn Intake) -> WebhookAnswer {
        match request.method {
            Method::GET => self.verify(&request.query),
            Method::POST => self.take_batch(&request, intake).await,
            _ => WebhookAnswer::status(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    /// Meta checks the address once, when the operator enters it.
    fn verify(&self, query: &str) -> WebhookAnswer {
        let Ok(secret) = self.secret(&self.verify_token) else {
            return WebhookAnswer::status(StatusCode::SERVICE_UNAVAILABLE);
        };
        let field = |name: &str| value_of(query, name).unwrap_or_default();
        let challenge = field("hub.challenge");
        let is_challenge =
            challenge.len() <= MAX_CHALLENGE && challenge.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if field("hub.mode") != "subscribe" || !is_secret(&secret, field("hub.verify_token").as_bytes()) {
            return WebhookAnswer::status(StatusCode::FORBIDDEN);
        }
        if !is_challenge {
            return WebhookAnswer::status(StatusCode::BAD_REQUEST);
        }
        WebhookAnswer { body: challenge, ..WebhookAnswer::status(StatusCode::OK) }
    }

    /// Takes a batch. Meta delivers it again unless the answer is 200, so that is the answer only when everything is stored.
    async fn take_batch(&self, request: &WebhookRequest, intake: &dyn Intake) -> WebhookAnswer {
        let Ok(secret) = self.secret(&self.app_secret) else {
            return WebhookAnswer::status(StatusCode::SERVICE_UNAVAILABLE);
        };
        let signature = request.headers.get("x-hub-signature-256").and_then(|value| value.to_str().ok());
        let signature = signature.and_then(|value| value.strip_prefix("sha256="));
        if !signature.is_some_and(|signature| is_signed(secret.as_bytes(), &[&request.body], signature)) {
            return WebhookAnswer::status(StatusCode::UNAUTHORIZED);
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if body["object"] != "whatsapp_business_account" {
            // It would be the same the next time.
            tracing::warn!(account = self.connection.account, "whatsapp_request_not_understood");
            return WebhookAnswer::status(StatusCode::OK);
        }
        for event in read(&body, &self.phone_number_id, &self.connection.account) {
            if let Err(err) = self.take(event, intake).await {
                tracing::warn!(account = self.connection.account, error = %err, "whatsapp_event_not_stored");
                return WebhookAnswer::status(StatusCode::SERVICE_UNAVAILABLE);
            }
        }
        WebhookAnswer::status(StatusCode::OK)
    }

    async fn take(&self, event: Event, intake: &dyn Intake) -> Result<(), IntakeError> {
        match event {
            Event::Message(inbound) => self.take_message(*inbound, intake).await,
            Event::Press(press) => self.take_press(*press, intake).await,
            Event::Status(status) => self.take_status(&status, intake).await,
            Event::Other(what) => {
                tracing::info!(account = self.connection.account, what, "whatsapp_event_ignored");
                Ok(())
            }
        }
    }

    async fn take_message(&self, inbound: Inbound, intake: &dyn Intake) -> Result<(), IntakeError> {
        let (chat, message_id) = (inbound.address.chat.clone(), inbound.message_id.clone());
        let cursor = match inbound.is_edit {
            true => None,
            false => self.wrote(&inbound.address, inbound.at),
        };
        if intake.message(inbound, cursor).await? == Accepted::New {
            let mut newest = locked(&self.newest);
            if newest.len() >= MAX_REMEMBERED {
                newest.clear();
            }
            newest.insert(chat, (message_id, None));
        }
        Ok(())
    }

    /// Notes that a person wrote. Returns the cursor that remembers it.
    fn wrote(&self, address: &Address, at: i64) -> Option<String> {
        if address.kind != PeerKind::Dm {
            return None;
        }
        let mut windows = locked(&self.windows);
        windows.note(&address.chat, at.min(now_ms()));
        Some(windows.cursor())
    }

    async fn take_press(&self, press: Press, intake: &dyn Intake) -> Result<(), IntakeError> {
        let (address, event_id) = (press.address.clone(), press.event_id.clone());
        let cursor = self.wrote(&address, now_ms());
        let text = intake.press(press, cursor).await?;
        let is_new = {
            let mut replied = locked(&self.replied);
            let is_new = !replied.contains(&event_id);
            if is_new {
                replied.push_back(event_id.clone());
            }
            if replied.len() > MAX_REMEMBERED {
                replied.pop_front();
            }
            is_new
        };
        // WhatsApp has no reply to a press, and messages cannot be changed: the person gets a message.
        if let (true, Some(mut body)) = (is_new, receiver(&address)) {
            body["messaging_product"] = json!("whatsapp");
            body["context"] = json!({ "message_id": event_id });
            body["type"] = json!("text");
            body["text"] = json!({ "body": render::whatsapp::render(&text), "preview_url": false });
            let limit = Instant::now() + PRESS_REPLY_LIMIT;
            let sent = self.post("messages", "application/json", body.to_string().into(), PRESS_REPLY_LIMIT);
            // The press counts even if the reply fails.
            if let Ok(Err(err)) = tokio::time::timeout_at(limit, sent).await {
                tracing::debug!(account = self.connection.account, error = %err, "whatsapp_reply_failed");
            }
        }
        Ok(())
    }

    async fn take_status(&self, status: &Status, intake: &dyn Intake) -> Result<(), IntakeError> {
        if let Some(failure) = &status.failed {
            let (account, code) = (&self.connection.account, failure.code);
            tracing::warn!(
                account,
                message = status.id,
                code,
                title = failure.title,
                "whatsapp_message_failed"
            );
            if code == OUTSIDE_WINDOW {
                locked(&self.windows).close(&status.recipient);
            }
            return Ok(());
        }
        let Some(key) = &status.key else { return Ok(()) };
        {
            let mut arrived = locked(&self.arrived);
            if !arrived.iter().any(|(known, _)| known == key) {
                arrived.push_back((key.clone(), status.id.clone()));
            }
            if arrived.len() > MAX_REMEMBERED {
                arrived.pop_front();
            }
        }
        intake.settled(key, &status.id).await
    }
}

/// The value of a field of a query string.
fn value_of(query: &str, name: &str) -> Option<String> {
    let url = Url::parse(&format!("http://localhost/?{query}")).ok()?;
    url.query_pairs().find(|(field, _)| field == name).map(|(_, value)| value.into_owned())
}
