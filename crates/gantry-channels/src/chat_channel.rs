//! [`ChatChannel`] delivers messages of the outbox to the chats of one account.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gantry_flow::{Delivery, OutboxChannel};
use gantry_protocol::{ChatAnswer, ChatChoice, ChatDetails, ChatQuestion, ChatQuestionKind, OutboxMessage};
use gantry_store::{NewOutboxMessage, send_key};
use gantry_tool::Label;

use crate::adapter::{Button, Content, Outbound, SendOutcome};
use crate::address::{Address, PeerKind};
use crate::chats::{Account, Chats, chat_message};
use crate::questions::escaped;
use crate::render::split;

/// Longer answers are sent as a file.
const MAX_PARTS: usize = 10;
const FILE_NAME: &str = "answer.md";

pub(crate) struct ChatChannel {
    pub(crate) name: String,
    /// The account is the one that its channel's name alone means.
    pub(crate) is_default: bool,
    pub(crate) account: Arc<Account>,
    pub(crate) chats: Weak<Chats>,
}

impl ChatChannel {
    async fn send(&self, message: &OutboxMessage) -> Delivery {
        let Some(chats) = self.chats.upgrade() else { return Delivery::retry("the gateway is stopping") };
        let Ok(address) = serde_json::from_str::<Address>(&message.target) else {
            return Delivery::Rejected("the receiver is not an address".to_owned());
        };
        let details = message.body.chat.as_deref().cloned().unwrap_or_default();
        // Rights may have changed since the message was written. A stranger may still get a code.
        let is_notice = message.body.from == NOTICE;
        if !is_notice && !self.account.may_receive(&chats.people, &address) {
            return Delivery::Rejected(format!(
                "{} may not get messages any more; admit the person, or list the group in the configuration",
                address.peer()
            ));
        }
        let content = match self.content(&chats, message, &details).await {
            Ok(content) => content,
            Err(delivery) => return delivery,
        };
        let outbound =
            Outbound { key: send_key(&message.dedupe), address, reply_to: details.reply_to, content };
        match self.account.adapter.send(&outbound).await {
            SendOutcome::Sent { message_id } => Delivery::Sent(message_id),
            SendOutcome::Retry { why, after } => Delivery::Retry { why, after },
            SendOutcome::Refused(why) => Delivery::Rejected(why),
            SendOutcome::Unknown(why) => Delivery::Unknown(why),
        }
    }

    async fn content(
        &self,
        chats: &Chats,
        message: &OutboxMessage,
        details: &ChatDetails,
    ) -> Result<Content, Delivery> {
        let limits = self.account.adapter.limits();
        let text = text_of(&message.body.title, &message.body.text);
        if let Some(edits) = &details.edits {
            let original = chats.parts.database.outbox_message(edits).await;
            let original = original.map_err(|err| Delivery::retry(err.to_string()))?;
            let id = original.and_then(|original| original.provider_id);
            return match id {
                Some(message_id) if limits.can_edit => Ok(Content::Edit { message_id, markdown: text }),
                // There is nothing to change.
                _ => Err(Delivery::Sent(None)),
            };
        }
        if let Some(name) = &details.file {
            return Ok(Content::File {
                name: name.clone(),
                mime: "text/markdown".to_owned(),
                bytes: Bytes::from(message.body.text.clone()),
                caption: message.body.title.clone(),
            });
        }
        let Some(question) = &details.question else { return Ok(Content::Text(text)) };
        if question.choices.len() > limits.buttons {
            return Ok(Content::Text(format!(
                "{text}\n\n{}",
                numbered(question.choices.iter().map(|choice| &*choice.label))
            )));
        }
        let buttons = question.choices.iter().enumerate().map(|(number, choice)| Button {
            label: choice.label.clone(),
            handle: format!("q:{}:{number}", question.handle),
        });
        Ok(Content::Question { markdown: text, buttons: buttons.collect() })
    }

