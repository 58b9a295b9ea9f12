//! The adapter against a server that behaves like Meta's.

mod account;
mod files;
mod receiving;
mod sending;

use std::sync::Arc;

use gantry_net::{ClientOptions, HeaderMap, HeaderValue, Method, StatusCode};
use gantry_testkit::chat::whatsapp::{APP_SECRET, FakeWhatsApp, PHONE_NUMBER_ID, TOKEN, VERIFY_TOKEN};
use serde_json::{Value, json};

use super::*;
use crate::adapter::{Button, Content};
use crate::address::PeerKind;
use crate::address::Person;
use crate::signature::sign;
use crate::testing::RecordingIntake;

const ADA: &str = "DE.13491208655302741918";
const PUBLIC_URL: &str = "https://gantry.example.org";

fn config(api_url: &str, template: bool) -> WhatsappConfig {
    let template = template.then(|| json!({ "name": "agent_notice", "language": "en_US" }));
    let config = json!({
        "phoneNumberId": PHONE_NUMBER_ID, "token": "secret:TOKEN", "appSecret": "secret:APP",
        "verifyToken": "secret:VERIFY", "apiUrl": api_url, "template": template,
    });
    serde_json::from_value(config).unwrap()
}

fn secrets(token: &'static str, app: &'static str) -> SecretFor {
    Arc::new(move |name, _| match name {
        "TOKEN" => Ok(token.to_owned()),
        "APP" => Ok(app.to_owned()),
        "VERIFY" => Ok(VERIFY_TOKEN.to_owned()),
        _ => Err("unknown secret".to_owned()),
    })
}

fn with_template(fake: &FakeWhatsApp, template: bool) -> WhatsApp {
    let config = config(&fake.api_url(), template);
    WhatsApp::new(&config, "default", &ClientOptions::default(), secrets(TOKEN, APP_SECRET), Some(PUBLIC_URL))
}

fn whatsapp(fake: &FakeWhatsApp) -> WhatsApp {
    with_template(fake, false)
}

fn to(chat: &str) -> Address {
    let (channel, account) = ("whatsapp".to_owned(), "default".to_owned());
    Address { channel, account, kind: PeerKind::Dm, chat: chat.to_owned(), thread: None }
}

fn outbound(content: Content) -> Outbound {
    Outbound { key: "k0123456789abcdef".to_owned(), address: to(ADA), reply_to: None, content }
}

fn text(markdown: &str) -> Outbound {
    outbound(Content::Text(markdown.to_owned()))
}

fn sent_id(outcome: SendOutcome) -> String {
    match outcome {
        SendOutcome::Sent { message_id: Some(id) } => id,
        other => panic!("{other:?}"),
    }
}

/// A request of Meta, signed with a secret.
fn signed(body: &Value, secret: &str) -> WebhookRequest {
    let body = body.to_string();
    let signature = format!("sha256={}", sign(secret.as_bytes(), &[body.as_bytes()]));
    let mut headers = HeaderMap::new();
    headers.insert("x-hub-signature-256", HeaderValue::try_from(signature).unwrap());
    WebhookRequest { method: Method::POST, headers, query: String::new(), body: body.into() }
}

async fn receive(whatsapp: &WhatsApp, intake: &RecordingIntake, body: &Value) -> StatusCode {
    whatsapp.webhook(signed(body, APP_SECRET), intake).await.status
}
