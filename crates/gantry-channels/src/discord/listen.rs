//! Listens: one task reads the connection, one stores messages, one takes presses of buttons. A message whose files take
//! long delays neither heartbeats nor presses.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::cursor::{Cursor, Progress, Session};
use super::event::{self, Heard, User};
use super::gateway::{Ended, Frame, Gateway, again, stop};
use super::places::Place;
use super::{Discord, api::Call};
use crate::adapter::{Intake, IntakeError, ListenError};
use crate::address::PeerKind;

/// How many events wait to be stored. After that, no more are read.
const MAX_WAITING: usize = 256;

/// What one connection shares.
pub(super) struct Listening<'a> {
    pub(super) discord: &'a Discord,
    pub(super) intake: &'a dyn Intake,
    pub(super) own: User,
    progress: Mutex<Progress>,
}

/// Work for the task that stores messages.
enum Work {
    Message {
        seq: u64,
        data: Value,
        is_edit: bool,
    },
    /// The session is new: messages may be missing.
    ReadMissing,
}

impl Discord {
    pub(super) async fn me(&self) -> Result<User, super::error::ApiError> {
        self.call(Call::get("read the bot's account", &["users", "@me"])).await
    }

    pub(super) async fn run(&self, intake: &dyn Intake, cursor: Option<String>) -> ListenError {
        let own = match self.me().await {
            Ok(own) => own,
            Err(err) => return err.stops_listening(),
        };
        let cursor = Cursor::read(cursor.as_deref());
        let progress = Mutex::new(Progress::new(cursor.clone()));
        let listening = Listening { discord: self, intake, own, progress };
        let ended = match self.connect(&cursor).await {
            Ok(gateway) => listening.work(gateway).await,
            Err(ended) => ended,
        };
        let err = match ended {
            Ended::NotStored(err) => return err,
            Ended::Resume(err) => err,
            Ended::NewSession(err) => {
                listening.progress().forget_session();
                err
            }
        };
        match listening.save().await {
            Ok(()) => err,
            Err(err) => not_stored(&err).into(),
        }
    }
}

