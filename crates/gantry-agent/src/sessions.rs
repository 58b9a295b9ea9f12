//! All sessions of a gateway: who wants to say something to one finds it here, and so does who wants to listen.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_store::{DatabaseError, Journal, JournalEvent, Objects, SessionRow, TaintMarks};
use gantry_tool::{Gate, Label, ResultStore, nearest};
use jiff::tz::TimeZone;
use serde_json::Value;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::agent::Agent;
use crate::child::Payer;
use crate::data_locations;
use crate::driver::{Command, Driver, Status};
use crate::entry::{Answer, Incoming};
use crate::event::Event;
use crate::key::{BadKey, DmScope, SessionKey};
use crate::lasting_approval::LastingApproval;
use crate::model::Model;
use crate::pairs::Pairs;
use crate::prompt::NodeLine;
use crate::role::Role;
use crate::slash::{self, HELP, Slash};
use crate::tool_search;

/// Events that a slow listener may miss before it is told so.
const EVENTS: usize = 1024;
/// What waits to be taken in by one session.
const COMMANDS: usize = 64;
/// How long nothing happens in a session, usually, until it is let go from memory.
pub const IDLE: Duration = Duration::from_secs(60);
/// The longest message.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// How many drivers in a row may let go before a command is given up.
const DRIVERS_TRIED: usize = 3;
/// Who may take labels away, as [`Said::from`] names them.
pub const OPERATOR: &str = "operator";
/// How long calls that are called off may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

pub struct SessionsParts {
    pub journal: Journal,
    pub gate: Arc<Gate>,
    pub model: Arc<dyn Model>,
    pub results: Arc<dyn ResultStore>,
    /// Where agents' own files are.
    pub objects: Objects,
    /// By name.
    pub agents: BTreeMap<String, Agent>,
    pub dm_scope: DmScope,
    pub zone: TimeZone,
    /// The machines there are, whenever asked.
    pub nodes: Arc<dyn Fn() -> Vec<NodeLine> + Send + Sync>,
    /// Of children, by name.
    pub roles: BTreeMap<String, Role>,
    /// How long a child may take.
    pub child_limit: Duration,
    /// As [`IDLE`].
    pub idle: Duration,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) parts: SessionsParts,
    pub(crate) marks: TaintMarks,
    pub(crate) stopping: CancellationToken,
    pub(crate) ending: CancellationToken,
    /// Finds tools that agents are not offered.
    pub(crate) search: Gate,
    /// Which agents wrote to which lately.
    pub(crate) pairs: Pairs,
    /// Held while a child is begun.
    pub(crate) births: tokio::sync::Mutex<()>,
    tasks: TaskTracker,
    live: Mutex<HashMap<String, Live>>,
}

