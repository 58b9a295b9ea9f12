//! [`Adapter`] speaks the protocol of one chat service for one account. It knows nothing of sessions, rights or the
//! database: it gives what it hears to an [`Intake`], and sends what it is given.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gantry_link::Link;
use gantry_net::{HeaderMap, Method, StatusCode};

use crate::address::{Address, Person};

/// One account of a chat service.
pub(crate) trait Adapter: Send + Sync + 'static {
    fn limits(&self) -> Limits;

    /// The length of a text in the provider's unit after rendering, to compare with [`Limits::text`].
    fn measure(&self, markdown: &str) -> usize {
        markdown.chars().count()
    }

    /// Connects, and gives every event to `intake`, until the connection fails. `cursor` is the last one that the intake
    /// stored. An event is confirmed to the provider only after the intake has returned. The future is dropped to stop it.
    fn listen<'a>(&'a self, intake: &'a dyn Intake, cursor: Option<String>) -> BoxFuture<'a, ListenError>;

    /// Makes one attempt to send one message.
    fn send<'a>(&'a self, message: &'a Outbound) -> BoxFuture<'a, SendOutcome>;

    /// Reads a file that a message named, at most `limit` bytes.
    fn fetch<'a>(&'a self, media: &'a Media, limit: usize) -> BoxFuture<'a, Result<Bytes, String>> {
        let _ = (media, limit);
        Box::pin(std::future::ready(Err("this channel has no files".to_owned())))
    }

    /// Shows that the bot is typing, for about five seconds.
    fn typing<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, ()> {
        let _ = address;
        Box::pin(std::future::ready(()))
    }

    /// Checks credentials and settings with the provider. Changes nothing there.
    fn test(&self) -> BoxFuture<'_, Result<AccountInfo, Problem>>;

    /// Takes the connection of a bridge. Other channels have none.
    fn connect_bridge(&self, connection: u64, link: Link) {
        let _ = (connection, link);
    }

    /// The account is removed or gets other settings.
    fn close(&self) {}

    /// Answers a request of the provider to `/v1/channels/{channel}/{account}/webhook`. It checks the signature first.
    fn webhook<'a>(
        &'a self,
        request: WebhookRequest,
        intake: &'a dyn Intake,
    ) -> BoxFuture<'a, WebhookAnswer> {
        let _ = (request, intake);
        Box::pin(std::future::ready(WebhookAnswer::status(StatusCode::NOT_FOUND)))
    }
}

/// Takes the events of one account.
pub(crate) trait Intake: Send + Sync {
    /// Stores a message and starts its run, or refuses it. With a cursor, the next [`Adapter::listen`] starts after it. On
    /// return it is on disk, and the adapter may confirm it. A known event is not stored again.
    fn message<'a>(
        &'a self,
        inbound: Inbound,
        cursor: Option<String>,
    ) -> BoxFuture<'a, Result<Accepted, IntakeError>>;

    /// Takes a press of a button. The answer is one sentence to show to the person who pressed.
    fn press<'a>(
        &'a self,
        press: Press,
        cursor: Option<String>,
    ) -> BoxFuture<'a, Result<String, IntakeError>>;

    /// Stores the cursor after events that need nothing else.
    fn skip<'a>(&'a self, cursor: String) -> BoxFuture<'a, Result<(), IntakeError>>;

    /// The account is connected. `name` is the bot's own name there.
    fn connected(&self, name: &str);

    /// Records that the provider settled an attempt to send whose outcome was unknown.
    fn settled<'a>(&'a self, key: &'a str, message_id: &'a str) -> BoxFuture<'a, Result<(), IntakeError>>;
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is stored.
    New,
    /// It was stored before.
    Duplicate,
    /// Its sender has no rights here, or the bot was not addressed. Nothing happens.
    Ignored,
}

/// The event could not be stored. The adapter must not confirm it to the provider.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the event was not stored: {0}")]
pub(crate) struct IntakeError(pub(crate) String);

/// Why listening ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenError {
    /// A new connection may work: network errors, restarts of the provider.
    Again { why: String, after: Option<Duration> },
    /// The credential is missing, wrong or revoked. Only the operator can fix it.
    NeedsLogin(String),
    /// Another program listens with the same credential.
    Conflict(String),
    /// The settings at the provider or here do not allow it: a missing scope, an intent, a plan.
    Refused(String),
}

