//! Listens: asks `/sync` again and again, and gives what people wrote to the intake. The token of the last answer whose
//! events are all stored is the cursor.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_net::{Method, StatusCode};
use serde_json::{Value, json};

use super::Matrix;
use super::api::{ApiError, Call, CallBody};
use super::event::{Event, Own, Said, is_id};
use super::rooms::{Room, is_absent};
use crate::adapter::{Addressed, Inbound, Intake, IntakeError, ListenError};
use crate::address::{Address, PeerKind, Person};

/// How long the homeserver holds a request when there is nothing new.
const POLL: Duration = Duration::from_secs(30);
/// The time for an answer beyond that. A connection that stays silent longer is replaced.
const SLACK: Duration = Duration::from_secs(30);
const MAX_SYNC: usize = 32 << 20;
/// The most events of one room and answer, and the number to ask for after an answer was too long.
const EVENTS: u32 = 50;
const FEW_EVENTS: u32 = 2;
/// The most events of one room that are read after a pause.
const MAX_GAP: usize = 500;
const MAX_PENDING: usize = 200;
/// Where the adapter notes, in the account's own data of a room, that it sent the notice about encryption.
const NOTED: &str = "dev.gantry.encryption_notice";
const NO_ENCRYPTION: &str = "This room is encrypted, and I cannot read encrypted messages. Invite me to a room without encryption, please.";

impl From<ApiError> for ListenError {
    fn from(err: ApiError) -> ListenError {
        err.to_listen_error()
    }
}

impl From<IntakeError> for ListenError {
    fn from(err: IntakeError) -> ListenError {
        ListenError::Again { why: err.to_string(), after: None }
    }
}

/// One connection, from the first request to the error that ends it.
pub(super) struct Listener<'a> {
    matrix: &'a Matrix,
    intake: &'a dyn Intake,
    own: Own,
    /// Invitations of people who may not invite, by room. They may be allowed later.
    invitations: BTreeMap<String, String>,
}

impl<'a> Listener<'a> {
    pub(super) async fn run(
        matrix: &'a Matrix,
        intake: &'a dyn Intake,
        cursor: Option<String>,
    ) -> Result<std::convert::Infallible, ListenError> {
        matrix.rooms.clear();
        let own = matrix.own().await?;
        let mut listener = Listener { matrix, intake, own, invitations: BTreeMap::new() };
        // Open invitations are only listed in an answer without a starting point.
        let start = listener.sync(None, Duration::ZERO).await?;
        let mut since = match cursor {
            Some(cursor) => cursor,
            None => {
                let start = next_batch(&start)?;
                intake.skip(start.clone()).await?;
                start
            }
        };
        listener.invited(&start).await?;
        intake.connected(&listener.own.id);
        let mut wait = Duration::ZERO;
        loop {
            let answer = match listener.sync(Some(&since), wait).await {
                Err(err) if err.status() == Some(StatusCode::BAD_REQUEST) => {
                    tracing::warn!(
                        account = matrix.api.account(),
                        "the homeserver does not know the cursor any more"
                    );
                    start.clone()
                }
                answer => answer?,
            };
            listener.invited(&answer).await?;
            for (room, news) in answer["rooms"]["join"].as_object().into_iter().flatten() {
                if is_id(room, '!') {
                    listener.room(room, news, &since).await?;
                }
            }
            for (room, _) in answer["rooms"]["leave"].as_object().into_iter().flatten() {
                matrix.rooms.forget(room);
                listener.invitations.remove(room);
            }
            let next = next_batch(&answer)?;
            if next != since {
                intake.skip(next.clone()).await?;
                since = next;
            }
            wait = POLL;
        }
    }

    async fn sync(&self, since: Option<&str>, wait: Duration) -> Result<Value, ApiError> {
        // Synapse repeats its answer to the same first request for two minutes, and an old one lacks invitations. The
        // first request never waits, so any number will do.
        let timeout = match since {
            Some(_) => wait.as_millis().to_string(),
            None => (uuid::Uuid::new_v4().as_u128() % 1_000_000).to_string(),
        };
        let mut events = if since.is_some() { EVENTS } else { 0 };
        loop {
            let filter = filter(events).to_string();
            let mut query = vec![("filter", filter.as_str()), ("timeout", timeout.as_str())];
            query.extend(since.map(|since| ("since", since)));
            let mut call = Call::get(&["client", "v3", "sync"]);
            call.query = &query;
            call.within = wait + SLACK;
            call.max_answer = MAX_SYNC;
            match self.matrix.api.json(call).await {
                Err(ApiError::TooLong) if events > FEW_EVENTS => events = FEW_EVENTS,
                answer => return answer,
            }
        }
    }

