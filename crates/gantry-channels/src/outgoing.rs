//! Answers of sessions to chats. They are stored in the transaction that ends the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_agent::{Outgoing, SessionKey};
use gantry_protocol::{Addressee, SessionEvent};
use gantry_store::NewOutboxMessage;
use gantry_tool::Label;

use crate::address::PeerKind;
use crate::chats::{Chats, ReplyTo, chat_message};
use crate::people::address_json;

pub(crate) struct ChatAnswers(pub(crate) Arc<Chats>);

impl ChatAnswers {
    /// The chats that a run answers, each with its newest message.
    fn chats(&self, messages: &[Addressee]) -> Vec<ReplyTo> {
        let found = messages.iter().filter_map(|message| ReplyTo::from_value(&message.reply_to));
        let by_chat: BTreeMap<String, ReplyTo> =
            found.map(|reply_to| (address_json(&reply_to.address), reply_to)).collect();
        by_chat.into_values().collect()
    }
}

impl Outgoing for ChatAnswers {
    fn messages(
        &self,
        session: &SessionKey,
        event: &SessionEvent,
        labels: &[Label],
    ) -> Vec<NewOutboxMessage> {
        let (run, messages) = match event {
            SessionEvent::Final { run, messages, .. } => (run.as_str(), messages),
            SessionEvent::Error { run: Some(run), messages, .. } => (run.as_str(), messages),
            _ => return Vec::new(),
        };
        let text_for = |reply_to: &ReplyTo| match event {
            SessionEvent::Final { text, .. } => text.clone(),
            // Others than the owner learn nothing of what went wrong.
            SessionEvent::Error { message, .. } if self.0.people.is_owners(&reply_to.address) => {
                format!("The run failed: {message}")
            }
            _ => format!("I could not answer this. The owner can look it up: run {run}."),
        };
        let mut made = Vec::new();
        for reply_to in self.chats(messages) {
            let text = text_for(&reply_to);
            if text.trim().is_empty() {
                continue;
            }
            let chat = blake3::hash(address_json(&reply_to.address).as_bytes()).to_hex();
            let key = format!("answer:{}:{run}:{}", session.key, &chat[..16]);
            let reference = (reply_to.address.kind != PeerKind::Dm).then_some(reply_to.message_id);
            let mut message = chat_message(&reply_to.address, &session.agent, key, text, reference);
            message.body.from.clone_from(&session.key);
            message.body.labels = labels.iter().map(|label| label.name().to_owned()).collect();
            made.extend(self.0.parts.outbox.prepare(message));
        }
        made
    }

    fn stored(&self) {
        self.0.parts.outbox.wake();
    }
}
