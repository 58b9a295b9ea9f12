//! Telegram: a bot over the Bot API, by long polling or by webhook.

mod api;
mod send;
#[cfg(test)]
mod tests;
mod update;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gantry_flow::SecretFor;
use gantry_net::{ClientOptions, Method, StatusCode, Url};
use serde_json::{Value, json};

use crate::adapter::{
    AccountInfo, Adapter, Intake, IntakeError, Limits, ListenError, Media, Outbound, Problem, SendOutcome,
    WebhookAnswer, WebhookRequest,
};
use crate::address::Address;
use crate::config::TelegramConfig;
use crate::connection::{Connection, REQUEST_LIMIT};
use crate::render;
use crate::signature::is_secret;
use api::{Api, CallError};
use update::{Me, Update};

const DEFAULT_URL: &str = "https://api.telegram.org";
/// How long Telegram holds a poll open when nothing happens.
const POLL_SECONDS: u64 = 30;
/// A poll that is silent for longer is replaced.
const POLL_LIMIT: Duration = Duration::from_secs(60);
/// How often a webhook account checks its token.
const CHECK_EVERY: Duration = Duration::from_secs(15 * 60);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(120);
const MAX_FILE: usize = 50 << 20;
const MAX_PRESS_ANSWER: usize = 200;
const MAX_MIGRATED: usize = 1000;
const UPDATES: [&str; 5] =
    ["message", "edited_message", "channel_post", "edited_channel_post", "callback_query"];

pub(crate) struct Telegram {
    api: Api,
    webhook_secret: Option<String>,
    /// Where Telegram must send updates, if the gateway has a public https address.
    webhook_url: Option<String>,
    poll_limit: Duration,
    me: Mutex<Option<Me>>,
    /// Groups that became supergroups, by their old id.
    migrated: Mutex<HashMap<String, String>>,
}

impl Telegram {
    /// `public_url` is the gateway's public address.
    pub(crate) fn new(
        config: &TelegramConfig,
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
        public_url: Option<&str>,
    ) -> Telegram {
        let own = config.api_url.as_deref().and_then(|url| url.parse::<Url>().ok());
        let connection = Connection::new(account, network, secrets, &["api.telegram.org"], own.as_ref());
        #[expect(clippy::expect_used, reason = "the constant is a URL")]
        let base = own.unwrap_or_else(|| DEFAULT_URL.parse().expect("a URL"));
        Telegram {
            api: Api { connection, base, token: config.token.clone() },
            webhook_secret: config.webhook_secret.clone(),
            webhook_url: public_url
                .filter(|url| url.starts_with("https://"))
                .map(|url| format!("{}/v1/channels/telegram/{account}/webhook", url.trim_end_matches('/'))),
            poll_limit: POLL_LIMIT,
            me: Mutex::default(),
            migrated: Mutex::default(),
        }
    }

    async fn get_me(&self) -> Result<(Me, Value), CallError> {
        let value = self.api.call("getMe", json!({}), REQUEST_LIMIT).await?;
        let username = value["username"].as_str().unwrap_or_default().to_owned();
        let Some(id) = value["id"].as_i64() else {
            return Err(CallError::Unreadable {
                status: 200,
                text: "getMe answered without an id".to_owned(),
            });
        };
        let me = Me { id, username };
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = Some(me.clone());
        Ok((me, value))
    }

