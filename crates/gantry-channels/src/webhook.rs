//! The channel `webhook`: signed HTTP requests in both directions, for forms, build servers and programs of one's own.
//!
//! A signature is `t=SECONDS,v1=HEX`, the HMAC-SHA-256 of `SECONDS.BODY`. It is valid for five minutes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use gantry_flow::SecretFor;
use gantry_net::{ClientOptions, HeaderValue, Method, Redirects, Request, StatusCode, Url, header};
use gantry_protocol::{BridgePeer, BridgePerson};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::adapter::{
    Accepted, AccountInfo, Adapter, Addressed, Content, Inbound, Intake, Limits, ListenError, Outbound,
    Problem, SendOutcome, WebhookAnswer, WebhookRequest,
};
use crate::address::{Address, PeerKind, Person};
use crate::chats::now_ms;
use crate::config::WebhookAccountConfig;
use crate::connection::{Connection, REQUEST_LIMIT, failed};
use crate::signature::{is_signed, sign};

const SIGNATURE: &str = "x-gantry-signature";
/// How far the clocks of both sides may differ.
const MAX_SKEW_SECONDS: u64 = 300;
/// The longest text of one message.
const MAX_TEXT: usize = 100_000;

pub(crate) struct Webhook {
    config: WebhookAccountConfig,
    connection: Connection,
    url: Option<Url>,
}

/// The body of a request to this channel.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    /// Identifies the event, also when it is sent again.
    id: String,
    from: BridgePerson,
    text: String,
    /// A chat of two with the sender when left out.
    #[serde(default)]
    peer: Option<BridgePeer>,
    #[serde(default)]
    quoted: Option<String>,
}

impl Webhook {
    pub(crate) fn new(
        config: &WebhookAccountConfig,
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
    ) -> Webhook {
        let url = config.url.as_deref().and_then(|url| url.parse::<Url>().ok());
        let connection = Connection::new(account, network, secrets, &[], url.as_ref());
        Webhook { config: config.clone(), connection, url }
    }

    /// The key of the signatures. It is bound to the host of the receiver, or to `localhost` without one.
    fn key(&self) -> Result<String, String> {
        let own = || "http://localhost".parse::<Url>().map_err(|err| err.to_string());
        let url = self.url.clone().map_or_else(own, Ok)?;
        self.connection.secret(&self.config.secret, &url).and_then(|key| match key.len() {
            0..16 => Err("the secret has fewer than 16 characters".to_owned()),
            _ => Ok(key),
        })
    }

    async fn post(&self, message: &Outbound) -> SendOutcome {
        let Some(url) = self.url.clone() else {
            return SendOutcome::Refused("the account has no `url` to send answers to".to_owned());
        };
        let key = match self.key() {
            Ok(key) => key,
            Err(why) => return SendOutcome::Retry { why, after: None },
        };
        let (text, edits) = match &message.content {
            Content::Text(text) | Content::Question { markdown: text, .. } => (text.clone(), None),
            Content::Edit { message_id, markdown } => (markdown.clone(), Some(message_id.clone())),
            Content::File { bytes, .. } => (String::from_utf8_lossy(bytes).into_owned(), None),
        };
        let body = json!({
            "key": message.key,
            "peer": { "kind": message.address.kind, "id": message.address.chat, "thread": message.address.thread },
            "text": text,
            "replyTo": message.reply_to,
            "edits": edits,
        })
        .to_string();
        let seconds = now_ms() / 1000;
        let signature = signature(&key, seconds, body.as_bytes());
        let mut request = Request::get(url, Instant::now() + REQUEST_LIMIT);
        request.method = Method::POST;
        request.policy = self.connection.policy.clone();
        request.redirects = Redirects::Stop;
        request.body = body.into();
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in [(SIGNATURE, signature), ("idempotency-key", message.key.clone())] {
            match HeaderValue::try_from(value) {
                Ok(value) => request.headers.insert(name, value),
                Err(err) => return SendOutcome::Refused(err.to_string()),
            };
        }
        match self.connection.client.send(request).await {
            Ok(response) => outcome(response.status, response.headers.get(header::RETRY_AFTER), &message.key),
            Err(err) => failed(&err),
        }
    }

