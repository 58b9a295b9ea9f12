//! Reads updates. Unknown kinds and fields are ignored.

use serde_json::Value;

use crate::adapter::{Addressed, Inbound, Media, MediaKind, Press};
use crate::address::{Address, PeerKind, Person};

/// The bot itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Me {
    pub(super) id: i64,
    pub(super) username: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Update {
    Message(Box<Inbound>),
    Press {
        press: Box<Press>,
        query: String,
    },
    /// A group became a supergroup, which has another id.
    Migrated {
        from: String,
        to: String,
    },
    /// It needs nothing.
    Other,
}

/// The number of updates at the start of a batch that belong together: the pictures of an album come one by one.
pub(super) fn album_length(updates: &[Value]) -> usize {
    let album = |update: &Value| {
        let message = update.get("message").or_else(|| update.get("channel_post"))?;
        Some((message["chat"]["id"].as_i64()?, message["media_group_id"].as_str()?.to_owned()))
    };
    let Some(first) = updates.first().and_then(album) else { return 1 };
    updates.iter().take_while(|update| album(update).as_ref() == Some(&first)).count()
}

/// Reads updates that belong together. Their files are joined in the first one.
pub(super) fn read_all(updates: &[Value], id: i64, me: &Me, account: &str) -> Update {
    let mut read_one = read(updates.first().unwrap_or(&Value::Null), id, me, account);
    for update in updates.iter().skip(1) {
        if let (Update::Message(first), Update::Message(next)) =
            (&mut read_one, read(update, id, me, account))
        {
            first.media.extend(next.media);
            if first.text.is_empty() {
                (first.text, first.addressed) = (next.text, next.addressed);
            }
        }
    }
    read_one
}

/// Reads an update. `account` is the account's name in the configuration.
fn read(update: &Value, id: i64, me: &Me, account: &str) -> Update {
    let event_id = format!("u{id}");
    if let Some(query) = update.get("callback_query") {
        return press(query, event_id, account).unwrap_or(Update::Other);
    }
    let kinds = [
        ("message", false),
        ("channel_post", false),
        ("edited_message", true),
        ("edited_channel_post", true),
    ];
    let found = kinds.iter().find_map(|(kind, is_edit)| Some((update.get(kind)?, *is_edit)));
    let Some((message, is_edit)) = found else { return Update::Other };
    if let Some(to) = message["migrate_to_chat_id"].as_i64() {
        let from = message["chat"]["id"].as_i64().unwrap_or_default().to_string();
        return Update::Migrated { from, to: to.to_string() };
    }
    match inbound(message, event_id, is_edit, me, account) {
        Some(inbound) => Update::Message(Box::new(inbound)),
        None => Update::Other,
    }
}

fn inbound(message: &Value, event_id: String, is_edit: bool, me: &Me, account: &str) -> Option<Inbound> {
    let address = address(message, account)?;
    let person = person(message)?;
    if person.id == me.id.to_string() {
        return None;
    }
    let (text, entities) = match message["text"].as_str() {
        Some(text) => (text, &message["entities"]),
        None => (message["caption"].as_str().unwrap_or_default(), &message["caption_entities"]),
    };
    let media = media(message);
    let sticker = message["sticker"]["emoji"].as_str().unwrap_or_default();
    if text.is_empty() && media.is_empty() && sticker.is_empty() {
        return None;
    }
    let (text, named) = without_mentions(text, entities, me);
    let answered = &message["reply_to_message"];
    // In a topic, messages that answer nothing seem to answer the message that created the topic.
    let is_answer = answered.is_object() && answered.get("forum_topic_created").is_none();
    let addressed = match (address.kind, named) {
        (PeerKind::Dm, _) => Addressed::Direct,
        (_, Some(named)) => named,
        _ if is_answer && answered["from"]["id"].as_i64() == Some(me.id) => Addressed::Reply,
        _ => Addressed::No,
    };
    let quoted = message["quote"]["text"].as_str().or_else(|| {
        let answered = Some(answered).filter(|_| is_answer)?;
        answered["text"].as_str().or_else(|| answered["caption"].as_str())
    });
    let date = message["edit_date"].as_i64().filter(|_| is_edit).or_else(|| message["date"].as_i64());
    Some(Inbound {
        event_id,
        message_id: message["message_id"].as_i64()?.to_string(),
        address,
        person,
        text: if text.is_empty() { sticker.to_owned() } else { text },
        quoted: quoted.map(str::to_owned),
        is_forwarded: message.get("forward_origin").is_some(),
        media,
        addressed,
        at: date.unwrap_or_default().saturating_mul(1000),
        is_edit,
        is_verified: true,
    })
}

fn press(query: &Value, event_id: String, account: &str) -> Option<Update> {
    let message = &query["message"];
    let press = Box::new(Press {
        event_id,
        person: user(&query["from"])?,
        address: address(message, account)?,
        message_id: message["message_id"].as_i64()?.to_string(),
        handle: query["data"].as_str()?.to_owned(),
    });
    Some(Update::Press { press, query: query["id"].as_str()?.to_owned() })
}

