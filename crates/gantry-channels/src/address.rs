//! Where a message comes from and goes to: [`Address`] is a chat, [`Person`] is somebody in it. Both hold the provider's
//! exact ids; names are for display only.

use serde::{Deserialize, Serialize};

/// The kind of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerKind {
    /// One person and the bot.
    Dm,
    Group,
    Channel,
    Thread,
}

impl PeerKind {
    pub const ALL: [PeerKind; 4] = [PeerKind::Dm, PeerKind::Group, PeerKind::Channel, PeerKind::Thread];

    pub fn name(self) -> &'static str {
        match self {
            PeerKind::Dm => "dm",
            PeerKind::Group => "group",
            PeerKind::Channel => "channel",
            PeerKind::Thread => "thread",
        }
    }

    pub fn from_name(name: &str) -> Option<PeerKind> {
        PeerKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A conversation at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// The channel's name, such as `telegram`.
    pub channel: String,
    /// The account's name in the configuration, such as `default`.
    pub account: String,
    pub kind: PeerKind,
    /// The provider's exact id of the chat.
    pub chat: String,
    /// The thread in the chat, if it has threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

impl Address {
    /// Whether both are in the same chat. Threads of a chat of two have the same readers.
    pub(crate) fn is_same_chat(&self, other: &Address) -> bool {
        let thread = |address: &Address| (address.kind != PeerKind::Dm).then(|| address.thread.clone());
        (&self.channel, &self.account, self.kind, &self.chat, thread(self))
            == (&other.channel, &other.account, other.kind, &other.chat, thread(other))
    }

    /// The chat and the thread as one text, as session keys and receivers use it.
    pub fn peer(&self) -> String {
        match &self.thread {
            Some(thread) => format!("{}.{thread}", self.chat),
            None => self.chat.clone(),
        }
    }
}

/// Somebody at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Person {
    /// The provider's stable id. Never a name that the person can change.
    pub id: String,
    /// Another stable id of the same person, such as a phone number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// For display only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The provider says that this is a program.
    #[serde(default)]
    pub is_bot: bool,
}