    async fn me(&self) -> Result<Me, CallError> {
        let known = self.me.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(me) => Ok(me),
            None => Ok(self.get_me().await?.0),
        }
    }

    fn current_chat(&self, chat: &str) -> String {
        let migrated = self.migrated.lock().unwrap_or_else(PoisonError::into_inner);
        migrated.get(chat).cloned().unwrap_or_else(|| chat.to_owned())
    }

    fn migrated(&self, from: &str, to: &str) {
        let mut migrated = self.migrated.lock().unwrap_or_else(PoisonError::into_inner);
        if migrated.len() < MAX_MIGRATED {
            migrated.insert(from.to_owned(), to.to_owned());
        }
        tracing::warn!(from, to, "a Telegram group became a supergroup; use the new id in groups");
    }

    async fn run(&self, intake: &dyn Intake, cursor: Option<String>) -> ListenError {
        let me = match self.get_me().await {
            Ok((me, _)) => me,
            Err(err) => return err.to_listen_error(),
        };
        if let Some(secret) = &self.webhook_secret {
            if let Err(err) = self.set_webhook(secret).await {
                return err.to_listen_error();
            }
            intake.connected(&format!("@{}", me.username));
            loop {
                tokio::time::sleep(CHECK_EVERY).await;
                if let Err(err) = self.get_me().await {
                    return err.to_listen_error();
                }
            }
        }
        intake.connected(&format!("@{}", me.username));
        let mut last = cursor.and_then(|cursor| cursor.parse::<i64>().ok());
        loop {
            let mut query = json!({ "timeout": POLL_SECONDS, "limit": 100, "allowed_updates": UPDATES });
            if let Some(last) = last {
                query["offset"] = last.saturating_add(1).into();
            }
            let updates = match self.api.call("getUpdates", query, self.poll_limit).await {
                Ok(updates) => updates,
                Err(err) => return err.to_listen_error(),
            };
            let mut rest = updates.as_array().map_or(&[][..], Vec::as_slice);
            while !rest.is_empty() {
                let (together, others) = rest.split_at(update::album_length(rest));
                rest = others;
                let ids: Vec<i64> =
                    together.iter().filter_map(|update| update["update_id"].as_i64()).collect();
                let (Some(first), Some(newest)) = (ids.first(), ids.iter().max()) else {
                    tracing::warn!("Telegram sent an update without an id");
                    continue;
                };
                // An update that was stored already must not move the cursor back.
                if last.is_some_and(|last| *newest <= last) {
                    continue;
                }
                let cursor = Some(newest.to_string());
                if let Err(err) = self.take(together, *first, &me, cursor, intake).await {
                    return ListenError::Again { why: err.to_string(), after: None };
                }
                last = Some(*newest);
            }
        }
    }

    /// Sets the address to which Telegram sends updates. Without a public address, the operator has done so.
    async fn set_webhook(&self, secret: &str) -> Result<(), CallError> {
        let Some(url) = &self.webhook_url else { return Ok(()) };
        let secret = self.api.connection.secret(secret, &self.api.base).map_err(CallError::Token)?;
        let is_character = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !(1..=256).contains(&secret.len()) || !secret.bytes().all(is_character) {
            let text = "the secret of webhookSecret must have 1 to 256 letters, digits, _ and -";
            return Err(CallError::Token(text.to_owned()));
        }
        let body = json!({ "url": url, "secret_token": secret, "allowed_updates": UPDATES });
        self.api.call("setWebhook", body, REQUEST_LIMIT).await.map(drop)
    }

    async fn take(
        &self,
        updates: &[Value],
        id: i64,
        me: &Me,
        cursor: Option<String>,
        intake: &dyn Intake,
    ) -> Result<(), IntakeError> {
        match update::read_all(updates, id, me, &self.api.connection.account) {
            Update::Message(inbound) => drop(intake.message(*inbound, cursor).await?),
            Update::Press { press, query } => {
                let answer = intake.press(*press, cursor).await?;
                let text: String = answer.chars().take(MAX_PRESS_ANSWER).collect();
                let body = json!({ "callback_query_id": query, "text": text });
                // The press counts even if nobody can be told.
                if let Err(err) = self.api.call("answerCallbackQuery", body, REQUEST_LIMIT).await {
                    tracing::debug!("{}", err.text());
                }
            }
            Update::Migrated { from, to } => {
                self.migrated(&from, &to);
                skip(intake, cursor).await?;
            }
            Update::Other => skip(intake, cursor).await?,
        }
        Ok(())
    }

    async fn check(&self) -> Result<AccountInfo, Problem> {
        let (me, value) = self.get_me().await.map_err(|err| problem(&err, self.api.base.host_str()))?;
        let mut info = AccountInfo { name: format!("@{}", me.username), warnings: Vec::new() };
        if value["can_join_groups"].as_bool() == Some(false) {
            info.warnings
                .push("the bot cannot join groups; allow it with /setjoingroups at @BotFather".to_owned());
        }
        let hook = self.api.call("getWebhookInfo", json!({}), REQUEST_LIMIT).await;
        let hook = hook.map_err(|err| problem(&err, self.api.base.host_str()))?;
        let set = hook["url"].as_str().filter(|url| !url.is_empty());
        match (&self.webhook_secret, set, &self.webhook_url) {
            (None, Some(_), _) => info.warnings.push(
                "a webhook is set, so polling does not work; remove it with deleteWebhook, or set webhookSecret"
                    .to_owned(),
            ),
            (Some(_), None, None) => info.warnings.push(
                "no webhook is set; set gateway.publicUrl to an https address that leads to this gateway"
                    .to_owned(),
            ),
            (Some(_), set, Some(own)) if set != Some(own) => info.warnings.push(format!(
                "updates do not come to {own}; `gantry channels login telegram` sets the webhook again"
            )),
            _ => {}
        }
        if let (Some(_), Some(why)) = (&self.webhook_secret, hook["last_error_message"].as_str()) {
            let why: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
            info.warnings
                .push(format!("Telegram could not deliver an update: {why}; check gateway.publicUrl"));
        }
        Ok(info)
    }

    async fn answer_webhook(&self, request: WebhookRequest, intake: &dyn Intake) -> WebhookAnswer {
        let Some(reference) = &self.webhook_secret else {
            return WebhookAnswer::status(StatusCode::NOT_FOUND);
        };
        if request.method != Method::POST {
            return WebhookAnswer::status(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Ok(secret) = self.api.connection.secret(reference, &self.api.base) else {
            return WebhookAnswer::status(StatusCode::SERVICE_UNAVAILABLE);
        };
        let given = request.headers.get("x-telegram-bot-api-secret-token").map(|value| value.as_bytes());
        if !given.is_some_and(|given| is_secret(&secret, given)) {
            return WebhookAnswer::status(StatusCode::UNAUTHORIZED);
        }
        let update = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
        let Some(id) = update["update_id"].as_i64() else {
            tracing::warn!("Telegram sent an update without an id");
            return WebhookAnswer::status(StatusCode::OK);
        };
        let Ok(me) = self.me().await else {
            return WebhookAnswer::status(StatusCode::SERVICE_UNAVAILABLE);
        };
        // Telegram delivers again after any other status.
        match self.take(&[update], id, &me, None, intake).await {
            Ok(()) => WebhookAnswer::status(StatusCode::OK),
            Err(_) => WebhookAnswer::status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

async fn skip(intake: &dyn Intake, cursor: Option<String>) -> Result<(), IntakeError> {
    match cursor {
        Some(cursor) => intake.skip(cursor).await,
        None => Ok(()),
    }
}

fn problem(err: &CallError, host: Option<&str>) -> Problem {
    let fix = match err {
        CallError::Token(_) | CallError::Rejected { code: 401 | 404, .. } => {
            "copy the token from @BotFather and run `gantry secrets set NAME --host api.telegram.org`"
                .to_owned()
        }
        CallError::Net { .. } => {
            format!("check that this machine can reach https://{}", host.unwrap_or("api.telegram.org"))
        }
        CallError::Rejected { .. } | CallError::Unreadable { .. } => {
            "try again in a minute; if apiUrl is set, check that it is a Bot API server".to_owned()
        }
    };
    Problem { message: err.text(), fix }
}

impl Adapter for Telegram {
    fn limits(&self) -> Limits {
        Limits {
            text: 4096,
            buttons: 100,
            file: MAX_FILE,
            can_edit: true,
            ignores_repetitions: false,
            may_approve: true,
        }
    }

    fn measure(&self, markdown: &str) -> usize {
        render::telegram::measure(markdown)
    }

    fn listen<'a>(&'a self, intake: &'a dyn Intake, cursor: Option<String>) -> BoxFuture<'a, ListenError> {
        Box::pin(self.run(intake, cursor))
    }

    fn send<'a>(&'a self, message: &'a Outbound) -> BoxFuture<'a, SendOutcome> {
        Box::pin(self.send_message(message))
    }

    fn fetch<'a>(&'a self, media: &'a Media, limit: usize) -> BoxFuture<'a, Result<Bytes, String>> {
        Box::pin(self.api.download(&media.source, limit, DOWNLOAD_LIMIT))
    }

    fn typing<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut body = json!({ "chat_id": self.current_chat(&address.chat), "action": "typing" });
            if let Some(thread) = address.thread.as_ref().and_then(|thread| thread.parse::<i64>().ok()) {
                body["message_thread_id"] = thread.into();
            }
            if let Err(err) = self.api.call("sendChatAction", body, REQUEST_LIMIT).await {
                tracing::debug!("{}", err.text());
            }
        })
    }

    fn test(&self) -> BoxFuture<'_, Result<AccountInfo, Problem>> {
        Box::pin(self.check())
    }

    fn webhook<'a>(
        &'a self,
        request: WebhookRequest,
        intake: &'a dyn Intake,
    ) -> BoxFuture<'a, WebhookAnswer> {
        Box::pin(self.answer_webhook(request, intake))
    }
}