impl Listening<'_> {
    async fn work(&self, gateway: Gateway) -> Ended {
        let (messages, waiting_messages) = mpsc::channel(MAX_WAITING);
        let (presses, waiting_presses) = mpsc::channel(MAX_WAITING);
        let ended = tokio::select! {
            ended = self.read(gateway, messages, presses) => ended,
            ended = self.store(waiting_messages) => ended,
            ended = self.take_presses(waiting_presses) => ended,
        };
        match ended {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn read(
        &self,
        mut gateway: Gateway,
        messages: Sender<Work>,
        presses: Sender<(u64, Value)>,
    ) -> Result<Infallible, Ended> {
        let mut saved = self.progress().text_with(None);
        loop {
            let seq = self.progress().received();
            let Some(Frame { d: data, s, t, .. }) = gateway.next(seq).await? else {
                // Events that need nothing move the cursor too, but it is written only now and then.
                let text = self.progress().text_with(None);
                if text != saved {
                    self.save().await.map_err(|err| not_stored(&err))?;
                    saved = text;
                }
                continue;
            };
            let number = s.unwrap_or_default();
            let closed = || again("the connection was stopped", None);
            match t.as_deref() {
                Some("READY") => {
                    self.ready(&data, number).await?;
                    let room = gateway.wait_for(seq, messages.reserve()).await?;
                    room.map_err(|_| closed())?.send(Work::ReadMissing);
                }
                Some("RESUMED") => {
                    self.progress().pass(number);
                    self.intake.connected(&self.name());
                    let room = gateway.wait_for(seq, messages.reserve()).await?;
                    room.map_err(|_| closed())?.send(Work::ReadMissing);
                }
                Some(kind @ ("MESSAGE_CREATE" | "MESSAGE_UPDATE")) => {
                    let is_edit = kind == "MESSAGE_UPDATE";
                    self.progress().wait_for(number);
                    let room = gateway.wait_for(seq, messages.reserve()).await?;
                    room.map_err(|_| closed())?.send(Work::Message { seq: number, data, is_edit });
                }
                Some("INTERACTION_CREATE") => {
                    self.progress().wait_for(number);
                    let room = gateway.wait_for(seq, presses.reserve()).await?;
                    room.map_err(|_| closed())?.send((number, data));
                }
                kind => {
                    match kind {
                        Some("GUILD_CREATE" | "THREAD_LIST_SYNC") => self.discord.places.note(&data),
                        Some("CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE") => {
                            self.discord.places.insert(&data, None);
                        }
                        _ => {}
                    }
                    self.progress().pass(number);
                }
            }
        }
    }

    /// A new session began.
    async fn ready(&self, data: &Value, seq: u64) -> Result<(), Ended> {
        let text = |field: &str| data[field].as_str().filter(|text| text.len() <= 2_000).map(str::to_owned);
        let (Some(id), Some(url)) = (text("session_id"), text("resume_gateway_url")) else {
            return Err(again("Discord's first event is incomplete", None));
        };
        let refused = |why: String| Ended::NewSession(ListenError::Refused(why));
        self.discord.pinned(&url).map_err(refused)?;
        self.progress().begin(Session { id, url, seq });
        self.save().await.map_err(|err| not_stored(&err))?;
        self.intake.connected(&self.name());
        Ok(())
    }

    async fn store(&self, mut waiting: Receiver<Work>) -> Result<Infallible, Ended> {
        while let Some(work) = waiting.recv().await {
            match work {
                Work::ReadMissing => self.read_missing().await?,
                Work::Message { seq, data, is_edit } => {
                    self.message(data, is_edit, Some(seq), None).await?;
                    self.progress().stored(seq);
                }
            }
        }
        std::future::pending().await
    }

    /// Stores one message. `place` is known for messages that were read from a channel.
    pub(super) async fn message(
        &self,
        data: Value,
        is_edit: bool,
        seq: Option<u64>,
        place: Option<&Place>,
    ) -> Result<(), Ended> {
        let account = &self.discord.connection.account;
        match event::message(data, is_edit, &self.own.id) {
            Heard::Said(said) => {
                let place = match place {
                    Some(place) => place.clone(),
                    None => match self.discord.place(&said.channel_id).await {
                        Ok(place) => place,
                        // The bot lost the channel meanwhile. The message cannot be answered.
                        Err(err) if err.is_out_of_reach() => return Ok(()),
                        Err(err) => return Err(stop(err)),
                    },
                };
                let inbound = said.inbound(&place, is_edit, &self.own.id, account);
                if inbound.text.trim().is_empty() && inbound.quoted.is_none() && inbound.media.is_empty() {
                    return Ok(());
                }
                let cursor = {
                    let direct = (place.kind == PeerKind::Dm).then_some(inbound.address.chat.as_str());
                    let mut progress = self.progress();
                    progress.note_message(&inbound.message_id, direct);
                    progress.text_with(seq)
                };
                let stored = self.intake.message(inbound, Some(cursor)).await;
                stored.map(|_| ()).map_err(|err| not_stored(&err))
            }
            Heard::Own { key: Some(key), message } => {
                let settled = self.intake.settled(&key, &message).await;
                settled.map_err(|err| not_stored(&err))
            }
            Heard::Own { key: None, .. } | Heard::Nothing => Ok(()),
            Heard::Malformed => {
                tracing::warn!(account, "a message event of Discord is malformed");
                Ok(())
            }
        }
    }

    pub(super) async fn save(&self) -> Result<(), IntakeError> {
        let text = self.progress().text_with(None);
        self.intake.skip(text).await
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self) -> String {
        format!("@{}", self.own.username)
    }
}

pub(super) fn not_stored(err: &IntakeError) -> Ended {
    Ended::NotStored(ListenError::Again { why: err.to_string(), after: None })
}

impl From<Ended> for ListenError {
    fn from(ended: Ended) -> ListenError {
        match ended {
            Ended::Resume(err) | Ended::NewSession(err) | Ended::NotStored(err) => err,
        }
    }
}
