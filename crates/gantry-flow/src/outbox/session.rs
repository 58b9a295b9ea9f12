//! The channel `session`: a notice in a session, which starts no run.

use futures_util::future::BoxFuture;
use gantry_agent::{Notice, SessionError, Sessions};
use gantry_protocol::OutboxMessage;
use gantry_store::{Database, DatabaseError};
use gantry_tool::Label;

use super::{Delivery, Outbox, OutboxChannel, owner_copies};

pub(crate) const SESSION: &str = "session";

pub(super) struct SessionChannel {
    pub(super) sessions: Sessions,
    pub(super) outbox: Outbox,
    pub(super) database: Database,
}

impl SessionChannel {
    /// What the main session gets also goes to the owner's last active chat. A repetition has the same key.
    async fn copy_to_owner(&self, agent: &str, message: &OutboxMessage) -> Result<(), DatabaseError> {
        let is_main = message.target == format!("agent:{agent}:main");
        let copies = owner_copies(&self.outbox, agent, &message.dedupe, &message.body);
        if is_main && !copies.is_empty() {
            self.database.add_outbox(&copies, jiff::Timestamp::now().as_millisecond()).await?;
            self.outbox.wake();
        }
        Ok(())
    }
}

impl OutboxChannel for SessionChannel {
    fn name(&self) -> &str {
        SESSION
    }

    /// A session remembers the ids of its last notices.
    fn ignores_repetitions(&self) -> bool {
        true
    }

    fn check_target(&self, target: &str) -> Result<String, String> {
        self.sessions.key(target, None).map(|key| key.key).map_err(|err| err.to_string())
    }

    fn deliver<'a>(&'a self, message: &'a OutboxMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(async move {
            let key = match self.sessions.key(&message.target, None) {
                Ok(key) => key,
                Err(err) => return Delivery::Rejected(err.to_string()),
            };
            match self.sessions.notify(&key, notice(message)).await {
                Ok(_) => match self.copy_to_owner(&key.agent, message).await {
                    Ok(()) => Delivery::Sent(None),
                    Err(err) => Delivery::retry(err.to_string()),
                },
                Err(err @ (SessionError::Stopping | SessionError::Store(_))) => {
                    Delivery::retry(err.to_string())
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
