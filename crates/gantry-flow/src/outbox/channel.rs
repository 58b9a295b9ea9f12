//! [`Channel`] delivers messages of the outbox.

use futures_util::future::BoxFuture;
use gantry_protocol::OutboxMessage;

/// A way to deliver messages.
pub(crate) trait Channel: Send + Sync {
    fn name(&self) -> &str;

    /// Whether the receiver ignores a message that it got before. Such messages are sent again after a crash.
    fn ignores_repetitions(&self) -> bool {
        false
    }

    /// Checks a receiver when a message is planned. Returns the target to store.
    fn check_target(&self, target: &str) -> Result<String, String>;

    fn deliver<'a>(&'a self, message: &'a OutboxMessage) -> BoxFuture<'a, Delivery>;
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery {
    Sent,
    /// The message did not arrive. The attempt is repeated later.
    Retry(String),
    /// The message cannot be delivered.
    Rejected(String),
    /// The message may have arrived. A person decides.
    Unknown(String),
}
