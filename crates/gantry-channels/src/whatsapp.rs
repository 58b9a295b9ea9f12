//! WhatsApp: a phone number of the Cloud API. Meta sends events to the gateway's public address, and takes messages over the
//! Graph API.

mod api;
mod event;
mod files;
mod receive;
mod recipient;
mod send;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gantry_flow::SecretFor;
use gantry_net::{ClientOptions, Url};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::adapter::{
    AccountInfo, Adapter, Intake, Limits, ListenError, Media, Outbound, Problem, SendOutcome, WebhookAnswer,
    WebhookRequest,
};
use crate::address::Address;
use crate::config::{WhatsappConfig, WhatsappTemplate};
use crate::connection::{Connection, REQUEST_LIMIT};
use crate::render;
use crate::signature::sign;
use api::CallError;
use window::Windows;

/// The hosts that get the account's credentials.
const HOSTS: &[&str] = &["graph.facebook.com", "lookaside.fbsbx.com", "*.whatsapp.net"];
const API: &str = "https://graph.facebook.com/v26.0/";
const MAX_TEXT: usize = 4_096;
const MAX_FILE: usize = 100 << 20;
/// How often the token is checked.
const CHECK_EVERY: Duration = Duration::from_secs(15 * 60);
/// WhatsApp shows "typing" for 25 seconds.
const TYPING_EVERY: Duration = Duration::from_secs(20);
/// A number's name, its webhook, and whether it is registered.
const FIELDS: &str = "verified_name,display_phone_number,platform_type,webhook_configuration";

