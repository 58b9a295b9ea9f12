//! The outbox: durable messages to sessions and webhooks. A message is stored once per key, and sent at most once unless its
//! channel ignores repetitions or the receiver reported a failure.

mod api;
mod channel;
mod session;
mod surfaces;
mod webhook;
mod worker;

use std::sync::Arc;

use gantry_protocol::OutboxBody;
use gantry_store::{DatabaseError, NewOutboxMessage};
use gantry_tool::Label;
use tokio::sync::Notify;

pub(crate) use channel::{Channel, Delivery};
pub(crate) use session::SESSION;
pub(crate) use surfaces::{methods, routes};
pub use webhook::SecretFor;
pub(crate) use worker::run;

use crate::domain::{Flow, FlowParts};

/// The channels of the outbox, and what wakes its worker.
pub(crate) struct Outbox {
    channels: Vec<Arc<dyn Channel>>,
    pub(crate) wake: Notify,
}

impl Outbox {
    pub(crate) fn new(parts: &FlowParts) -> Outbox {
        let session: Arc<dyn Channel> = Arc::new(session::SessionChannel(parts.sessions.clone()));
        let webhooks = parts.config.webhooks.iter().map(|(name, config)| -> Arc<dyn Channel> {
            Arc::new(webhook::Webhook::new(name, config, &parts.network, parts.secret.clone()))
        });
        Outbox { channels: std::iter::once(session).chain(webhooks).collect(), wake: Notify::new() }
    }

    pub(crate) fn channel(&self, name: &str) -> Option<&Arc<dyn Channel>> {
        self.channels.iter().find(|channel| channel.name() == name)
    }

    /// The names of all channels.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.channels.iter().map(|channel| channel.name()).collect()
    }
}

impl Flow {
    /// Sends a notice to the owner, in the main session of an agent. A known key sends nothing.
    pub async fn notify(
        &self,
        agent: &str,
        title: &str,
        body: &str,
        dedupe: &str,
    ) -> Result<(), DatabaseError> {
        let message = self.notice(agent, title, body, dedupe, agent, &[]);
        self.send_messages(&[message]).await
    }

    /// Returns a notice to the owner, to be stored together with what it is about.
    pub(crate) fn notice(
        &self,
        agent: &str,
        title: &str,
        body: &str,
        dedupe: &str,
        from: &str,
        labels: &[Label],
    ) -> NewOutboxMessage {
        NewOutboxMessage {
            dedupe: dedupe.to_owned(),
            channel: SESSION.to_owned(),
            target: format!("agent:{agent}:main"),
            body: OutboxBody {
                agent: agent.to_owned(),
                title: title.to_owned(),
                text: body.to_owned(),
                from: from.to_owned(),
                labels: labels.iter().map(|label| label.name().to_owned()).collect(),
            },
            expires: None,
        }
    }

    /// Stores messages and sends them.
    pub async fn send_messages(&self, messages: &[NewOutboxMessage]) -> Result<(), DatabaseError> {
        self.parts.database.add_outbox(messages, self.parts.clock.now()).await?;
        self.outbox.wake.notify_one();
        Ok(())
    }
}
