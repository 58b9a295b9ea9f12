//! Reads the events of a webhook request. Unknown fields are ignored; messages of unknown types are reported as such.

use serde_json::Value;

use super::recipient::{is_group_id, is_phone, is_user_id};
use crate::adapter::{Addressed, Inbound, Media, MediaKind, Press};
use crate::address::{Address, PeerKind, Person};

const MAX_ID: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Message(Box<Inbound>),
    Press(Box<Press>),
    Status(Status),
    /// It needs nothing. The text is for the log.
    Other(String),
}

/// What became of a message that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    /// The id of the message.
    pub(super) id: String,
    /// The key that the message was sent with.
    pub(super) key: Option<String>,
    pub(super) recipient: String,
    /// Why the message failed. Others arrived at WhatsApp.
    pub(super) failed: Option<Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: u64,
    pub(super) title: String,
}

/// Reads the events of one phone number, in their order.
pub(super) fn read(body: &Value, phone_number_id: &str, account: &str) -> Vec<Event> {
    let mut events = Vec::new();
    let entries = body["entry"].as_array().into_iter().flatten();
    for change in entries.flat_map(|entry| entry["changes"].as_array().into_iter().flatten()) {
        let value = &change["value"];
        let field = change["field"].as_str().unwrap_or_default();
        if field != "messages" {
            events.push(Event::Other(format!("an event of the field {}", shown(field))));
        } else if value["metadata"]["phone_number_id"] != phone_number_id {
            let other = value["metadata"]["phone_number_id"].as_str().unwrap_or_default();
            events.push(Event::Other(format!("an event of another phone number: {}", shown(other))));
        } else {
            let messages = value["messages"].as_array().into_iter().flatten();
            events.extend(messages.map(|said| message(said, &value["contacts"], account)));
            let statuses = value["statuses"].as_array().into_iter().flatten();
            events.extend(statuses.map(status));
        }
    }
    events
}

fn message(said: &Value, contacts: &Value, account: &str) -> Event {
    let kind = said["type"].as_str().unwrap_or_default();
    let Some(id) = id(&said["id"]) else { return Event::Other("a message without an id".to_owned()) };
    let Some(person) = person(said, contacts) else {
        return Event::Other(format!("the message {id} without a sender"));
    };
    let Some(address) = address(said, &person, account) else {
        return Event::Other(format!("the message {id} from a group with an invalid id"));
    };
    if matches!(kind, "reaction" | "revoke" | "system" | "request_welcome") {
        return Event::Other(format!("the event {id} of the type {kind}"));
    }
    if let Some(handle) = pressed(said) {
        let message_id = self::id(&said["context"]["id"]).unwrap_or_default();
        return Event::Press(Box::new(Press { event_id: id, person, address, message_id, handle }));
    }
    let is_edit = kind == "edit";
    let content = if is_edit { &said["edit"]["message"] } else { said };
    let Content { text, quoted, media } = content_of(content);
    let context = &content["context"];
    let flag = |name: &str| context[name].as_bool() == Some(true);
    let addressed = if address.kind == PeerKind::Dm { Addressed::Direct } else { Addressed::No };
    let seconds = said["timestamp"].as_str().and_then(|seconds| seconds.parse::<i64>().ok());
    let message_id = self::id(&said["edit"]["original_message_id"]).filter(|_| is_edit);
    Event::Message(Box::new(Inbound {
        message_id: message_id.unwrap_or_else(|| id.clone()),
        event_id: id,
        address,
        person,
        text,
        quoted,
        is_forwarded: flag("forwarded") || flag("frequently_forwarded"),
        media: media.into_iter().collect(),
        addressed,
        at: seconds.unwrap_or_default().saturating_mul(1000),
        is_edit,
        is_verified: true,
    }))
}

/// The sender: the id that WhatsApp gives to the person, and the phone number if it is known.
fn person(said: &Value, contacts: &Value) -> Option<Person> {
    let phone = said["from"].as_str().filter(|phone| is_phone(phone));
    let is_same = |contact: &&Value| {
        let same = |field: &str, value: Option<&str>| value.is_some() && contact[field].as_str() == value;
        same("user_id", said["from_user_id"].as_str()) || same("wa_id", phone)
    };
    let contact = contacts.as_array().into_iter().flatten().find(is_same);
    let of_contact = contact.and_then(|contact| contact["user_id"].as_str());
    let user_id = said["from_user_id"].as_str().or(of_contact).filter(|id| is_user_id(id));
    let name = contact.and_then(|contact| contact["profile"]["name"].as_str()).unwrap_or_default();
    let alias = user_id.and(phone).map(str::to_owned);
    Some(Person {
        id: user_id.or(phone)?.to_owned(),
        alias,
        name: name.chars().filter(|c| !c.is_control()).take(100).collect(),
        is_bot: false,
    })
}

