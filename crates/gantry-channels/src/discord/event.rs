//! Turns Discord's events into messages and presses.

use serde::Deserialize;
use serde_json::Value;

use super::cursor::{is_id, time_of};
use super::places::Place;
use super::{nonce, text};
use crate::adapter::{Addressed, Inbound, Media, MediaKind, Press};
use crate::address::{PeerKind, Person};

/// The most files of one message.
const MAX_FILES: usize = 20;
/// The kinds of messages that people write: a message and an answer. Others report joins, pins and the like.
const WRITTEN: [u64; 2] = [0, 19];
/// The kind of a reference that forwards.
const FORWARD: u64 = 1;
/// The kind of an interaction with a button, and the kind of a button.
const COMPONENT: u64 = 3;
const BUTTON: u64 = 2;

/// What an event means for the bot.
#[derive(Debug)]
pub(super) enum Heard {
    Said(Box<Said>),
    /// The bot's own message. It names the key of the message if the bot sent it with one.
    Own {
        key: Option<String>,
        message: String,
    },
    /// It does not concern the bot.
    Nothing,
    Malformed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Said {
    pub(super) id: String,
    pub(super) channel_id: String,
    #[serde(rename = "type")]
    kind: u64,
    content: String,
    author: Option<User>,
    webhook_id: Option<String>,
    mentions: Vec<User>,
    attachments: Vec<Value>,
    edited_timestamp: Option<String>,
    message_reference: Option<Reference>,
    referenced_message: Option<Box<Quoted>>,
    message_snapshots: Vec<Snapshot>,
    nonce: Value,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct User {
    pub(super) id: String,
    pub(super) username: String,
    global_name: Option<String>,
    bot: bool,
    system: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reference {
    #[serde(rename = "type")]
    kind: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Quoted {
    content: String,
    author: User,
    attachments: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Snapshot {
    message: Quoted,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Attachment {
    filename: Option<String>,
    content_type: Option<String>,
    size: Option<u64>,
    url: String,
}

/// Reads a message. `is_edit` is true for an update of a message.
pub(super) fn message(data: Value, is_edit: bool, own: &str) -> Heard {
    let Ok(said) = serde_json::from_value::<Said>(data) else { return Heard::Malformed };
    let Some(author) = &said.author else {
        // An update of something else than the text has no author.
        return if is_edit { Heard::Nothing } else { Heard::Malformed };
    };
    if !is_id(&said.id) || !is_id(&said.channel_id) || !is_id(&author.id) {
        return Heard::Malformed;
    }
    if author.id == own {
        let key = said.nonce.as_str().and_then(nonce::key);
        return if is_edit { Heard::Nothing } else { Heard::Own { key, message: said.id } };
    }
    // Discord also reports previews that it adds.
    if author.system || !WRITTEN.contains(&said.kind) || is_edit && said.edited_timestamp.is_none() {
        return Heard::Nothing;
    }
    Heard::Said(Box::new(said))
}

impl Said {
    pub(super) fn inbound(self, place: &Place, is_edit: bool, own: &str, account: &str) -> Inbound {
        let author = self.author.unwrap_or_default();
        let names: Vec<(&str, &str)> =
            self.mentions.iter().map(|user| (user.id.as_str(), user.username.as_str())).collect();
        let is_mentioned = self.mentions.iter().any(|user| user.id == own);
        let is_reply = self.referenced_message.as_ref().is_some_and(|answered| answered.author.id == own);
        let addressed = match place.kind {
            PeerKind::Dm => Addressed::Direct,
            // An answer with a ping is also a mention.
            _ if is_reply => Addressed::Reply,
            _ if is_mentioned => Addressed::Mention,
            _ => Addressed::No,
        };
        let is_forward = self.message_reference.as_ref().is_some_and(|reference| reference.kind == FORWARD);
        let snapshots =
            self.message_snapshots.iter().map(|snapshot| &snapshot.message).filter(|_| is_forward);
        // Forwarded text is never the text of the message, so that it cannot be a command.
        let answered = self.referenced_message.as_deref().filter(|_| !is_forward);
        let quoted: Vec<&str> = answered
            .into_iter()
            .chain(snapshots.clone())
            .map(|quoted| quoted.content.as_str())
            .filter(|content| !content.trim().is_empty())
            .collect();
        let files = self.attachments.iter().chain(snapshots.flat_map(|snapshot| &snapshot.attachments));
        Inbound {
            event_id: match (is_edit, &self.edited_timestamp) {
                (true, Some(edited)) => format!("{}:{}:{}", self.channel_id, self.id, shortened(edited)),
                _ => format!("{}:{}", self.channel_id, self.id),
            },
            message_id: self.id.clone(),
            address: place.address(account, &self.channel_id),
            person: author.person(self.webhook_id.is_some()),
            text: text::plain(&self.content, own, &names),
            quoted: (!quoted.is_empty()).then(|| quoted.join("\n\n")),
            is_forwarded: is_forward,
            media: files.take(MAX_FILES).filter_map(media).collect(),
            addressed,
            at: time_of(&self.id),
            is_edit,
            is_verified: true,
        }
    }
}

impl User {
    fn person(self, is_webhook: bool) -> Person {
        let name = self.global_name.filter(|name| !name.is_empty()).unwrap_or(self.username);
        Person { id: self.id, alias: None, name: shortened(&name), is_bot: self.bot || is_webhook }
    }
}

/// A press of a button, and how to answer it.
#[derive(Debug)]
pub(super) struct Pressed {
    pub(super) channel: String,
    pub(super) message: String,
    pub(super) handle: String,
    pub(super) reply: Reply,
    /// The channel as the event describes it.
    pub(super) place: Value,
    user: User,
}

/// Where the answer to a press goes. The token is a credential.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) id: String,
    pub(super) application: String,
    pub(super) token: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interaction {
    id: String,
    application_id: String,
    #[serde(rename = "type")]
    kind: u64,
    token: String,
    channel_id: String,
    channel: Value,
    data: Data,
    message: Message,
    member: Option<Member>,
    user: Option<User>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    custom_id: String,
    component_type: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Member {
    user: User,
}

/// Reads a press. Other interactions are nothing.
pub(super) fn pressed(data: Value) -> Result<Option<Pressed>, serde_json::Error> {
    let found: Interaction = serde_json::from_value(data)?;
    if found.kind != COMPONENT || found.data.component_type != BUTTON {
        return Ok(None);
    }
    // In a server the person is a member; in a chat of two there is only the user.
    let user = found.member.map(|member| member.user).or(found.user).unwrap_or_default();
    let is_token =
        |text: &str| (1..=1_000).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let ids = [&found.id, &found.application_id, &found.channel_id, &found.message.id, &user.id];
    let is_valid = ids.iter().all(|id| is_id(id))
        && is_token(&found.token)
        && (1..=100).contains(&found.data.custom_id.len());
    Ok(is_valid.then(|| Pressed {
        channel: found.channel_id,
        message: found.message.id,
        handle: found.data.custom_id,
        reply: Reply { id: found.id, application: found.application_id, token: found.token },
        place: found.channel,
        user,
    }))
}

impl Pressed {
    pub(super) fn press(self, place: &Place, account: &str) -> Press {
        Press {
            event_id: format!("press:{}", self.reply.id),
            person: self.user.person(false),
            address: place.address(account, &self.channel),
            message_id: self.message,
            handle: self.handle,
        }
    }
}

fn media(attachment: &Value) -> Option<Media> {
    let file = Attachment::deserialize(attachment).ok()?;
    let mime = shortened(file.content_type.as_deref().unwrap_or("application/octet-stream"));
    let kind = match mime.split('/').next() {
        Some("image") => MediaKind::Image,
        Some("audio") => MediaKind::Audio,
        Some("video") => MediaKind::Video,
        _ => MediaKind::Document,
    };
    let name = file.filename.map(|name| shortened(&name));
    (!file.url.is_empty()).then_some(Media { kind, mime, name, size: file.size, source: file.url })
}

/// Removes control characters and limits the length.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
