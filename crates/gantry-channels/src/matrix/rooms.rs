//! [`Rooms`] remembers what the adapter must know of each room, and asks the homeserver when it does not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_net::StatusCode;

use super::api::{Api, ApiError, Call};
use super::event::Event;

const MAX_ROOMS: usize = 1_000;
const MAX_NAMES: usize = 500;
const MAX_NAME: usize = 100;
const MAX_SENDERS: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Rooms {
    known: Mutex<HashMap<String, Arc<Room>>>,
    /// Events that messages answered, by id.
    answered: Mutex<HashMap<String, Arc<Answered>>>,
}

#[derive(Debug)]
pub(super) struct Room {
    pub(super) is_encrypted: bool,
    /// How many people have joined, the bot included. Huge rooms count as `usize::MAX`.
    joined: usize,
    names: HashMap<String, String>,
}

impl Room {
    /// Reports whether only the bot and one person are here.
    pub(super) fn is_dm(&self) -> bool {
        self.joined == 2
    }

    pub(super) fn name_of(&self, person: &str) -> String {
        self.names.get(person).cloned().unwrap_or_default()
    }
}

/// An event that a message answers.
#[derive(Debug, Default)]
pub(super) struct Answered {
    pub(super) sender: String,
    pub(super) text: String,
}

impl Rooms {
    /// Forgets everything, because it may have changed.
    pub(super) fn clear(&self) {
        lock(&self.known).clear();
        lock(&self.answered).clear();
    }

    pub(super) fn forget(&self, room: &str) {
        lock(&self.known).remove(room);
    }

    pub(super) async fn room(&self, api: &Api, id: &str) -> Result<Arc<Room>, ApiError> {
        if let Some(room) = lock(&self.known).get(id) {
            return Ok(Arc::clone(room));
        }
        let room = Arc::new(read_room(api, id).await?);
        let mut known = lock(&self.known);
        if known.len() >= MAX_ROOMS {
            known.clear();
        }
        known.insert(id.to_owned(), Arc::clone(&room));
        Ok(room)
    }

    /// Reads an event that a message answers. One that the bot may not see counts as nobody's.
    pub(super) async fn answered(
        &self,
        api: &Api,
        room: &str,
        event: &str,
    ) -> Result<Arc<Answered>, ApiError> {
        if let Some(answered) = lock(&self.answered).get(event) {
            return Ok(Arc::clone(answered));
        }
        let answered = match api.json(Call::get(&["client", "v3", "rooms", room, "event", event])).await {
            Ok(value) => match Event::read(&value) {
                Some(event) => Answered {
                    text: event.content["body"].as_str().unwrap_or_default().to_owned(),
                    sender: event.sender,
                },
                None => Answered::default(),
            },
            Err(err) if is_absent(&err) => Answered::default(),
            Err(err) => return Err(err),
        };
        let answered = Arc::new(answered);
        let mut cache = lock(&self.answered);
        if cache.len() >= MAX_SENDERS {
            cache.clear();
        }
        cache.insert(event.to_owned(), Arc::clone(&answered));
        Ok(answered)
    }
}

async fn read_room(api: &Api, id: &str) -> Result<Room, ApiError> {
    let state = api.json(Call::get(&["client", "v3", "rooms", id, "state", "m.room.encryption"])).await;
    let is_encrypted = match state {
        Ok(_) => true,
        Err(err) if err.status() == Some(StatusCode::NOT_FOUND) => false,
        Err(err) => return Err(err),
    };
    let members = match api.json(Call::get(&["client", "v3", "rooms", id, "joined_members"])).await {
        Ok(members) => members,
        Err(ApiError::TooLong) => {
            return Ok(Room { is_encrypted, joined: usize::MAX, names: HashMap::new() });
        }
        Err(err) => return Err(err),
    };
    let joined = members["joined"].as_object();
    let names = joined.into_iter().flatten().take(MAX_NAMES).filter_map(|(id, profile)| {
        let name = profile["display_name"].as_str()?;
        Some((id.clone(), name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()))
    });
    Ok(Room { is_encrypted, joined: joined.map_or(0, serde_json::Map::len), names: names.collect() })
}

/// The homeserver says that there is no such thing, or that the bot may not see it.
pub(super) fn is_absent(err: &ApiError) -> bool {
    matches!(err.status(), Some(StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
