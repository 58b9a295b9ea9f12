//! Takes events of one account: decides about them, and gives messages to sessions. An event, the message in the session's
//! journal and the account's cursor are written in one transaction.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use gantry_agent::{DmScope, NewMessage, Notice, OPERATOR_VIA, Origin, Sent, SessionError, SessionKey};
use gantry_store::{ChannelEvent, DatabaseError, LastActive, LinkOutcome};
use gantry_tool::Label;

use crate::adapter::{Accepted, Inbound, Intake, IntakeError, Press};
use crate::address::{Address, PeerKind, Person};
use crate::answers::{self, Said};
use crate::authorise::{Act, Decision, What, authorise};
use crate::chat_channel::NOTICE;
use crate::chats::{Account, AccountState, Chats, ReplyTo, chat_message, now_ms};
use crate::media;
use crate::people::{LINK_PREFIX, Role, address_json};

/// The longest id of an event, a chat or a person.
const MAX_ID: usize = 512;
/// The longest text of a message. Longer ones are cut, and say so.
const MAX_TEXT: usize = 256 * 1024;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// The intake of one account.
pub(crate) struct AccountIntake {
    pub(crate) chats: Arc<Chats>,
    pub(crate) account: Arc<Account>,
}

/// A message with what is known about its sender.
struct Known<'a> {
    inbound: &'a Inbound,
    role: Role,
    /// Written with whatever follows from the message.
    event: ChannelEvent,
}

fn failed(err: DatabaseError) -> IntakeError {
    IntakeError(err.to_string())
}

impl AccountIntake {
    async fn take(&self, mut inbound: Inbound, cursor: Option<String>) -> Result<Accepted, IntakeError> {
        let database = &self.chats.parts.database;
        if !is_plausible(&inbound) {
            tracing::warn!(account = self.account.id(), "chat_event_skipped");
            if let Some(cursor) = cursor {
                self.skip_to(&cursor).await?;
            }
            return Ok(Accepted::Ignored);
        }
        let (channel, name) = (&self.account.channel, &self.account.name);
        if database.has_channel_event(channel, name, &inbound.event_id).await.map_err(failed)? {
            if let Some(cursor) = cursor {
                self.skip_to(&cursor).await?;
            }
            return Ok(Accepted::Duplicate);
        }
        cut(&mut inbound.text);
        let role = self.role(&inbound.person, inbound.is_verified);
        let event = ChannelEvent {
            channel: channel.clone(),
            account: name.clone(),
            event: inbound.event_id.clone(),
            cursor,
            last_active: None,
        };
        let known = Known { inbound: &inbound, role, event };
        self.note_event();
        if inbound.address.kind == PeerKind::Dm
            && let Some(code) = link_code(&inbound.text)
        {
            return self.link(known, &code).await;
        }
        if command_name(&inbound.text).is_some() && !inbound.is_forwarded && self.is_stale(&inbound, now_ms())
        {
            let text = "This command arrived too late, so nothing was done. Send it again if it still holds.";
            let is_known = matches!(role, Role::Owner | Role::Member) && inbound.address.kind == PeerKind::Dm;
            return match is_known {
                true => self.tell(known, text).await,
                false => self.record(known, Accepted::Ignored).await,
            };
        }
        // A forwarded command is somebody else's text.
        let command = command_name(&inbound.text).filter(|_| !inbound.is_forwarded);
        let what = match (&command, inbound.is_edit) {
            (_, true) => What::Edit,
            (Some(name), false) if self.chats.parts.sessions.is_owner_command(name) => What::PrivateCommand,
            (Some(name), false) => What::Command(name),
            (None, false) => What::Message(inbound.addressed),
        };
        match authorise(&self.account.access, self.act(&inbound.person, &inbound.address, role, what)) {
            Decision::Run => self.run(known).await,
            Decision::Command => self.command(known, &command.unwrap_or_default()).await,
            Decision::Pair => self.pair(known).await,
            Decision::Tell(text) => self.tell(known, text).await,
            Decision::Ignore | Decision::Press => self.record(known, Accepted::Ignored).await,
        }
    }