/// A message from a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inbound {
    /// Identifies the event within the account, also when the provider delivers it again.
    pub(crate) event_id: String,
    /// The provider's id of the message, for replies.
    pub(crate) message_id: String,
    pub(crate) address: Address,
    pub(crate) person: Person,
    /// The text without the mention of the bot.
    pub(crate) text: String,
    /// The text of the message that this one answers, or of a forwarded message: words of others.
    pub(crate) quoted: Option<String>,
    /// The text itself is a forwarded message of somebody else.
    pub(crate) is_forwarded: bool,
    pub(crate) media: Vec<Media>,
    pub(crate) addressed: Addressed,
    /// Milliseconds since 1970, by the provider's clock.
    pub(crate) at: i64,
    /// The sender changed an earlier message. Edits start no run.
    pub(crate) is_edit: bool,
    /// For email: whether the receiving server says that the sender is genuine.
    pub(crate) is_verified: bool,
}

/// How a message addresses the bot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addressed {
    /// It was written in a chat of two.
    Direct,
    Mention,
    /// It answers a message of the bot.
    Reply,
    Command,
    /// It was only heard. Mentions of everybody count as this.
    No,
}

/// A file in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Media {
    pub(crate) kind: MediaKind,
    pub(crate) mime: String,
    pub(crate) name: Option<String>,
    pub(crate) size: Option<u64>,
    /// How the adapter finds it: a provider's id or URL.
    pub(crate) source: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediaKind {
    Image,
    Audio,
    Video,
    Document,
}

/// A press of a button.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Press {
    pub(crate) event_id: String,
    pub(crate) person: Person,
    pub(crate) address: Address,
    /// The message with the button.
    pub(crate) message_id: String,
    /// The value of [`Button::handle`].
    pub(crate) handle: String,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outbound {
    /// Stable over restarts and attempts: at most 64 characters of `[a-z0-9]`. Providers that ignore repetitions get it.
    pub(crate) key: String,
    pub(crate) address: Address,
    /// The provider's id of the message that this one answers.
    pub(crate) reply_to: Option<String>,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Markdown that fits into one message of the provider.
    Text(String),
    /// A text with buttons. Channels without buttons get none.
    Question {
        markdown: String,
        buttons: Vec<Button>,
    },
    /// The new text of a message that was sent. Its buttons are removed.
    Edit {
        message_id: String,
        markdown: String,
    },
    File {
        name: String,
        mime: String,
        bytes: Bytes,
        caption: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Button {
    pub(crate) label: String,
    /// At most 40 characters of `[a-z0-9:]`. It is a name, not a right.
    pub(crate) handle: String,
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    Sent {
        message_id: Option<String>,
    },
    /// The message did not arrive. `after` is what the provider asked for.
    Retry {
        why: String,
        after: Option<Duration>,
    },
    /// The provider will never accept it.
    Refused(String),
    /// The message may have arrived.
    Unknown(String),
}

/// What the provider accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The longest text, in the unit of [`Adapter::measure`].
    pub(crate) text: usize,
    /// The most buttons of a question; 0 if there are none.
    pub(crate) buttons: usize,
    /// The largest file to send, in bytes; 0 if files cannot be sent.
    pub(crate) file: usize,
    pub(crate) can_edit: bool,
    /// A message that is sent again with the same key arrives once.
    pub(crate) ignores_repetitions: bool,
    /// Whether the owner may approve here. False for email and webhooks, whose senders can be forged.
    pub(crate) may_approve: bool,
}

/// What the provider says about the account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AccountInfo {
    /// The bot's name, such as `@gantry_bot`.
    pub(crate) name: String,
    /// Settings that will get in the way, each with its fix.
    pub(crate) warnings: Vec<String>,
}

/// Why an account cannot work, and the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) message: String,
    pub(crate) fix: String,
}

/// A request of a provider.
#[derive(Debug, Clone)]
pub(crate) struct WebhookRequest {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// The query string, undecoded.
    pub(crate) query: String,
    pub(crate) body: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebhookAnswer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl WebhookAnswer {
    pub(crate) fn status(status: StatusCode) -> WebhookAnswer {
        WebhookAnswer { status, content_type: "text/plain", body: String::new() }
    }
}