fn address(message: &Value, account: &str) -> Option<Address> {
    let chat = &message["chat"];
    let is_topic = message["is_topic_message"].as_bool() == Some(true);
    // Other messages have a thread id too, when they answer each other.
    let thread = message["message_thread_id"].as_i64().filter(|_| is_topic).map(|id| id.to_string());
    let kind = match chat["type"].as_str()? {
        "private" => PeerKind::Dm,
        "channel" => PeerKind::Channel,
        _ if thread.is_some() => PeerKind::Thread,
        _ => PeerKind::Group,
    };
    let chat = chat["id"].as_i64()?.to_string();
    Some(Address { channel: "telegram".to_owned(), account: account.to_owned(), kind, chat, thread })
}

/// The sender. Channels and anonymous administrators write as a chat.
fn person(message: &Value) -> Option<Person> {
    let chat = match message.get("sender_chat") {
        Some(chat) => chat,
        None if message.get("from").is_some() => return user(&message["from"]),
        // The id of a chat of two is a person's. It must not pass for the sender.
        None if message["chat"]["type"] == "private" => return None,
        None => &message["chat"],
    };
    let name = chat["title"].as_str().or_else(|| chat["username"].as_str()).unwrap_or_default();
    Some(Person { id: chat["id"].as_i64()?.to_string(), alias: None, name: name.to_owned(), is_bot: false })
}

fn user(user: &Value) -> Option<Person> {
    let names = [user["first_name"].as_str(), user["last_name"].as_str()];
    let name = names.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let is_bot = user["is_bot"].as_bool().unwrap_or_default();
    Some(Person { id: user["id"].as_i64()?.to_string(), alias: None, name, is_bot })
}

/// Removes mentions of the bot, and says how the text addresses it. Offsets count UTF-16 units.
fn without_mentions(text: &str, entities: &Value, me: &Me) -> (String, Option<Addressed>) {
    let mut units: Vec<u16> = text.encode_utf16().collect();
    let mut addressed = None;
    let own = format!("@{}", me.username);
    let mut found: Vec<(usize, usize, &Value)> = entities
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entity| {
            let offset = usize::try_from(entity["offset"].as_u64()?).ok()?;
            let end = offset.checked_add(usize::try_from(entity["length"].as_u64()?).ok()?)?;
            (offset < end && end <= units.len()).then_some((offset, end, entity))
        })
        .collect();
    // From the end, so that earlier offsets stay valid.
    found.sort_by_key(|(offset, ..)| std::cmp::Reverse(*offset));
    for (start, end, entity) in found {
        if end > units.len() {
            continue;
        }
        let part = String::from_utf16_lossy(&units[start..end]);
        match entity["type"].as_str() {
            Some("mention") if part.eq_ignore_ascii_case(&own) => {
                units.drain(start..end);
                addressed = addressed.or(Some(Addressed::Mention));
            }
            Some("text_mention") if entity["user"]["id"].as_i64() == Some(me.id) => {
                units.drain(start..end);
                addressed = addressed.or(Some(Addressed::Mention));
            }
            Some("bot_command") if start == 0 => match part.split_once('@') {
                None => addressed = Some(Addressed::Command),
                Some((command, bot)) if own[1..].eq_ignore_ascii_case(bot) => {
                    units.drain(command.encode_utf16().count()..end);
                    addressed = Some(Addressed::Command);
                }
                Some(_) => {}
            },
            _ => {}
        }
    }
    (String::from_utf16_lossy(&units).trim().to_owned(), addressed)
}

fn media(message: &Value) -> Vec<Media> {
    if let Some(photo) = message["photo"].as_array().and_then(|sizes| sizes.last()) {
        return file(photo, MediaKind::Image, "image/jpeg").into_iter().collect();
    }
    let kinds = [
        ("animation", MediaKind::Video, "video/mp4"),
        ("audio", MediaKind::Audio, "audio/mpeg"),
        ("document", MediaKind::Document, "application/octet-stream"),
        ("video", MediaKind::Video, "video/mp4"),
        ("video_note", MediaKind::Video, "video/mp4"),
        ("voice", MediaKind::Audio, "audio/ogg"),
    ];
    // An animation is there a second time as a document.
    let found = kinds.iter().find_map(|(key, kind, mime)| file(message.get(key)?, *kind, mime));
    found.into_iter().collect()
}

fn file(file: &Value, kind: MediaKind, mime: &str) -> Option<Media> {
    let mime = file["mime_type"].as_str().unwrap_or(mime).to_owned();
    let kind = if mime.starts_with("image/") { MediaKind::Image } else { kind };
    Some(Media {
        kind,
        mime,
        name: file["file_name"].as_str().map(str::to_owned),
        size: file["file_size"].as_u64(),
        source: file["file_id"].as_str()?.to_owned(),
    })
}