    fn act<'a>(&self, person: &'a Person, address: &'a Address, role: Role, what: What<'a>) -> Act<'a> {
        Act {
            role,
            is_bot: person.is_bot,
            kind: address.kind,
            chat: &address.chat,
            person: &person.id,
            what,
            may_approve: self.account.adapter.limits().may_approve,
        }
    }

    /// The role of a sender. One that may be forged is a stranger.
    fn role(&self, person: &Person, is_verified: bool) -> Role {
        let role = self.chats.people.role(&self.account.channel, &self.account.name, person);
        if is_verified || role == Role::Blocked { role } else { Role::Stranger }
    }

    fn note_event(&self) {
        let mut status = self.account.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        status.last_event = Some(now_ms());
    }

    async fn skip_to(&self, cursor: &str) -> Result<(), IntakeError> {
        let database = &self.chats.parts.database;
        let (channel, name) = (&self.account.channel, &self.account.name);
        database.set_channel_cursor(channel, name, cursor).await.map_err(failed)
    }

    async fn record(&self, known: Known<'_>, accepted: Accepted) -> Result<Accepted, IntakeError> {
        self.chats.parts.database.add_channel_event(&known.event, now_ms()).await.map_err(failed)?;
        Ok(accepted)
    }

    /// Sends a text of the program itself to the chat, then records the event.
    async fn tell(&self, known: Known<'_>, text: &str) -> Result<Accepted, IntakeError> {
        let inbound = known.inbound;
        let key = format!("told:{}:{}", self.account.id(), inbound.event_id);
        let agent = &self.account.access.agent;
        let mut message = chat_message(&inbound.address, agent, key, text.to_owned(), reply_id(inbound));
        message.body.from = NOTICE.to_owned();
        let messages = self.chats.parts.outbox.prepare(message);
        self.chats.parts.database.add_outbox(&messages, now_ms()).await.map_err(failed)?;
        self.chats.parts.outbox.wake();
        self.record(known, Accepted::New).await
    }

    /// Whether a message is from long ago.
    fn is_stale(&self, inbound: &Inbound, now: i64) -> bool {
        let limit = i64::from(self.account.access.stale_minutes) * MINUTE_MS;
        inbound.at > 0 && now.saturating_sub(inbound.at) > limit
    }

    async fn link(&self, known: Known<'_>, code: &str) -> Result<Accepted, IntakeError> {
        let inbound = known.inbound;
        // A forged or forwarded code must not make anybody the owner.
        if inbound.person.is_bot || inbound.is_forwarded || inbound.is_edit || !inbound.is_verified {
            return self.record(known, Accepted::Ignored).await;
        }
        let outcome = self.chats.people.link(code, &inbound.address, &inbound.person, now_ms()).await;
        let outcome = outcome.map_err(failed)?;
        let text = match outcome {
            LinkOutcome::Linked if !self.account.adapter.limits().may_approve => {
                "This account is linked. You are the owner here: write to the agent. Its questions are answered in another chat \
                 or at the command line, because senders can be forged here."
            }
            LinkOutcome::Linked => {
                "This account is linked. You are the owner here: write to the agent, and answer its questions."
            }
            LinkOutcome::Wrong => {
                "This code is unknown or has expired. `gantry channels link` makes a new one."
            }
            LinkOutcome::Locked => return self.record(known, Accepted::Ignored).await,
        };
        let mut known = known;
        if outcome == LinkOutcome::Linked {
            known.event.last_active = Some(self.last_active(&inbound.address));
            self.chats.note_last_active(&self.account.access.agent, &inbound.address);
        }
        self.tell(known, text).await
    }

    async fn pair(&self, known: Known<'_>) -> Result<Accepted, IntakeError> {
        let inbound = known.inbound;
        let told =
            self.chats.people.request(&inbound.address, &inbound.person, now_ms()).await.map_err(failed)?;
        match told {
            Some(code) => {
                let text = format!(
                    "I do not know you yet. Your code is {code}. The owner can admit you with:\ngantry channels pair approve {code}"
                );
                self.tell(known, &text).await
            }
            None => self.record(known, Accepted::Ignored).await,
        }
    }

    /// The name under which a person's answers and commands are recorded.
    fn by(&self, person: &Person, role: Role) -> String {
        let name = format!("{}:{}", self.account.id(), person.id);
        if role == Role::Owner { format!("{OPERATOR_VIA}{name}") } else { name }
    }

    fn session(&self, inbound: &Inbound, role: Role) -> Result<SessionKey, SessionError> {
        let access = &self.account.access;
        let sessions = &self.chats.parts.sessions;
        // Only the owner shares conversations. Ids of people are unique within an account only.
        let scope = match role {
            Role::Owner => sessions.dm_scope(),
            _ => DmScope::PerAccountChannelPeer,
        };
        let peer = match inbound.address.kind {
            PeerKind::Dm => match &inbound.address.thread {
                Some(thread) => format!("{}.{thread}", inbound.person.id),
                None => inbound.person.id.clone(),
            },
            _ => inbound.address.peer(),
        };
        let origin = Origin {
            agent: &access.agent,
            channel: &self.account.channel,
            account: &self.account.name,
            kind: inbound.address.kind.name(),
            peer: &peer,
        };
        let key = SessionKey::of(&origin, scope);
        if sessions.agents().contains_key(&key.agent) { Ok(key) } else { sessions.key(&key.key, None) }
    }

    async fn command(&self, known: Known<'_>, name: &str) -> Result<Accepted, IntakeError> {
        let (inbound, role) = (known.inbound, known.role);
        let by = self.by(&inbound.person, role);
        // `/approve` and `/deny` mean the newest question of this chat, whichever session asks it.
        let answer = match name {
            "approve" | "yes" => Some("yes"),
            "deny" | "no" => Some("no"),
            _ => None,
        };
        if let Some(answer) = answer.filter(|_| inbound.text.split_whitespace().count() == 1) {
            let own = self.session(inbound, role).map(|key| key.key).unwrap_or_default();
            let said =
                Said { text: answer, quoted: inbound.quoted.as_deref(), at: inbound.at, own_session: &own };
            match answers::by_text(&self.chats, &inbound.address, said, &by).await {
                Ok(Some(text)) => return self.tell(known, &text).await,
                Ok(None) => {}
                Err(err) => return Err(IntakeError(err)),
            }
        }
        if name == "help" && role != Role::Owner {
            return self
                .tell(known, "/help shows this · /stop ends the run · /new resets the conversation")
                .await;
        }
        if name == "always" && !inbound.text.split_whitespace().skip(1).any(is_offer) {
            let text = "Choose one of the question's offers by its number, such as /always 1.";
            return self.tell(known, text).await;
        }
        let key = match self.session(inbound, role) {
            Ok(key) => key,
            Err(err) => return self.tell(known, &err.to_string()).await,
        };
        let message = NewMessage { text: inbound.text.trim().to_owned(), from: by, ..NewMessage::default() };
        let text = match self.chats.parts.sessions.send(&key, message).await {
            Ok(Sent::Command(text)) => text,
            Ok(_) => return self.record(known, Accepted::New).await,
            Err(err @ (SessionError::Stopping | SessionError::Store(_))) => {
                return Err(IntakeError(err.to_string()));
            }
            Err(err) => err.to_string(),
        };
        self.tell(known, &text).await
    }

    fn last_active(&self, address: &Address) -> LastActive {
        LastActive { agent: self.account.access.agent.clone(), address: address_json(address) }
    }

    /// Gives a message to its session, or to the question that it answers.
    async fn run(&self, mut known: Known<'_>) -> Result<Accepted, IntakeError> {
        let (inbound, role) = (known.inbound, known.role);
        let now = now_ms();
        self.chats.people.note(&inbound.address, &inbound.person, now).await.map_err(failed)?;
        let is_owners_chat = role == Role::Owner && inbound.address.kind == PeerKind::Dm;
        if is_owners_chat {
            known.event.last_active = Some(self.last_active(&inbound.address));
            self.chats.note_last_active(&self.account.access.agent, &inbound.address);
        }
        let is_stale = self.is_stale(inbound, now);
        let may_answer = is_owners_chat && self.account.adapter.limits().may_approve;
        if may_answer && !inbound.is_forwarded && !is_stale {
            let by = self.by(&inbound.person, role);
            let own = self.session(inbound, role).map(|key| key.key).unwrap_or_default();
            let quoted = inbound.quoted.as_deref();
            let said = Said { text: inbound.text.trim(), quoted, at: inbound.at, own_session: &own };
            match answers::by_text(&self.chats, &inbound.address, said, &by).await {
                Ok(Some(text)) => return self.tell(known, &text).await,
                Ok(None) => {}
                Err(err) => return Err(IntakeError(err)),
            }
        }
        let key = match self.session(inbound, role) {
            Ok(key) => key,
            Err(err) => return self.tell(known, &err.to_string()).await,
        };
        let files = media::keep(&self.chats, &self.account, inbound).await;
        let text = session_text(inbound, role, &files.lines);
        if text.trim().is_empty() {
            return self.record(known, Accepted::Ignored).await;
        }
        let is_trusted =
            is_owners_chat && inbound.quoted.is_none() && !inbound.is_forwarded && inbound.media.is_empty();
        let labels = if is_trusted { Vec::new() } else { vec![Label::Untrusted] };
        let id = format!("{}:{}", self.account.id(), inbound.event_id);
        let id = blake3::hash(id.as_bytes()).to_hex()[..40].to_owned();
        let reply_to = ReplyTo { address: inbound.address.clone(), message_id: inbound.message_id.clone() };
        if is_stale {
            return self.keep_as_context(known, &key, id, text, labels).await;
        }
        self.chats.note_conversation(&key.key, reply_to.clone());
        let message = NewMessage {
            text,
            images: files.images,
            id: Some(id),
            from: self.by(&inbound.person, role),
            reply_to: reply_to.to_value(),
            labels,
            channel_event: Some(known.event.clone()),
            ..NewMessage::default()
        };
        match self.chats.parts.sessions.send(&key, message).await {
            Ok(Sent::Accepted { .. }) => Ok(Accepted::New),
            // The session knew the message: the provider sent it twice at the same time.
            Ok(_) => self.record(known, Accepted::Duplicate).await,
            Err(err @ (SessionError::Stopping | SessionError::Store(_))) => Err(IntakeError(err.to_string())),
            Err(err) => self.tell(known, &err.to_string()).await,
        }
    }

    /// A message from long ago starts no run: the model sees it with the next message.
    async fn keep_as_context(
        &self,
        known: Known<'_>,
        key: &SessionKey,
        id: String,
        text: String,
        labels: Vec<Label>,
    ) -> Result<Accepted, IntakeError> {
        let inbound = known.inbound;
        let notice = Notice { id, from: self.by(&inbound.person, known.role), text, at: inbound.at, labels };
        match self.chats.parts.sessions.notify(key, notice).await {
            Ok(_) => {}
            Err(err) => return Err(IntakeError(err.to_string())),
        }
        // One note an hour for each chat.
        let hour = now_ms() / HOUR_MS;
        let chat = blake3::hash(address_json(&inbound.address).as_bytes()).to_hex();
        let text =
            "I was away when you wrote this. I have read it now; write again if it still needs an answer.";
        let agent = &self.account.access.agent;
        let mut note =
            chat_message(&inbound.address, agent, format!("away:{chat}:{hour}"), text.to_owned(), None);
        note.body.from = NOTICE.to_owned();
        self.chats.parts.database.add_outbox(&[note], now_ms()).await.map_err(failed)?;
        self.chats.parts.outbox.wake();
        self.record(known, Accepted::New).await
    }

    async fn take_press(&self, press: Press, cursor: Option<String>) -> Result<String, IntakeError> {
        if ![&press.event_id, &press.person.id, &press.address.chat].into_iter().all(|id| is_id(id)) {
            if let Some(cursor) = cursor {
                self.skip_to(&cursor).await?;
            }
            return Ok("This question is not open any more.".to_owned());
        }
        let database = &self.chats.parts.database;
        let (channel, name) = (&self.account.channel, &self.account.name);
        let event = ChannelEvent {
            channel: channel.clone(),
            account: name.clone(),
            event: press.event_id.clone(),
            cursor,
            last_active: None,
        };
        let is_known = database.has_channel_event(channel, name, &press.event_id).await.map_err(failed)?;
        self.note_event();
        let role = self.role(&press.person, true);
        let text =
            match authorise(&self.account.access, self.act(&press.person, &press.address, role, What::Press))
            {
                _ if is_known => "This was answered already.".to_owned(),
                Decision::Press => {
                    let by = self.by(&press.person, role);
                    answers::by_press(&self.chats, &press.address, &press.handle, &by)
                        .await
                        .map_err(IntakeError)?
                }
                Decision::Tell(text) => text.to_owned(),
                _ => "Only the owner can answer this.".to_owned(),
            };
        database.add_channel_event(&event, now_ms()).await.map_err(failed)?;
        Ok(text)
    }
}