    async fn receive(&self, request: WebhookRequest, intake: &dyn Intake) -> WebhookAnswer {
        if request.method != Method::POST {
            return WebhookAnswer::status(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Ok(key) = self.key() else { return WebhookAnswer::status(StatusCode::SERVICE_UNAVAILABLE) };
        let given = request.headers.get(SIGNATURE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !is_genuine(&key, given, &request.body, now_ms() / 1000) {
            let text = "the signature is missing, wrong or older than five minutes";
            return answer(StatusCode::UNAUTHORIZED, &json!({ "error": text }));
        }
        let body: Body = match serde_json::from_slice(&request.body) {
            Ok(body) => body,
            Err(err) => return answer(StatusCode::BAD_REQUEST, &json!({ "error": err.to_string() })),
        };
        let inbound = match self.inbound(body) {
            Ok(inbound) => inbound,
            Err(why) => return answer(StatusCode::BAD_REQUEST, &json!({ "error": why })),
        };
        match intake.message(inbound, None).await {
            Ok(accepted) => answer(StatusCode::ACCEPTED, &json!({ "status": accepted_name(accepted) })),
            Err(err) => answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": err.to_string() })),
        }
    }

    fn inbound(&self, body: Body) -> Result<Inbound, String> {
        let peer = body.peer.unwrap_or_else(|| BridgePeer {
            kind: "dm".into(),
            id: body.from.id.clone(),
            thread: None,
        });
        let address = peer_address("webhook", &self.connection.account, peer)?;
        Ok(Inbound {
            event_id: body.id.clone(),
            message_id: body.id,
            addressed: if address.kind == PeerKind::Dm { Addressed::Direct } else { Addressed::Mention },
            address,
            person: Person { id: body.from.id, alias: None, name: body.from.name, is_bot: body.from.bot },
            text: body.text,
            quoted: body.quoted,
            is_forwarded: false,
            media: Vec::new(),
            at: now_ms(),
            is_edit: false,
            is_verified: true,
        })
    }
}

impl Adapter for Webhook {
    fn limits(&self) -> Limits {
        Limits {
            text: MAX_TEXT,
            buttons: 0,
            file: 0,
            can_edit: false,
            // The receiver gets the key of the message in `Idempotency-Key`.
            ignores_repetitions: false,
            may_approve: false,
        }
    }

    /// Requests arrive by themselves.
    fn listen<'a>(&'a self, intake: &'a dyn Intake, _: Option<String>) -> BoxFuture<'a, ListenError> {
        Box::pin(async move {
            if let Err(why) = self.key() {
                return ListenError::NeedsLogin(format!("the secret cannot be used: {why}"));
            }
            intake.connected(&self.connection.account);
            let never = Arc::new(Notify::new());
            never.notified().await;
            ListenError::Again { why: "stopped".to_owned(), after: Some(Duration::ZERO) }
        })
    }

    fn send<'a>(&'a self, message: &'a Outbound) -> BoxFuture<'a, SendOutcome> {
        Box::pin(self.post(message))
    }

    fn test(&self) -> BoxFuture<'_, Result<AccountInfo, Problem>> {
        Box::pin(async move {
            let missing = |why| Problem {
                message: format!("the secret cannot be used: {why}"),
                fix: "store one of at least 16 characters with `gantry secrets set`".to_owned(),
            };
            self.key().map_err(missing)?;
            let no_url = "answers are not delivered: set `url` to receive them".to_owned();
            let warnings = self.url.is_none().then_some(no_url).into_iter().collect();
            Ok(AccountInfo { name: self.connection.account.clone(), warnings })
        })
    }

    fn webhook<'a>(
        &'a self,
        request: WebhookRequest,
        intake: &'a dyn Intake,
    ) -> BoxFuture<'a, WebhookAnswer> {
        Box::pin(self.receive(request, intake))
    }
}

/// The value of the signature header.
fn signature(key: &str, seconds: i64, body: &[u8]) -> String {
    let signed = sign(key.as_bytes(), &[seconds.to_string().as_bytes(), b".", body]);
    format!("t={seconds},v1={signed}")
}

/// Whether a signature belongs to the body, and is recent.
fn is_genuine(key: &str, given: &str, body: &[u8], now: i64) -> bool {
    let mut parts = given.split(',').filter_map(|part| part.trim().split_once('='));
    let (Some(("t", seconds)), Some(("v1", signed))) = (parts.next(), parts.next()) else { return false };
    let is_recent = seconds.parse::<i64>().is_ok_and(|at| now.abs_diff(at) <= MAX_SKEW_SECONDS);
    is_recent && is_signed(key.as_bytes(), &[seconds.as_bytes(), b".", body], signed)
}

fn outcome(status: StatusCode, retry_after: Option<&HeaderValue>, key: &str) -> SendOutcome {
    let why = format!("the receiver answered {status}");
    let after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
    match status {
        status if status.is_success() => SendOutcome::Sent { message_id: Some(key.to_owned()) },
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            SendOutcome::Retry { why, after }
        }
        // The receiver knows the key, so it can ignore the repetition.
        status if status.is_server_error() => SendOutcome::Retry { why, after },
        _ => SendOutcome::Refused(why),
    }
}

fn answer(status: StatusCode, body: &serde_json::Value) -> WebhookAnswer {
    WebhookAnswer { status, content_type: "application/json", body: body.to_string() }
}

pub(crate) fn accepted_name(accepted: Accepted) -> &'static str {
    match accepted {
        Accepted::New => "accepted",
        Accepted::Duplicate => "duplicate",
        Accepted::Ignored => "ignored",
    }
}

pub(crate) fn peer_address(channel: &str, account: &str, peer: BridgePeer) -> Result<Address, String> {
    let kind = PeerKind::from_name(&peer.kind)
        .ok_or_else(|| format!("peer.kind must be dm, group, channel or thread, not {:?}", peer.kind))?;
    Ok(Address {
        channel: channel.to_owned(),
        account: account.to_owned(),
        kind,
        chat: peer.id,
        thread: peer.thread,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_covers_time_and_body() {
        let key = "0123456789abcdef";
        let good = signature(key, 1_000, b"{}");
        assert!(is_genuine(key, &good, b"{}", 1_200));
        assert!(!is_genuine(key, &good, b"{}", 1_301), "too old");
        assert!(!is_genuine(key, &good, b"{}", 699), "from the future");
        assert!(!is_genuine(key, &good, b"{ }", 1_000));
        assert!(!is_genuine("another key here", &good, b"{}", 1_000));
        for bad in ["", "t=1000", "v1=00,t=1000", "t=x,v1=00", &good.replace("t=1000", "t=1001")] {
            assert!(!is_genuine(key, bad, b"{}", 1_000), "{bad}");
        }
    }
}
