//! The channel `session`: a notice in a session, which starts no run.

use futures_util::future::BoxFuture;
use gantry_agent::{Notice, SessionError, Sessions};
use gantry_protocol::OutboxMessage;
use gantry_tool::Label;

use super::{Channel, Delivery};

pub(crate) const SESSION: &str = "session";

pub(super) struct SessionChannel(pub(super) Sessions);

impl Channel for SessionChannel {
    fn name(&self) -> &str {
        SESSION
    }

    /// A session remembers the ids of its last notices.
    fn ignores_repetitions(&self) -> bool {
        true
    }

    fn check_target(&self, target: &str) -> Result<String, String> {
        self.0.key(target, None).map(|key| key.key).map_err(|err| err.to_string())
    }

    fn deliver<'a>(&'a self, message: &'a OutboxMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(async move {
            let key = match self.0.key(&message.target, None) {
                Ok(key) => key,
                Err(err) => return Delivery::Rejected(err.to_string()),
            };
            match self.0.notify(&key, notice(message)).await {
                Ok(_) => Delivery::Sent,
                Err(err @ (SessionError::Stopping | SessionError::Store(_))) => {
                    Delivery::Retry(err.to_string())
                }
                Err(err) => Delivery::Rejected(err.to_string()),
            }
        })
    }
}

fn notice(message: &OutboxMessage) -> Notice {
    let body = &message.body;
    let text = match (body.title.is_empty(), body.text.is_empty()) {
        (false, false) => format!("{}\n\n{}", body.title, body.text),
        (false, true) => body.title.clone(),
        (true, _) => body.text.clone(),
    };
    // An unknown label of a newer version counts as the worst.
    let labels = body.labels.iter().flat_map(|name| match Label::from_name(name) {
        Some(label) => vec![label],
        None => Label::BOTH.to_vec(),
    });
    Notice {
        id: message.dedupe.clone(),
        from: body.from.clone(),
        text,
        at: message.created,
        labels: labels.collect(),
    }
}