impl Intake for AccountIntake {
    fn message<'a>(
        &'a self,
        inbound: Inbound,
        cursor: Option<String>,
    ) -> BoxFuture<'a, Result<Accepted, IntakeError>> {
        Box::pin(self.take(inbound, cursor))
    }

    fn press<'a>(
        &'a self,
        press: Press,
        cursor: Option<String>,
    ) -> BoxFuture<'a, Result<String, IntakeError>> {
        Box::pin(self.take_press(press, cursor))
    }

    fn skip<'a>(&'a self, cursor: String) -> BoxFuture<'a, Result<(), IntakeError>> {
        Box::pin(async move { self.skip_to(&cursor).await })
    }

    fn connected(&self, name: &str) {
        let mut status = self.account.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        name.clone_into(&mut status.bot);
        (status.state, status.error) = (AccountState::Connected, None);
    }

    fn settled<'a>(&'a self, key: &'a str, message_id: &'a str) -> BoxFuture<'a, Result<(), IntakeError>> {
        Box::pin(async move {
            let settled = self.chats.parts.database.settle_unknown(key, message_id, now_ms()).await;
            settled.map(|_| ()).map_err(failed)
        })
    }
}

/// Whether the ids have a form that providers use.
fn is_plausible(inbound: &Inbound) -> bool {
    let ids = [&inbound.event_id, &inbound.address.chat, &inbound.person.id];
    let is_short = |text: &str| text.len() <= MAX_ID && !text.chars().any(char::is_control);
    ids.into_iter().all(|id| is_id(id))
        && is_short(&inbound.message_id)
        && inbound.address.thread.as_deref().is_none_or(is_id)
}

fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_ID && !text.chars().any(char::is_control)
}

/// The link code in a text. A mail may have a subject above it.
fn link_code(text: &str) -> Option<String> {
    let lines = text.lines().map(|line| line.trim().to_lowercase());
    lines.take(20).find(|line| line.starts_with(LINK_PREFIX) && !line.contains(char::is_whitespace))
}

fn cut(text: &mut String) {
    if text.len() > MAX_TEXT {
        let left = text.len() - MAX_TEXT;
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push_str(&format!("\n[{left} more bytes were cut]"));
    }
}

/// The name of a command, without the bot's name that groups add (`/stop@bot`).
fn command_name(text: &str) -> Option<String> {
    let text = text.trim();
    let word = text.strip_prefix('/')?.split_whitespace().next()?;
    let is_path = word.contains('/') || text.lines().count() > 1;
    let name = word.split('@').next().unwrap_or(word).to_lowercase();
    (!is_path && !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric())).then_some(name)
}

fn is_offer(word: &str) -> bool {
    word.len() == 1 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The message that an answer refers to: in groups only, because a chat of two needs no reference.
fn reply_id(inbound: &Inbound) -> Option<String> {
    (inbound.address.kind != PeerKind::Dm).then(|| inbound.message_id.clone())
}

/// The text for the model: who wrote it, what it quotes, and its files.
fn session_text(inbound: &Inbound, role: Role, files: &[String]) -> String {
    let mut text = String::new();
    let name: String = inbound.person.name.chars().filter(|c| !c.is_control()).take(60).collect();
    if role != Role::Owner || inbound.address.kind != PeerKind::Dm {
        let who = if name.is_empty() { &inbound.person.id } else { &name };
        text.push_str(&format!("[{who} in {}]\n", inbound.address.channel));
    }
    if let Some(quoted) = &inbound.quoted {
        let quoted: String = quoted.chars().take(4_000).collect();
        let lines: Vec<String> = quoted.lines().map(|line| format!("> {line}")).collect();
        text.push_str(&lines.join("\n"));
        text.push_str("\n\n");
    }
    if inbound.is_forwarded {
        text.push_str("[forwarded message]\n");
    }
    text.push_str(inbound.text.trim());
    for file in files {
        text.push_str(&format!("\n[{file}]"));
    }
    // What is not a command must not be read as one.
    if text.starts_with('/') { format!(" {text}") } else { text }
}
