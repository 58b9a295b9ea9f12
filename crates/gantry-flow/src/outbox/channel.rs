//! [`OutboxChannel`] delivers messages of the outbox.

use std::time::Duration;

use futures_util::future::BoxFuture;
use gantry_protocol::OutboxMessage;
use gantry_store::NewOutboxMessage;

/// A way to deliver messages.
pub trait OutboxChannel: Send + Sync {
    fn name(&self) -> &str;

    /// Whether the channel is meant by another name, such as `telegram` for `telegram:default`.
    fn answers_to(&self, name: &str) -> bool {
        self.name() == name
    }

    /// Whether the receiver ignores a message that it got before. Such messages are sent again after a crash.
    fn ignores_repetitions(&self) -> bool {
        false
    }

    /// Checks a receiver when a message is planned. Returns the target to store.
    fn check_target(&self, target: &str) -> Result<String, String>;

    /// Prepares a message to a target of this channel: splits what is too long, and holds back what needs the owner's yes.
    fn prepare(&self, message: NewOutboxMessage) -> Vec<NewOutboxMessage> {
        vec![message]
    }

    fn deliver<'a>(&'a self, message: &'a OutboxMessage) -> BoxFuture<'a, Delivery>;
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// With the receiver's id of the message, if it has one.
    Sent(Option<String>),
    /// The message did not arrive. The attempt is repeated later: after the time that the receiver asked for, if it did.
    Retry { why: String, after: Option<Duration> },
    /// The message cannot be delivered.
    Rejected(String),
    /// The message may have arrived. A person decides.
    Unknown(String),
}

impl Delivery {
    pub fn retry(why: impl Into<String>) -> Delivery {
        Delivery::Retry { why: why.into(), after: None }
    }
}