/// A session that somebody has spoken to lately.
struct Live {
    commands: mpsc::Sender<Command>,
    events: broadcast::Sender<Arc<Event>>,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Key(#[from] BadKey),
    #[error("unknown agent {agent:?}{}", did_you_mean(.near))]
    UnknownAgent { agent: String, near: Option<String> },
    #[error("there is no session {key:?}{}", did_you_mean(.near))]
    Unknown { key: String, near: Option<String> },
    /// The caller can mend this.
    #[error("{0}")]
    Refused(String),
    /// A rule is against it.
    #[error("denied: {0}")]
    Denied(String),
    #[error("the gateway is stopping")]
    Stopping,
    #[error(transparent)]
    Store(#[from] DatabaseError),
}

fn did_you_mean(near: &Option<String>) -> String {
    near.as_ref().map_or(String::new(), |near| format!("; did you mean {near:?}?"))
}

/// What somebody says to a session.
#[derive(Debug, Clone, Default)]
pub struct Said {
    pub text: String,
    /// The same id twice is one message.
    pub id: Option<String>,
    pub from: String,
    pub reply_to: Value,
    pub labels: Vec<Label>,
    /// As [`Sessions::payer`] says, of what an agent writes.
    pub payer: Option<Payer>,
    /// Where the conversation works from now on. A run that is under way stays where it is.
    pub workspace: Option<PathBuf>,
}

/// What became of it.
#[derive(Debug)]
pub enum Sent {
    /// It is in the journal, and will be answered by an event that settles this id.
    Accepted { message: String },
    /// It was taken in before, and this is what settled it.
    Settled { message: String, event: Box<Event> },
    /// It was a command, and this is its answer.
    Command(String),
}

impl Sessions {
    pub fn new(parts: SessionsParts) -> Sessions {
        let shared = Shared {
            marks: parts.journal.marks(),
            search: tool_search::gate(&parts.gate),
            parts,
            stopping: CancellationToken::new(),
            ending: CancellationToken::new(),
            pairs: Pairs::default(),
            births: tokio::sync::Mutex::default(),
            tasks: TaskTracker::new(),
            live: Mutex::default(),
        };
        Sessions::of(Arc::new(shared))
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Sessions {
        Sessions { shared }
    }

    /// Goes on with every run that an earlier process left; returns how many sessions.
    pub async fn resume(&self) -> Result<usize, SessionError> {
        let keys = self.shared.parts.journal.with_work().await?;
        let mut resumed = 0;
        for key in keys {
            // An agent that is no longer configured leaves its sessions as they are.
            if let Ok(key) = self.key(&key, None)
                && self.tell_driver(&key, Command::Wake).await
            {
                resumed += 1;
            }
        }
        Ok(resumed)
    }

    /// The one form of a key, of an agent that there is.
    pub fn key(&self, text: &str, agent: Option<&str>) -> Result<SessionKey, SessionError> {
        let key = SessionKey::parse(text, agent.unwrap_or(crate::key::MAIN), self.shared.parts.dm_scope)?;
        let agents = &self.shared.parts.agents;
        if agents.contains_key(&key.agent) {
            return Ok(key);
        }
        let near =
            nearest(&key.agent, agents.keys().map(String::as_str)).first().map(|&near| near.to_owned());
        Err(SessionError::UnknownAgent { agent: key.agent, near })
    }

    /// Says something. A message is on disk when this returns.
    pub async fn send(&self, key: &SessionKey, said: Said) -> Result<Sent, SessionError> {
        if said.text.trim().is_empty() {
            return Err(SessionError::Refused("the message is empty".into()));
        }
        if said.text.len() > MAX_MESSAGE_BYTES {
            let message =
                format!("the message has {} bytes; {MAX_MESSAGE_BYTES} are allowed", said.text.len());
            return Err(SessionError::Refused(message));
        }
        match slash::parse(&said.text) {
            Some(Ok(slash)) => return self.command(key, slash, &said.from).await.map(Sent::Command),
            Some(Err(wrong)) => return Err(SessionError::Refused(wrong)),
            None => {}
        }
        let id = said.id.filter(|id| !id.is_empty()).unwrap_or_else(|| Uuid::now_v7().to_string());
        if id.len() > 128 {
            return Err(SessionError::Refused("the id of a message has at most 128 bytes".into()));
        }
        let incoming = Incoming {
            id: id.clone(),
            text: said.text,
            at: now_ms(),
            from: said.from,
            reply_to: said.reply_to,
            labels: said.labels,
            payer: said.payer,
        };
        let workspace = said.workspace;
        let settled = self.ask(key, |done| Command::Message { incoming, workspace, done }).await?;
        Ok(match settled {
            Some(event) => Sent::Settled { message: id, event: Box::new(event) },
            None => Sent::Accepted { message: id },
        })
    }

    /// What settled a message, if it was lately: for those who may have missed it.
    pub async fn settled(&self, key: &SessionKey, message: &str) -> Option<Event> {
        let message = message.to_owned();
        self.ask(key, |done| Command::Settled { message, done }).await.ok().flatten()
    }

    /// What happens in a session from now on.
    pub fn listen(&self, key: &SessionKey) -> broadcast::Receiver<Arc<Event>> {
        self.live(key, |live| live.events.subscribe())
    }

    /// Answers a question. Only surfaces that know a human to be there may call this.
    pub async fn answer(
        &self,
        key: &SessionKey,
        question: Option<String>,
        answer: Answer,
        by: &str,
    ) -> Result<String, SessionError> {
        let by = by.to_owned();
        let key = &self
            .who_asks(key, question.as_deref(), |status| ids(&status.questions, |open| &open.id))
            .await?;
        self.ask(key, |done| Command::Answer { question, answer, by, done }).await
    }

    /// As [`Sessions::answer`], with a yes that holds from now on.
    pub async fn answer_always(
        &self,
        key: &SessionKey,
        question: Option<String>,
        always: LastingApproval,
        by: &str,
    ) -> Result<String, SessionError> {
        let agent = self.shared.parts.agents.get(&key.agent).cloned().unwrap_or_default();
        let answer = always.answer(agent.always_hours).map_err(SessionError::Refused)?;
        self.answer(key, question, answer, by).await
    }

    /// Answers what an agent asks its user, in words.
    pub async fn reply(
        &self,
        key: &SessionKey,
        question: Option<String>,
        answers: Vec<String>,
        by: &str,
    ) -> Result<String, SessionError> {
        let by = by.to_owned();
        let key =
            &self.who_asks(key, question.as_deref(), |status| ids(&status.asks, |open| &open.id)).await?;
        self.ask(key, |done| Command::Reply { question, answers, by, done }).await
    }

    /// How a session is, if there is one, with what its children ask.
    pub async fn status(&self, key: &SessionKey) -> Result<Status, SessionError> {
        self.known(key).await?;
        let mut status = self.own_status(key).await?;
        for child in self.family(key).await? {
            // One that cannot be asked does not keep its parent from being looked at.
            if let Ok(asked) = self.own_status(&child).await {
                status.questions.extend(asked.questions);
                status.asks.extend(asked.asks);
            }
        }
        Ok(status)
    }

    pub(crate) async fn own_status(&self, key: &SessionKey) -> Result<Status, SessionError> {
        self.ask(key, |done| Command::Status { done }).await
    }

    /// The session that has a question open, of this one and the children at work for it; without a name, the one that
    /// has the only one.
    async fn who_asks(
        &self,
        key: &SessionKey,
        question: Option<&str>,
        open: impl Fn(&Status) -> Vec<String>,
    ) -> Result<SessionKey, SessionError> {
        let family = self.family(key).await?;
        if family.is_empty() {
            return Ok(key.clone());
        }
        let mut asked = Vec::new();
        for one in std::iter::once(key.clone()).chain(family) {
            let ids = self.own_status(&one).await.map(|status| open(&status)).unwrap_or_default();
            asked.extend(ids.into_iter().map(|id| (id, one.clone())));
        }
        match (question, asked.as_slice()) {
            (Some(id), asked) => {
                Ok(asked.iter().find(|(open, _)| open == id).map_or(key, |(_, one)| one).clone())
            }
            (None, []) => Ok(key.clone()),
            (None, [(_, only)]) => Ok(only.clone()),
            (None, several) => {
                let ids: Vec<&str> = several.iter().map(|(id, _)| id.as_str()).collect();
                let message = format!("say which question; open are {}", ids.join(", "));
                Err(SessionError::Refused(message))
            }
        }
    }

    pub async fn command(&self, key: &SessionKey, slash: Slash, by: &str) -> Result<String, SessionError> {
        let by_whom = by.to_owned();
        match slash {
            Slash::Help => Ok(HELP.to_owned()),
            Slash::Stop => self.ask(key, |done| Command::Stop { by: by_whom, done }).await,
            Slash::New => {
                self.ask(key, |done| Command::Reset { why: format!("{by_whom} asked for it"), done }).await
            }
            Slash::Compact => self.ask(key, |done| Command::Compact { done }).await,
            Slash::Status => Ok(self.status(key).await?.to_string()),
            Slash::Model(None) => Ok(format!("the model is {}", self.status(key).await?.model)),
            Slash::Model(Some(name)) => {
                let facts =
                    self.shared.parts.model.facts(Some(&name)).await.map_err(SessionError::Refused)?;
                let told = format!("the model is now {}", facts.name);
                self.ask(key, |done| Command::Set { model: Some(name), thinking: None, effort: None, done })
                    .await?;
                Ok(told)
            }
            Slash::Think(thinking, effort) => {
                let thinks = Some(thinking);
                self.ask(key, |done| Command::Set { model: None, thinking: thinks, effort, done }).await?;
                let effort = effort.map_or(String::new(), |effort| format!(", with {effort:?} effort"));
                Ok(format!("thinking is now {thinking:?}{effort}").to_lowercase())
            }
            // Marks are shared by all agents, so no token for some of them takes any away.
            Slash::Trust(_) if by != OPERATOR => {
                let message = "only the operator says what is trusted; use the operator's token";
                Err(SessionError::Refused(message.into()))
            }
            Slash::Trust(written) => {
                let workspace = self.own_status(key).await?.workspace;
                let place = data_locations::written(&key.agent, &workspace, &written);
                let private = self.shared.marks.remove(&data_locations::private(&place)).await?;
                let marks = private.saturating_add(self.shared.marks.remove(&place).await?);
                Ok(match self.shared.marks.covering(&place).await? {
                    Some(_) => format!("{written} is in a directory that is marked; trust that"),
                    None if marks == 0 => format!("{written} was not marked; nothing has changed"),
                    None => format!("{written} is trusted; {marks} marks were taken away"),
                })
            }
            Slash::Approve(id) => self.answer(key, id, Answer::Yes, by).await,
            Slash::Deny(id) => self.answer(key, id, Answer::No, by).await,
            Slash::Always(id, always) => self.answer_always(key, id, always, by).await,
        }
    }

    pub async fn list(&self, limit: u32, offset: u32) -> Result<(Vec<SessionRow>, u64), SessionError> {
        Ok(self.shared.parts.journal.list(limit, offset).await?)
    }

    /// As [`Sessions::list`], of these agents alone.
    pub async fn list_of(
        &self,
        agents: &[String],
        limit: u32,
        offset: u32,
    ) -> Result<(Vec<SessionRow>, u64), SessionError> {
        Ok(self.shared.parts.journal.list_of(agents, limit, offset).await?)
    }

    /// What happened in a session, from the first event or a later one on.
    pub async fn history(
        &self,
        key: &SessionKey,
        from: i64,
        limit: u32,
    ) -> Result<Vec<JournalEvent>, SessionError> {
        self.known(key).await?;
        Ok(self.shared.parts.journal.page(&key.key, from, limit).await?)
    }

    pub fn agents(&self) -> &BTreeMap<String, Agent> {
        &self.shared.parts.agents
    }

    /// Begins nothing new, lets calls finish for at most `drain`, then ends them. Runs go on at the next start.
    pub async fn stop(&self, drain: Duration) {
        self.shared.stopping.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(drain, self.shared.tasks.wait()).await.is_err() {
            self.shared.ending.cancel();
            let _ = tokio::time::timeout(END_LIMIT, self.shared.tasks.wait()).await;
        }
    }

    /// Looking at a session does not make one.
    pub(crate) async fn known(&self, key: &SessionKey) -> Result<(), SessionError> {
        let is_live = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&key.key);
        if is_live || self.shared.parts.journal.exists(&key.key).await? {
            return Ok(());
        }
        let (rows, _) = self.list(1_000, 0).await?;
        let near =
            nearest(&key.key, rows.iter().map(|row| row.key.as_str())).first().map(|&near| near.to_owned());
        Err(SessionError::Unknown { key: key.key.clone(), near })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) async fn ask<T>(
        &self,
        key: &SessionKey,
        command: impl FnOnce(oneshot::Sender<Result<T, SessionError>>) -> Command,
    ) -> Result<T, SessionError> {
        let (done, answer) = oneshot::channel();
        self.tell_driver(key, command(done)).await;
        answer.await.map_err(|_| SessionError::Stopping)?
    }

    /// A driver that has just let go of its session is followed by another one. False when none takes it.
    pub(crate) async fn tell_driver(&self, key: &SessionKey, mut command: Command) -> bool {
        for _ in 0..DRIVERS_TRIED {
            let commands = self.live(key, |live| live.commands.clone());
            match commands.send(command).await {
                Ok(()) => return true,
                Err(mpsc::error::SendError(unsent)) => command = unsent,
            }
        }
        false
    }

    /// What is wanted of a session's driver, which is started if there is none.
    fn live<T>(&self, key: &SessionKey, wanted: impl FnOnce(&Live) -> T) -> T {
        let mut live = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        let session = live.entry(key.key.clone()).or_insert_with(|| {
            let (commands, taken) = mpsc::channel(COMMANDS);
            let events = broadcast::channel(EVENTS).0;
            let driver = Driver::new(self.shared.clone(), key.clone(), commands.clone(), events.clone());
            self.shared.tasks.spawn(driver.run(taken));
            Live { commands, events }
        });
        wanted(session)
    }
}

impl Shared {
    /// Forgets a session's driver, unless somebody listens to it.
    pub(crate) fn forget(&self, key: &str) -> bool {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = live.get(key).is_none_or(|session| session.events.receiver_count() == 0);
        if alone {
            live.remove(key);
        }
        alone
    }

    /// Tells those who listen to another session, if there are any.
    pub(crate) fn tell(&self, key: &str, event: Event) {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = live.get(key) {
            let _ = session.events.send(Arc::new(event));
        }
    }
}

fn ids<T>(open: &[T], id: impl Fn(&T) -> &String) -> Vec<String> {
    open.iter().map(|one| id(one).clone()).collect()
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