    /// Joins the rooms that allowed people invited the account to.
    async fn invited(&mut self, answer: &Value) -> Result<(), ListenError> {
        for (room, invitation) in answer["rooms"]["invite"].as_object().into_iter().flatten() {
            let events = invitation["invite_state"]["events"].as_array();
            let invite = events.into_iter().flatten().find(|event| {
                event["type"] == "m.room.member"
                    && event["state_key"] == self.own.id.as_str()
                    && event["content"]["membership"] == "invite"
            });
            let inviter = invite.and_then(|event| event["sender"].as_str()).filter(|id| is_id(id, '@'));
            if let Some(inviter) =
                inviter.filter(|_| is_id(room, '!') && self.invitations.len() < MAX_PENDING)
            {
                self.invitations.insert(room.clone(), inviter.to_owned());
            }
        }
        let allowed = |inviter: &str| (self.matrix.allowed_inviters)(inviter);
        let ready: Vec<String> =
            self.invitations.iter().filter(|(_, by)| allowed(by)).map(|(room, _)| room.clone()).collect();
        for room in ready {
            let path = ["client", "v3", "rooms", &room, "join"];
            let call = Call::new(Method::POST, &path, CallBody::Json(json!({})));
            match self.matrix.api.json(call).await {
                Ok(_) => {}
                // The answer that holds the invitation is asked for again.
                Err(err) if err.is_temporary() || err.needs_login() => return Err(err.into()),
                Err(err) => {
                    tracing::warn!(account = self.matrix.api.account(), error = %err, "cannot join a room");
                }
            }
            self.invitations.remove(&room);
        }
        Ok(())
    }

    async fn room(&self, id: &str, news: &Value, since: &str) -> Result<(), ListenError> {
        let state = read_events(&news["state"]["events"]);
        let mut events = read_events(&news["timeline"]["events"]);
        let changes = |event: &Event| matches!(event.kind.as_str(), "m.room.member" | "m.room.encryption");
        if state.iter().chain(&events).any(changes) {
            self.matrix.rooms.forget(id);
        }
        let is_secret = |event: &Event| event.kind == "m.room.encryption" || event.kind == "m.room.encrypted";
        let mut meets_encryption = state.iter().chain(&events).any(is_secret);
        let is_limited = news["timeline"]["limited"].as_bool() == Some(true);
        match (self.arrival(&events), news["timeline"]["prev_batch"].as_str()) {
            // What was written before the invitation is not meant for the bot.
            (Some(at), _) => drop(events.drain(..at)),
            (None, Some(before)) if is_limited => {
                let mut older = self.gap(id, before, since).await?;
                older.append(&mut events);
                events = older;
            }
            (None, _) => {}
        }
        meets_encryption |= events.iter().any(is_secret);
        events.retain(|event| event.kind == "m.room.message" && event.sender != self.own.id);
        if events.is_empty() && !meets_encryption {
            return Ok(());
        }
        let room = match self.matrix.rooms.room(&self.matrix.api, id).await {
            // The account has left or was removed since.
            Err(err) if is_absent(&err) => return Ok(()),
            room => room?,
        };
        if room.is_encrypted {
            return self.note_encryption(id).await;
        }
        for event in &events {
            if let Some(inbound) = self.inbound(id, &room, event).await? {
                self.intake.message(inbound, None).await?;
            }
        }
        Ok(())
    }

    /// Returns where the account was invited to the room, or else where it joined.
    fn arrival(&self, events: &[Event]) -> Option<usize> {
        let joins = |event: &Event| {
            self.is_own_membership(event, &["join"]) && event.old_membership.as_deref() != Some("join")
        };
        events.iter().rposition(|event| self.arrives(event)).or_else(|| events.iter().rposition(joins))
    }

    /// Reports whether the account had nothing to do with the room before this event.
    fn arrives(&self, event: &Event) -> bool {
        self.is_own_membership(event, &["invite", "join"])
            && !matches!(event.old_membership.as_deref(), Some("invite" | "join"))
    }

    fn is_own_membership(&self, event: &Event, memberships: &[&str]) -> bool {
        event.state_key.as_deref() == Some(&self.own.id)
            && event.membership().is_some_and(|membership| memberships.contains(&membership))
    }

    /// Reads the events between the last answer and this one, the oldest first.
    async fn gap(&self, room: &str, before: &str, since: &str) -> Result<Vec<Event>, ListenError> {
        let mut events = Vec::new();
        let mut from = before.to_owned();
        let filter = json!({"types": TYPES, "lazy_load_members": true}).to_string();
        while events.len() < MAX_GAP {
            let limit = (MAX_GAP - events.len()).min(100).to_string();
            let query = [
                ("dir", "b"),
                ("from", from.as_str()),
                ("to", since),
                ("limit", limit.as_str()),
                ("filter", &filter),
            ];
            let path = ["client", "v3", "rooms", room, "messages"];
            let mut call = Call::get(&path);
            call.query = &query;
            let page = match self.matrix.api.json(call).await {
                Err(err) if is_absent(&err) => break,
                page => page?,
            };
            let chunk = page["chunk"].as_array().map(Vec::as_slice).unwrap_or_default();
            let found: Vec<Event> = chunk.iter().filter_map(Event::read).collect();
            let arrival = found.iter().position(|event| self.arrives(event));
            events.extend(found.into_iter().take(arrival.unwrap_or(usize::MAX)));
            match page["end"].as_str().filter(|end| arrival.is_none() && *end != from && !chunk.is_empty()) {
                Some(end) => from = end.to_owned(),
                None => break,
            }
        }
        if events.len() >= MAX_GAP {
            tracing::warn!(account = self.matrix.api.account(), "a room has more new messages than are read");
        }
        events.reverse();
        Ok(events)
    }