fn address(said: &Value, person: &Person, account: &str) -> Option<Address> {
    let (kind, chat) = match said.get("group_id") {
        None | Some(Value::Null) => (PeerKind::Dm, person.id.clone()),
        Some(group) => (PeerKind::Group, group.as_str().filter(|id| is_group_id(id))?.to_owned()),
    };
    Some(Address { channel: "whatsapp".to_owned(), account: account.to_owned(), kind, chat, thread: None })
}

/// The handle of the button or the row that the person chose.
fn pressed(said: &Value) -> Option<String> {
    let interactive = &said["interactive"];
    let kind = interactive["type"].as_str().filter(|kind| matches!(*kind, "button_reply" | "list_reply"))?;
    id(&interactive[kind]["id"])
}

struct Content {
    text: String,
    /// Words of others.
    quoted: Option<String>,
    media: Option<Media>,
}

fn content_of(said: &Value) -> Content {
    let plain = |text: String| Content { text, quoted: None, media: None };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = said["type"].as_str().unwrap_or_default();
    match kind {
        "text" => plain(text(&said["text"]["body"])),
        // The button of a template.
        "button" => plain(text(&said["button"]["text"])),
        "image" | "sticker" | "video" | "audio" | "document" => {
            let file = &said[kind];
            Content { text: text(&file["caption"]), quoted: None, media: Some(media(kind, file)) }
        }
        "location" => {
            let place = &said["location"];
            let names = [&place["name"], &place["address"]].map(text);
            let names = names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
            let (latitude, longitude) = (place["latitude"].as_f64(), place["longitude"].as_f64());
            let (latitude, longitude) = (latitude.unwrap_or_default(), longitude.unwrap_or_default());
            plain(format!("[location {latitude}, {longitude} {names}]").replace(" ]", "]"))
        }
        "contacts" => {
            let cards = said["contacts"].as_array().into_iter().flatten();
            let lines: Vec<String> = cards
                .map(|card| {
                    let phones =
                        card["phones"].as_array().into_iter().flatten().map(|phone| text(&phone["phone"]));
                    format!(
                        "{} {}",
                        text(&card["name"]["formatted_name"]),
                        phones.collect::<Vec<_>>().join(", ")
                    )
                })
                .collect();
            Content { text: "[contact cards]".to_owned(), quoted: Some(lines.join("\n")), media: None }
        }
        "unsupported" => plain("[a message that WhatsApp does not pass on to programs]".to_owned()),
        other => plain(format!("[a message of the type {}, which cannot be shown here]", shown(other))),
    }
}

fn media(kind: &str, file: &Value) -> Media {
    let mime = file["mime_type"].as_str().unwrap_or("application/octet-stream");
    let kind = match kind {
        "image" | "sticker" => MediaKind::Image,
        "video" => MediaKind::Video,
        "audio" => MediaKind::Audio,
        _ if mime.starts_with("image/") => MediaKind::Image,
        _ => MediaKind::Document,
    };
    Media {
        kind,
        // Without parameters such as `codecs=opus`.
        mime: mime.split(';').next().unwrap_or_default().trim().to_owned(),
        name: file["filename"].as_str().map(str::to_owned),
        size: file["file_size"].as_u64(),
        source: file["id"].as_str().unwrap_or_default().to_owned(),
    }
}

fn status(value: &Value) -> Event {
    let (Some(id), Some(status)) = (id(&value["id"]), value["status"].as_str()) else {
        return Event::Other("a status without an id".to_owned());
    };
    let error = &value["errors"][0];
    let failure = || Failure {
        code: error["code"].as_u64().unwrap_or_default(),
        title: shown(error["title"].as_str().or_else(|| error["message"].as_str()).unwrap_or_default()),
    };
    let recipient = value["recipient_user_id"].as_str().or_else(|| value["recipient_id"].as_str());
    match status {
        "sent" | "delivered" | "read" | "played" | "failed" => Event::Status(Status {
            id,
            key: value["biz_opaque_callback_data"].as_str().map(str::to_owned),
            recipient: recipient.unwrap_or_default().to_owned(),
            failed: (status == "failed").then(failure),
        }),
        other => Event::Other(format!("a status of the type {}", shown(other))),
    }
}

fn id(value: &Value) -> Option<String> {
    let is_id = |id: &&str| !id.is_empty() && id.len() <= MAX_ID && !id.chars().any(char::is_control);
    value.as_str().filter(is_id).map(str::to_owned)
}

/// A short text of the provider for a log or a model.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(60).collect()
}