    /// Splits a text that is too long.
    fn parts(&self, message: NewOutboxMessage) -> Vec<NewOutboxMessage> {
        let adapter = &self.account.adapter;
        let limits = adapter.limits();
        let text = text_of(&message.body.title, &message.body.text);
        // A question keeps room for the numbers of its choices.
        let is_question = message.body.chat.as_ref().is_some_and(|chat| chat.question.is_some());
        let limit = if is_question { limits.text.saturating_sub(limits.text / 4) } else { limits.text };
        let parts = split(&text, limit, &|part| adapter.measure(part));
        if parts.len() <= 1 {
            return vec![message];
        }
        let part = |number: usize, text: String| {
            let mut part = message.clone();
            part.dedupe = part_key(&message.dedupe, number);
            part.body.title = String::new();
            part.body.text = text;
            part
        };
        if is_question {
            // The question itself is short. What it is about follows as a file, whole.
            let mut whole = part(1, text);
            let chat = whole.body.chat.get_or_insert_default();
            (chat.question, chat.file) = (None, Some("question.md".to_owned()));
            let first = parts.into_iter().next().unwrap_or_default();
            let note = "_The whole text follows as a file._";
            return vec![part(0, format!("{first}\n\n{note}")), whole];
        }
        if parts.len() > MAX_PARTS && limits.file > 0 {
            let first = parts.into_iter().next().unwrap_or_default();
            let mut whole = part(1, text);
            whole.body.chat.get_or_insert_default().file = Some(FILE_NAME.to_owned());
            return vec![part(0, format!("{first}\n\n_The whole answer follows as a file._")), whole];
        }
        let mut made: Vec<NewOutboxMessage> =
            parts.into_iter().enumerate().map(|(number, text)| part(number, text)).collect();
        // Only the first part refers to the message that it answers.
        for later in made.iter_mut().skip(1) {
            later.body.chat.get_or_insert_default().reply_to = None;
        }
        made
    }

    /// Holds back messages of a run that has read untrusted and private content, unless they go to the owner alone. The
    /// owner is asked.
    fn hold(&self, chats: &Chats, messages: &mut Vec<NewOutboxMessage>, whole: &str) {
        let Some(first) = messages.first().cloned() else { return };
        let Ok(address) = serde_json::from_str::<Address>(&first.target) else { return };
        let has = |label: Label| first.body.labels.iter().any(|name| name == label.name());
        if !(has(Label::Untrusted) && has(Label::Private)) || chats.people.is_owners(&address) {
            return;
        }
        for message in messages.iter_mut() {
            message.body.chat.get_or_insert_default().held = true;
        }
        let agent = &first.body.agent;
        let notice = "This answer waits for its owner.";
        let mut waits =
            chat_message(&address, agent, format!("waits:{}", first.dedupe), notice.to_owned(), None);
        waits.body.from = NOTICE.to_owned();
        messages.push(waits);
        let Some(owner) = chats.approver_chat(agent) else { return };
        let text = format!(
            "**Send this answer to {}?** It was written after reading untrusted and private content, and could leak it.\n\n{whole}",
            chats.people.name_of(&address),
        );
        let mut asks = chat_message(&owner, agent, format!("held:{}", first.dedupe), text, None);
        asks.body.chat.get_or_insert_default().question = Some(ChatQuestion {
            handle: new_handle(),
            kind: ChatQuestionKind::HeldMessage,
            session_key: String::new(),
            question: first.dedupe.clone(),
            choices: vec![
                ChatChoice { label: "Send".to_owned(), answer: ChatAnswer::Yes },
                ChatChoice { label: "Do not send".to_owned(), answer: ChatAnswer::No },
            ],
        });
        messages.extend(chats.parts.outbox.prepare(asks));
    }
}

impl OutboxChannel for ChatChannel {
    fn name(&self) -> &str {
        &self.name
    }

    fn answers_to(&self, name: &str) -> bool {
        name == self.name || (self.is_default && name == self.account.channel)
    }

    fn ignores_repetitions(&self) -> bool {
        self.account.adapter.limits().ignores_repetitions
    }

