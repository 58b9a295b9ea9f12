//! Turns Slack's events into messages and presses.

use serde::Deserialize;
use serde_json::Value;

use super::Identity;
use super::text;
use crate::adapter::{Addressed, Inbound, Media, MediaKind, Press};
use crate::address::{Address, PeerKind, Person};

/// The most files of one message.
const MAX_FILES: usize = 20;

/// What an event means for the bot.
#[derive(Debug)]
pub(super) enum Heard {
    Message(Box<Inbound>),
    Press(Box<Press>),
    /// It does not concern the bot.
    Nothing,
    Malformed,
}

#[derive(Debug, Deserialize)]
struct Callback {
    event: Value,
}

/// A `message` or `app_mention`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    #[serde(rename = "type")]
    kind: String,
    subtype: Option<String>,
    channel: String,
    user: Option<String>,
    bot_id: Option<String>,
    text: String,
    ts: String,
    thread_ts: Option<String>,
    /// Who wrote the message that the thread is about.
    parent_user_id: Option<String>,
    files: Vec<Value>,
    attachments: Vec<Value>,
    edited: Option<Edited>,
    /// The new message, for the subtype `message_changed`.
    message: Option<Box<Said>>,
    previous_message: Option<Box<Said>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Edited {
    ts: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    name: Option<String>,
    mimetype: String,
    size: Option<u64>,
    url_private_download: Option<String>,
    url_private: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Attachment {
    /// Another message, which was shared.
    is_share: bool,
    is_msg_unfurl: bool,
    text: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interaction {
    #[serde(rename = "type")]
    kind: String,
    user: User,
    container: Container,
    channel: Channel,
    message: Said,
    actions: Vec<Action>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    id: String,
    name: String,
    username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    message_ts: String,
    channel_id: String,
    thread_ts: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Channel {
    id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Action {
    value: String,
    action_ts: String,
}

pub(super) fn parse(kind: &str, payload: Value, own: &Identity, account: &str) -> Heard {
    match kind {
        "events_api" => match serde_json::from_value::<Callback>(payload) {
            Ok(Callback { event }) => event_of(event, own, account),
            Err(_) => Heard::Malformed,
        },
        "interactive" => match serde_json::from_value::<Interaction>(payload) {
            Ok(interaction) => press(interaction, account),
            Err(_) => Heard::Malformed,
        },
        _ => Heard::Nothing,
    }
}

fn event_of(event: Value, own: &Identity, account: &str) -> Heard {
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
    if !matches!(kind, "message" | "app_mention") {
        return Heard::Nothing;
    }
    let Ok(mut said) = serde_json::from_value::<Said>(event) else { return Heard::Malformed };
    let is_edit = said.subtype.as_deref() == Some("message_changed");
    if is_edit {
        let (Some(message), previous) = (said.message.take(), said.previous_message.take()) else {
            return Heard::Malformed;
        };
        // Slack also reports previews that it adds.
        if message.edited.is_none() || previous.is_some_and(|previous| previous.text == message.text) {
            return Heard::Nothing;
        }
        said = Said { channel: said.channel, ..*message };
    }
    if !matches!(said.subtype.as_deref(), None | Some("file_share" | "thread_broadcast" | "me_message")) {
        return Heard::Nothing;
    }
    let Some(user) = said.user.clone() else { return Heard::Nothing };
    if said.bot_id.is_some() || user == own.user_id || user == "USLACKBOT" {
        return Heard::Nothing;
    }
    if !is_id(&said.channel) || !is_id(&user) || !is_timestamp(&said.ts) {
        return Heard::Malformed;
    }
    if said.thread_ts.as_deref().is_some_and(|thread| !is_timestamp(thread)) {
        return Heard::Malformed;
    }
    Heard::Message(Box::new(inbound(said, user, is_edit, own, account)))
}

fn inbound(said: Said, user: String, is_edit: bool, own: &Identity, account: &str) -> Inbound {
    let heard = text::plain(&said.text, &own.user_id);
    let kind = kind_of(&said.channel);
    let is_reply = said.thread_ts.is_some() && said.parent_user_id.as_deref() == Some(own.user_id.as_str());
    let addressed = match kind {
        PeerKind::Dm => Addressed::Direct,
        _ if heard.mentions_bot => Addressed::Mention,
        _ if is_reply => Addressed::Reply,
        _ => Addressed::No,
    };
    // A mention in a channel begins a thread, where the conversation goes on.
    let begins_thread = addressed == Addressed::Mention;
    let thread = said.thread_ts.clone().or_else(|| begins_thread.then(|| said.ts.clone()));
    let shared: Vec<String> = said
        .attachments
        .iter()
        .filter_map(|attachment| Attachment::deserialize(attachment).ok())
        .filter(|attachment| (attachment.is_share || attachment.is_msg_unfurl) && !attachment.text.is_empty())
        .map(|attachment| text::plain(&attachment.text, "").text)
        .collect();
    let edit = said.edited.as_ref().map(|edited| edited.ts.as_str()).unwrap_or_default();
    Inbound {
        // A mention arrives as `message` and as `app_mention`, with different event ids.
        event_id: match is_edit {
            true => format!("{}:{}:{edit}", said.channel, said.ts),
            false => format!("{}:{}", said.channel, said.ts),
        },
        message_id: said.ts.clone(),
        address: address(account, &said.channel, kind, thread),
        person: Person { id: user, alias: None, name: String::new(), is_bot: false },
        text: heard.text,
        quoted: (!shared.is_empty()).then(|| shared.join("\n\n")),
        is_forwarded: false,
        media: said.files.iter().take(MAX_FILES).filter_map(media).collect(),
        addressed,
        at: milliseconds(&said.ts),
        is_edit,
        is_verified: true,
    }
}

fn press(interaction: Interaction, account: &str) -> Heard {
    if interaction.kind != "block_actions" {
        return Heard::Nothing;
    }
    let Interaction { user, container, channel, message, mut actions, .. } = interaction;
    let chat = if container.channel_id.is_empty() { channel.id } else { container.channel_id };
    let message_id = if container.message_ts.is_empty() { message.ts } else { container.message_ts };
    let thread = container.thread_ts.or(message.thread_ts);
    let Some(action) = (!actions.is_empty()).then(|| actions.swap_remove(0)) else { return Heard::Nothing };
    let is_valid = is_id(&chat)
        && is_id(&user.id)
        && is_timestamp(&message_id)
        && thread.as_deref().is_none_or(is_timestamp)
        && action.value.len() <= 100;
    if !is_valid {
        return Heard::Malformed;
    }
    let kind = kind_of(&chat);
    Heard::Press(Box::new(Press {
        event_id: format!("{chat}:{message_id}:{}:{}", user.id, shortened(&action.action_ts)),
        person: Person {
            name: shortened(if user.name.is_empty() { &user.username } else { &user.name }),
            id: user.id,
            alias: None,
            is_bot: false,
        },
        address: address(account, &chat, kind, thread),
        message_id,
        handle: action.value,
    }))
}

/// The kind follows from the id alone, because not every event says it.
fn kind_of(chat: &str) -> PeerKind {
    match chat.as_bytes().first() {
        Some(b'D') => PeerKind::Dm,
        Some(b'G') => PeerKind::Group,
        _ => PeerKind::Channel,
    }
}

fn address(account: &str, chat: &str, kind: PeerKind, thread: Option<String>) -> Address {
    let kind = if thread.is_some() && kind != PeerKind::Dm { PeerKind::Thread } else { kind };
    Address { channel: "slack".to_owned(), account: account.to_owned(), kind, chat: chat.to_owned(), thread }
}

fn media(file: &Value) -> Option<Media> {
    let file = File::deserialize(file).ok()?;
    let source = file.url_private_download.or(file.url_private)?;
    let kind = match file.mimetype.split('/').next() {
        Some("image") => MediaKind::Image,
        Some("audio") => MediaKind::Audio,
        Some("video") => MediaKind::Video,
        _ => MediaKind::Document,
    };
    Some(Media {
        kind,
        mime: shortened(&file.mimetype),
        name: file.name.map(|name| shortened(&name)),
        size: file.size,
        source,
    })
}

/// Removes control characters and limits the length.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn is_id(text: &str) -> bool {
    (2..=40).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

fn is_timestamp(text: &str) -> bool {
    (1..=40).contains(&text.len()) && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// The time in a message's id, such as `1700000000.000100`.
fn milliseconds(ts: &str) -> i64 {
    let (seconds, rest) = ts.split_once('.').unwrap_or((ts, ""));
    let thousandths: i64 = rest.get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    seconds.parse::<i64>().unwrap_or(0).saturating_mul(1000).saturating_add(thousandths)
}
