//! [`Bridge`] is an account whose protocol a program of somebody else speaks. The program connects to the gateway with the
//! role `channel`, gives messages to `channel.inbound`, and answers `channel.send`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use gantry_link::Link;
use gantry_protocol::{BridgeButton, BridgeFile, BridgePeer, BridgeSend, BridgeSent, CloseReason, raw};
use tokio::sync::watch;

use crate::adapter::{
    AccountInfo, Adapter, Content, Intake, Limits, ListenError, Outbound, Problem, SendOutcome,
};
use crate::config::BridgeConfig;

/// The time that a bridge has to send one message.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// The method of the gateway's requests to a bridge.
const SEND: &str = "channel.send";
const MAX_TEXT: usize = 4_000;
const MAX_FILE: usize = 5 * 1024 * 1024;

pub(crate) struct Bridge {
    /// The client token that the bridge connects with.
    pub(crate) token_name: String,
    link: Mutex<Option<(u64, Link)>>,
    changed: watch::Sender<u64>,
}

impl Bridge {
    pub(crate) fn new(config: &BridgeConfig) -> Bridge {
        Bridge {
            token_name: config.token_name.clone(),
            link: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    fn link(&self) -> Option<Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, link)| link.clone())
    }

    fn forget(&self, gone: u64) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if link.as_ref().is_some_and(|(connection, _)| *connection == gone) {
            *link = None;
        }
    }

    async fn deliver(&self, message: &Outbound) -> SendOutcome {
        let Some(link) = self.link().filter(|link| !link.is_closed()) else {
            return SendOutcome::Retry { why: "the bridge is not connected".to_owned(), after: None };
        };
        let params = params(message);
        let answer = tokio::time::timeout(SEND_LIMIT, link.request(SEND, raw(&params), None)).await;
        let sent: BridgeSent = match answer {
            Ok(Ok(result)) => match serde_json::from_str(result.get()) {
                Ok(sent) => sent,
                Err(err) => return SendOutcome::Unknown(format!("the bridge's answer is invalid: {err}")),
            },
            Ok(Err(err)) => return SendOutcome::Unknown(format!("the bridge did not answer: {err}")),
            Err(_) => return SendOutcome::Unknown("the bridge did not answer in time".to_owned()),
        };
        let why = sent.reason.unwrap_or_else(|| format!("the bridge answered {:?}", sent.status));
        match sent.status.as_str() {
            "sent" => SendOutcome::Sent { message_id: sent.message_id },
            "retry" => SendOutcome::Retry { why, after: sent.retry_after_ms.map(Duration::from_millis) },
            "refused" => SendOutcome::Refused(why),
            _ => SendOutcome::Unknown(why),
        }
    }
}

fn params(message: &Outbound) -> BridgeSend {
    let address = &message.address;
    let mut params = BridgeSend {
        key: message.key.clone(),
        peer: BridgePeer {
            kind: address.kind.name().to_owned(),
            id: address.chat.clone(),
            thread: address.thread.clone(),
        },
        text: String::new(),
        reply_to: message.reply_to.clone(),
        edits: None,
        buttons: Vec::new(),
        file: None,
    };
    match &message.content {
        Content::Text(text) => params.text.clone_from(text),
        Content::Question { markdown, buttons } => {
            params.text.clone_from(markdown);
            let button = |one: &crate::adapter::Button| BridgeButton {
                label: one.label.clone(),
                handle: one.handle.clone(),
            };
            params.buttons = buttons.iter().map(button).collect();
        }
        Content::Edit { message_id, markdown } => {
            params.text.clone_from(markdown);
            params.edits = Some(message_id.clone());
        }
        Content::File { name, mime, bytes, caption } => {
            params.text.clone_from(caption);
            let content = STANDARD.encode(bytes);
            params.file = Some(BridgeFile { name: name.clone(), mime: mime.clone(), content });
        }
    }
    params
}

impl Adapter for Bridge {
    fn limits(&self) -> Limits {
        Limits {
            text: MAX_TEXT,
            buttons: 10,
            file: MAX_FILE,
            can_edit: true,
            // A bridge keeps the keys of what it has sent.
            ignores_repetitions: true,
            may_approve: true,
        }
    }

    /// The program connects again, to the account with its new settings.
    fn close(&self) {
        if let Some(link) = self.link() {
            link.close(CloseReason::Replaced);
        }
    }

    /// Waits for the program, and notices when it has gone.
    fn listen<'a>(&'a self, intake: &'a dyn Intake, _: Option<String>) -> BoxFuture<'a, ListenError> {
        Box::pin(async move {
            let mut changed = self.changed.subscribe();
            loop {
                let current = self.link.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some((connection, link)) = current {
                    intake.connected("bridge");
                    tokio::select! {
                        _ = link.closed() => {
                            self.forget(connection);
                            let why = "the bridge disconnected".to_owned();
                            return ListenError::Again { why, after: Some(Duration::ZERO) };
                        }
                        _ = changed.changed() => {}
                    }
                } else if changed.changed().await.is_err() {
                    return ListenError::Refused("the bridge is gone".to_owned());
                }
            }
        })
    }

    /// An earlier connection gets no more messages.
    fn connect_bridge(&self, connection: u64, link: Link) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some((connection, link));
        self.changed.send_replace(connection);
    }

    fn send<'a>(&'a self, message: &'a Outbound) -> BoxFuture<'a, SendOutcome> {
        Box::pin(self.deliver(message))
    }

    fn test(&self) -> BoxFuture<'_, Result<AccountInfo, Problem>> {
        Box::pin(async move {
            match self.link().filter(|link| !link.is_closed()) {
                Some(_) => Ok(AccountInfo { name: "bridge".to_owned(), warnings: Vec::new() }),
                None => Err(Problem {
                    message: "the bridge is not connected".to_owned(),
                    fix: format!("start the program that connects with the token {:?}", self.token_name),
                }),
            }
        })
    }
}
