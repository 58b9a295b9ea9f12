//! What kind of place a channel is. A thread is a channel of its own at Discord; here it is a thread of its parent.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use super::Discord;
use super::api::Call;
use super::cursor::is_id;
use super::error::ApiError;
use crate::address::{Address, PeerKind};

/// How many channels are remembered.
const MAX_KNOWN: usize = 5_000;

/// Where a channel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: PeerKind,
    /// The channel that a thread belongs to.
    pub(super) parent: Option<String>,
    pub(super) guild: Option<String>,
}

#[derive(Default)]
pub(super) struct Places {
    known: Mutex<HashMap<String, Place>>,
}

#[derive(Deserialize)]
struct Channel {
    id: String,
    #[serde(rename = "type")]
    kind: u8,
    #[serde(default)]
    parent_id: Option<String>,
    #[serde(default)]
    guild_id: Option<String>,
}

impl Places {
    /// Notes channels and threads that an event describes.
    pub(super) fn note(&self, data: &Value) {
        let guild = data.get("guild_id").or_else(|| data.get("id")).and_then(Value::as_str);
        for channel in ["channels", "threads"].iter().filter_map(|list| data[list].as_array()).flatten() {
            self.insert(channel, guild);
        }
    }

    /// Notes one channel. `guild` is its server, which lists do not repeat.
    pub(super) fn insert(&self, channel: &Value, guild: Option<&str>) -> Option<Place> {
        let channel = Channel::deserialize(channel).ok()?;
        let place = place(&channel, guild)?;
        let mut known = self.known();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(channel.id, place.clone());
        Some(place)
    }

    pub(super) fn get(&self, channel: &str) -> Option<Place> {
        self.known().get(channel).cloned()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(channel: &Channel, guild: Option<&str>) -> Option<Place> {
    let parent = channel.parent_id.clone().filter(|parent| is_id(parent));
    let (kind, parent) = match channel.kind {
        1 => (PeerKind::Dm, None),
        3 => (PeerKind::Group, None),
        // A thread without its parent cannot be placed.
        10..=12 => (PeerKind::Thread, Some(parent?)),
        _ => (PeerKind::Channel, None),
    };
    let guild = channel.guild_id.as_deref().or(guild).map(str::to_owned).filter(|guild| is_id(guild));
    Some(Place { kind, parent, guild }).filter(|_| is_id(&channel.id))
}

impl Place {
    pub(super) fn address(&self, account: &str, channel: &str) -> Address {
        let (chat, thread) = match &self.parent {
            Some(parent) => (parent.clone(), Some(channel.to_owned())),
            None => (channel.to_owned(), None),
        };
        Address { channel: "discord".to_owned(), account: account.to_owned(), kind: self.kind, chat, thread }
    }
}

impl Discord {
    /// Finds out what a channel is. It is asked once.
    pub(super) async fn place(&self, channel: &str) -> Result<Place, ApiError> {
        if let Some(place) = self.places.get(channel) {
            return Ok(place);
        }
        let path = ["channels", channel];
        let mut call = Call::get("read the channel", &path);
        call.object = channel;
        let found: Value = self.call(call).await?;
        let unreadable = ApiError::Unreadable { doing: "read the channel" };
        self.places.insert(&found, None).ok_or(unreadable)
    }
}