pub(crate) struct WhatsApp {
    connection: Connection,
    api: Option<Url>,
    phone_number_id: String,
    token: String,
    app_secret: String,
    verify_token: String,
    template: Option<WhatsappTemplate>,
    /// Where Meta must send events.
    webhook_url: Option<String>,
    check_every: Duration,
    /// Wakes the check of the token.
    recheck: Notify,
    windows: Mutex<Windows>,
    /// The newest message of each chat, and when "typing" was shown on it.
    newest: Mutex<HashMap<String, (String, Option<Instant>)>>,
    /// Keys of messages that arrived at WhatsApp, with the messages' ids.
    arrived: Mutex<VecDeque<(String, String)>>,
    /// Presses that got a reply.
    replied: Mutex<VecDeque<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WhatsApp {
    /// `public_url` is the gateway's public address.
    pub(crate) fn new(
        config: &WhatsappConfig,
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
        public_url: Option<&str>,
    ) -> WhatsApp {
        let own = config.api_url.as_deref().and_then(|url| url.parse::<Url>().ok());
        let api = if config.api_url.is_some() { own.clone() } else { API.parse().ok() };
        let webhook_url = public_url
            .map(|url| format!("{}/v1/channels/whatsapp/{account}/webhook", url.trim_end_matches('/')));
        WhatsApp {
            connection: Connection::new(account, network, secrets, HOSTS, own.as_ref()),
            api,
            phone_number_id: config.phone_number_id.clone(),
            token: config.token.clone(),
            app_secret: config.app_secret.clone(),
            verify_token: config.verify_token.clone(),
            template: config.template.clone(),
            webhook_url,
            check_every: CHECK_EVERY,
            recheck: Notify::new(),
            windows: Mutex::default(),
            newest: Mutex::default(),
            arrived: Mutex::default(),
            replied: Mutex::default(),
        }
    }

    fn secret(&self, reference: &str) -> Result<String, String> {
        let api = self.api().map_err(|err| err.to_string())?;
        self.connection.secret(reference, api).and_then(|secret| match secret.len() {
            0..8 => Err("it has fewer than 8 characters".to_owned()),
            _ => Ok(secret),
        })
    }

    /// Asks Meta about the phone number.
    async fn number(&self, proof: Option<&str>) -> Result<Value, CallError> {
        let mut query = vec![("fields", FIELDS)];
        query.extend(proof.map(|proof| ("appsecret_proof", proof)));
        self.get(&[&self.phone_number_id], &query).await
    }

    /// Nothing listens: Meta sends events. The token is checked now and then.
    async fn watch(&self, intake: &dyn Intake, cursor: Option<String>) -> ListenError {
        if let Some(cursor) = cursor {
            locked(&self.windows).load(&cursor);
        }
        if self.webhook_url.is_none() {
            let fix = "set gateway.publicUrl, so that Meta can send messages to this gateway";
            tracing::warn!(account = self.connection.account, fix, "whatsapp_without_public_address");
        }
        loop {
            match self.number(None).await {
                Ok(number) => intake.connected(&name_of(&number)),
                Err(err) => return err.stops_listening(),
            }
            let _ = tokio::time::timeout(self.check_every, self.recheck.notified()).await;
        }
    }

    async fn check(&self) -> Result<AccountInfo, Problem> {
        let problem = |err: CallError| Problem { message: err.to_string(), fix: err.fix().to_owned() };
        let missing = |key: &str, why: String| Problem {
            message: format!("the secret of {key} cannot be used: {why}"),
            fix: format!(
                "store it with `gantry secrets set NAME --host graph.facebook.com` and set {key} = \"secret:NAME\""
            ),
        };
        let token = self.api().and_then(|api| self.token(api)).map_err(problem)?;
        let app_secret = self.secret(&self.app_secret).map_err(|why| missing("appSecret", why))?;
        self.secret(&self.verify_token).map_err(|why| missing("verifyToken", why))?;
        let number = self.number(None).await.map_err(problem)?;
        // Meta compares the proof with the secret of the token's app.
        let proof = sign(app_secret.as_bytes(), &[token.as_bytes()]);
        match self.number(Some(&proof)).await {
            Err(CallError::Refused { text, .. }) => {
                return Err(Problem {
                    message: format!("appSecret is not the secret of the token's app: {text}"),
                    fix: "copy the app secret from App settings, Basic, and store it as the secret of appSecret".to_owned(),
                });
            }
            checked => drop(checked.map_err(problem)?),
        }
        let Some(wanted) = self.webhook_url.as_deref().filter(|url| url.starts_with("https://")) else {
            return Err(Problem {
                message: "the gateway has no public https address, so Meta cannot reach it".to_owned(),
                fix: "set gateway.publicUrl = \"https://…\" to an address that leads to this gateway"
                    .to_owned(),
            });
        };
        // The webhook of the number goes before that of the account and that of the app.
        let levels = ["phone_number", "whatsapp_business_account", "application"];
        let known = levels.iter().find_map(|level| number["webhook_configuration"][level].as_str());
        match known {
            Some(url) if url.trim_end_matches('/') == wanted => {}
            known => {
                let message = match known {
                    Some(known) => {
                        let known: String = known.chars().filter(|c| !c.is_control()).take(200).collect();
                        format!("Meta sends the events of this number to {known}")
                    }
                    None => "the app is not subscribed to this number, so no events arrive".to_owned(),
                };
                let fix = format!(
                    "in the app under WhatsApp, Configuration, enter the callback URL {wanted} and the verify token, \
                     and subscribe to the field messages"
                );
                return Err(Problem { message, fix });
            }
        }
        let mut warnings = Vec::new();
        if number["platform_type"].as_str().is_some_and(|kind| kind == "NOT_APPLICABLE") {
            warnings.push("the number is not registered; register it in WhatsApp, API Setup".to_owned());
        }
        Ok(AccountInfo { name: name_of(&number), warnings })
    }

    /// Marks the newest message of a chat as read, and shows "typing".
    async fn show_typing(&self, chat: &str) {
        let message_id = {
            let mut newest = locked(&self.newest);
            let Some((message_id, shown)) = newest.get_mut(chat) else { return };
            if shown.is_some_and(|at| at.elapsed() < TYPING_EVERY) {
                return;
            }
            *shown = Some(Instant::now());
            message_id.clone()
        };
        let body = json!({
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": message_id,
            "typing_indicator": { "type": "text" },
        });
        let shown = self.post("messages", "application/json", body.to_string().into(), REQUEST_LIMIT).await;
        if let Err(err) = shown {
            tracing::debug!(account = self.connection.account, error = %err, "whatsapp_typing_failed");
        }
    }
}

fn name_of(number: &Value) -> String {
    let text = |field: &str| number[field].as_str().unwrap_or_default();
    let name = format!("{} {}", text("verified_name"), text("display_phone_number"));
    name.trim().chars().filter(|c| !c.is_control()).take(100).collect()
}

impl Adapter for WhatsApp {
    fn limits(&self) -> Limits {
        Limits {
            text: MAX_TEXT,
            buttons: send::MAX_ROWS,
            file: MAX_FILE,
            can_edit: false,
            ignores_repetitions: false,
            may_approve: true,
        }
    }

    fn measure(&self, markdown: &str) -> usize {
        render::whatsapp::measure(markdown)
    }

    fn listen<'a>(&'a self, intake: &'a dyn Intake, cursor: Option<String>) -> BoxFuture<'a, ListenError> {
        Box::pin(self.watch(intake, cursor))
    }

    fn send<'a>(&'a self, message: &'a Outbound) -> BoxFuture<'a, SendOutcome> {
        Box::pin(self.deliver(message))
    }

    fn fetch<'a>(&'a self, media: &'a Media, limit: usize) -> BoxFuture<'a, Result<Bytes, String>> {
        Box::pin(self.download(media, limit))
    }

    fn typing<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, ()> {
        Box::pin(self.show_typing(&address.chat))
    }

    fn test(&self) -> BoxFuture<'_, Result<AccountInfo, Problem>> {
        Box::pin(self.check())
    }

    fn webhook<'a>(
        &'a self,
        request: WebhookRequest,
        intake: &'a dyn Intake,
    ) -> BoxFuture<'a, WebhookAnswer> {
        Box::pin(self.answer(request, intake))
    }
}