    /// Accepts the id of a person or chat that may get messages, or an address as JSON.
    fn check_target(&self, target: &str) -> Result<String, String> {
        let Some(chats) = self.chats.upgrade() else { return Err("the gateway is stopping".to_owned()) };
        let address = find_target(&chats, &self.account, target, None)?;
        Ok(crate::people::address_json(&address))
    }

    fn prepare(&self, mut message: NewOutboxMessage) -> Vec<NewOutboxMessage> {
        message.body.chat.get_or_insert_default();
        let whole = text_of(&message.body.title, &message.body.text);
        let mut messages = self.parts(message);
        if let Some(chats) = self.chats.upgrade() {
            self.hold(&chats, &mut messages, &whole);
        }
        messages
    }

    fn deliver<'a>(&'a self, message: &'a OutboxMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(self.send(message))
    }
}

/// The sender of texts of the program itself, which may go to strangers.
pub(crate) const NOTICE: &str = "channels:notice";

/// The key of a part of a message.
pub(crate) fn part_key(dedupe: &str, number: usize) -> String {
    if number == 0 { dedupe.to_owned() } else { format!("{dedupe}#{number}") }
}

pub(crate) fn new_handle() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..20].to_owned()
}

/// A chat in words.
pub(crate) fn describe(address: &Address) -> String {
    format!("the {} {} in {}", address.kind.name(), address.peer(), address.channel)
}

/// Finds the chat that a caller named: a person, a listed group, or a whole address.
pub(crate) fn find_target(
    chats: &Chats,
    account: &Account,
    target: &str,
    kind: Option<PeerKind>,
) -> Result<Address, String> {
    // A stored receiver. A thread is a place of its own, so it must be one that the person wrote in.
    if let Ok(address) = serde_json::from_str::<Address>(target)
        && account.may_receive(&chats.people, &address)
        && (address.thread.is_none() || chats.people.has_written_in(&address))
    {
        return Ok(address);
    }
    let wants = |one: PeerKind| kind.is_none_or(|kind| kind == one);
    if wants(PeerKind::Dm)
        && let Some(address) = chats.people.chat_with(&account.channel, &account.name, target)
    {
        return Ok(address);
    }
    // A thread of a listed group is `GROUP.THREAD`.
    let group = account.access.groups.keys().find(|id| {
        target == *id || target.strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with('.'))
    });
    if let Some(id) = group.filter(|_| kind != Some(PeerKind::Dm)) {
        let thread = target.strip_prefix(id.as_str()).and_then(|rest| rest.strip_prefix('.'));
        let kind = kind.unwrap_or(if thread.is_some() { PeerKind::Thread } else { PeerKind::Group });
        return Ok(Address {
            channel: account.channel.clone(),
            account: account.name.clone(),
            kind,
            chat: id.clone(),
            thread: thread.map(str::to_owned),
        });
    }
    let people = chats.people.all().into_iter().filter(|row| {
        row.channel == account.channel
            && row.account == account.name
            && matches!(row.role, gantry_store::PersonRole::Owner | gantry_store::PersonRole::Member)
    });
    let mut known: Vec<String> = people.map(|row| row.id).collect();
    known.extend(account.access.groups.keys().cloned());
    known.truncate(20);
    Err(match known.as_slice() {
        [] => {
            format!("nobody in {} may get messages yet; `gantry channels link` links the owner", account.id())
        }
        known => format!("{target:?} may not get messages; allowed: {}", known.join(", ")),
    })
}

fn text_of(title: &str, text: &str) -> String {
    match (title.is_empty(), text.is_empty()) {
        (false, false) => format!("**{title}**\n\n{text}"),
        (false, true) => title.to_owned(),
        (true, _) => text.to_owned(),
    }
}

/// The choices of a question as a numbered list, for channels without buttons.
pub(crate) fn numbered<'a>(labels: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<String> =
        labels.enumerate().map(|(number, label)| format!("{}. {}", number + 1, escaped(label))).collect();
    format!("Answer with a number:\n{}", lines.join("\n"))
}