    /// Says once in a room that the bot cannot read it.
    async fn note_encryption(&self, room: &str) -> Result<(), ListenError> {
        let api = &self.matrix.api;
        let noted = ["client", "v3", "user", &self.own.id, "rooms", room, "account_data", NOTED];
        match api.json(Call::get(&noted)).await {
            Ok(_) => return Ok(()),
            Err(err) if err.status() == Some(StatusCode::NOT_FOUND) => {}
            Err(err) => return Err(err.into()),
        }
        let content = json!({"msgtype": "m.notice", "body": NO_ENCRYPTION, "m.mentions": {}});
        let path = ["client", "v3", "rooms", room, "send", "m.room.message", "gantryencryption"];
        match api.json(Call::new(Method::PUT, &path, CallBody::Json(content))).await {
            Ok(_) => {}
            Err(err) if err.is_temporary() || err.needs_login() => return Err(err.into()),
            Err(err) => {
                tracing::warn!(account = api.account(), error = %err, "cannot write into an encrypted room");
            }
        }
        api.json(Call::new(Method::PUT, &noted, CallBody::Json(json!({"sent": true})))).await?;
        Ok(())
    }

    async fn inbound(
        &self,
        room_id: &str,
        room: &Room,
        event: &Event,
    ) -> Result<Option<Inbound>, ListenError> {
        let Some(said) = Said::read(&event.content, &self.own) else { return Ok(None) };
        let api = &self.matrix.api;
        let mut quoted = said.quoted;
        let mut answers_bot = false;
        if let Some(reply_to) = &said.reply_to {
            let answered = self.matrix.rooms.answered(api, room_id, reply_to).await?;
            answers_bot = answered.sender == self.own.id;
            if !answered.text.is_empty() {
                quoted = Some(answered.text.clone());
            }
        }
        let is_mentioned = self.own.is_mentioned(&event.content);
        if let Some(root) = said.thread.as_deref().filter(|_| !room.is_dm() && !is_mentioned && !answers_bot)
        {
            answers_bot = self.matrix.rooms.answered(api, room_id, root).await?.sender == self.own.id;
        }
        let addressed = match (room.is_dm(), is_mentioned, answers_bot) {
            (true, _, _) => Addressed::Direct,
            (_, true, _) => Addressed::Mention,
            (_, _, true) => Addressed::Reply,
            _ => Addressed::No,
        };
        let kind = match (room.is_dm(), &said.thread) {
            (true, _) => PeerKind::Dm,
            (false, Some(_)) => PeerKind::Thread,
            (false, None) => PeerKind::Group,
        };
        Ok(Some(Inbound {
            event_id: event.id.clone(),
            message_id: said.edit_of.clone().unwrap_or_else(|| event.id.clone()),
            address: Address {
                channel: "matrix".to_owned(),
                account: api.account().to_owned(),
                kind,
                chat: room_id.to_owned(),
                thread: said.thread,
            },
            person: Person {
                id: event.sender.clone(),
                alias: None,
                name: room.name_of(&event.sender),
                is_bot: false,
            },
            text: said.text,
            quoted,
            is_forwarded: false,
            media: said.media.into_iter().collect(),
            addressed,
            at: event.at,
            is_edit: said.edit_of.is_some(),
            is_verified: true,
        }))
    }
}

const TYPES: [&str; 4] = ["m.room.message", "m.room.encrypted", "m.room.encryption", "m.room.member"];

/// Asks for at most `events` events of each room, and nothing else but its encryption. Zero asks for no rooms' events.
fn filter(events: u32) -> Value {
    let nothing = json!({"types": []});
    let (types, state) = match events {
        0 => (json!([]), json!([])),
        _ => (json!(TYPES), json!(["m.room.encryption"])),
    };
    json!({
        "presence": nothing,
        "account_data": nothing,
        "room": {
            "account_data": nothing,
            "ephemeral": nothing,
            "state": {"types": state, "lazy_load_members": true},
            "timeline": {"types": types, "limit": events.max(1), "lazy_load_members": true},
        },
    })
}

fn next_batch(answer: &Value) -> Result<String, ListenError> {
    let token = answer["next_batch"].as_str().filter(|token| !token.is_empty() && token.len() <= 2_000);
    token.map(str::to_owned).ok_or_else(|| ListenError::Again {
        why: "the homeserver's answer to /sync has no token".to_owned(),
        after: None,
    })
}

fn read_events(events: &Value) -> Vec<Event> {
    events.as_array().into_iter().flatten().filter_map(Event::read).collect()
}
