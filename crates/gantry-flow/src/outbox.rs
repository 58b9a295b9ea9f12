//! The outbox: durable messages to sessions, webhooks and chats. A message is stored once per key, and sent at most once unless its
//! channel ignores repetitions or the receiver reported a failure.

mod api;
mod channel;
mod session;
mod surfaces;
mod webhook;
mod worker;

use std::sync::{Arc, PoisonError, RwLock};

use gantry_protocol::OutboxBody;
use gantry_store::{DatabaseError, NewOutboxMessage};
use gantry_tool::Label;
use tokio::sync::Notify;

pub use channel::{Delivery, OutboxChannel};
pub(crate) use session::SESSION;
pub(crate) use surfaces::{methods, routes};
pub use webhook::SecretFor;
pub(crate) use worker::run;

use crate::domain::{Flow, FlowParts};

/// The channels of the outbox, and what wakes its worker. Clones are cheap. Domains that deliver messages add their channels.
#[derive(Clone, Default)]
pub struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    channels: RwLock<Vec<Arc<dyn OutboxChannel>>>,
    owner_chats: RwLock<Option<Arc<dyn OwnerChats>>>,
    wake: Notify,
}

/// Finds the chats in which the owner talks to agents.
pub trait OwnerChats: Send + Sync {
    /// Returns the owner's last active conversation with an agent: a channel of the outbox and the receiver in it.
    fn last_active(&self, agent: &str) -> Option<(String, String)>;
}

impl Outbox {
    /// Adds a channel, in place of the one with the same name.
    pub fn add_channel(&self, channel: Arc<dyn OutboxChannel>) {
        let mut channels = self.shared.channels.write().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|known| known.name() != channel.name());
        channels.push(channel);
    }

    /// Removes a channel. Its messages fail until it is added again.
    pub fn remove_channel(&self, name: &str) {
        self.shared
            .channels
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|known| known.name() != name);
    }

    pub fn set_owner_chats(&self, chats: Arc<dyn OwnerChats>) {
        *self.shared.owner_chats.write().unwrap_or_else(PoisonError::into_inner) = Some(chats);
    }

    /// Looks for due messages now.
    pub fn wake(&self) {
        self.shared.wake.notify_one();
    }

    pub(crate) async fn woken(&self) {
        self.shared.wake.notified().await;
    }

    /// The channel with this name, or the only one that answers to it.
    pub(crate) fn channel(&self, name: &str) -> Option<Arc<dyn OutboxChannel>> {
        let channels = self.channels();
        let exact = channels.iter().find(|channel| channel.name() == name);
        exact.or_else(|| channels.iter().find(|channel| channel.answers_to(name))).cloned()
    }

    pub(crate) fn channels(&self) -> Vec<Arc<dyn OutboxChannel>> {
        self.shared.channels.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The names of all channels.
    pub(crate) fn names(&self) -> Vec<String> {
        self.channels().iter().map(|channel| channel.name().to_owned()).collect()
    }

    pub(crate) fn owner_chat(&self, agent: &str) -> Option<(String, String)> {
        let chats = self.shared.owner_chats.read().unwrap_or_else(PoisonError::into_inner).clone();
        chats.and_then(|chats| chats.last_active(agent))
    }

    /// Prepares a message for its channel. A message of an unknown channel stays as it is, and fails when it is sent.
    pub fn prepare(&self, message: NewOutboxMessage) -> Vec<NewOutboxMessage> {
        match self.channel(&message.channel) {
            Some(channel) => channel.prepare(message),
            None => vec![message],
        }
    }

    /// Adds the channels that flow itself has: sessions and webhooks.
    pub(crate) fn add_own_channels(&self, parts: &FlowParts) {
        self.add_channel(Arc::new(session::SessionChannel {
            sessions: parts.sessions.clone(),
            outbox: self.clone(),
            database: parts.database.clone(),
        }));
        for (name, config) in &parts.config.webhooks {
            self.add_channel(Arc::new(webhook::Webhook::new(
                name,
                config,
                &parts.network,
                parts.secret.clone(),
            )));
        }
    }
}

/// Copies of a message for the owner's last active chat.
pub(crate) fn owner_copies(
    outbox: &Outbox,
    agent: &str,
    dedupe: &str,
    body: &OutboxBody,
) -> Vec<NewOutboxMessage> {
    let Some((channel, target)) = outbox.owner_chat(agent) else { return Vec::new() };
    let dedupe = format!("chat:{dedupe}");
    outbox.prepare(NewOutboxMessage { dedupe, channel, target, body: body.clone(), expires: None })
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
                chat: None,
            },
            expires: None,
        }
    }

    /// Stores messages and sends them.
    pub async fn send_messages(&self, messages: &[NewOutboxMessage]) -> Result<(), DatabaseError> {
        self.parts.database.add_outbox(messages, self.parts.clock.now()).await?;
        self.parts.outbox.wake();
        Ok(())
    }
}
