//! [`Sessions`] is the entry point to all sessions of a gateway: it sends messages and commands, and returns events.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use gantry_domain::OwnerCommand;
use gantry_files::{Changed, ScanLimits, changed_since};
use gantry_protocol::{GrantInfo, SessionEvent, SessionEventData};
use gantry_store::{
    ChannelEvent, DatabaseError, FoundEvent, Grants, Journal, JournalEvent, NewOutboxMessage, Objects,
    SessionRow, TaintMarks,
};
use gantry_tool::{Gate, Label, Live, nearest};
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
use crate::entry::{ApprovalDecision, Image, Incoming, Notice, Question};
use crate::feed::{Feed, Listening};
use crate::key::{BadKey, DmScope, SessionKey};
use crate::lasting_approval::LastingApproval;
use crate::models::Model;
use crate::pairs::Pairs;
use crate::prompt::NodeLine;
use crate::role::Role;
use crate::slash::{self, Slash};
use crate::tool_search;

/// The number of events buffered for a slow listener. Then it misses events and is notified.
const EVENTS: usize = 1024;
/// The number of commands that wait for one session's driver.
const COMMANDS: usize = 64;
/// The default time until an idle session is removed from memory.
pub const IDLE: Duration = Duration::from_secs(60);
/// The longest message.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// The largest size of all pictures of a message, in base64.
pub const MAX_IMAGE_BYTES: usize = gantry_protocol::MAX_PICTURE_BYTES;
/// The number of drivers that a command is offered to. A driver may end while a command arrives.
const DRIVERS_TRIED: usize = 3;
/// The sender in [`NewMessage::from`] that may remove labels.
pub const OPERATOR: &str = "operator";
/// The beginning of the owner's name in a chat, such as `operator via telegram:default:7`. The owner has the operator's rights
/// in a chat of two.
pub const OPERATOR_VIA: &str = "operator via ";
/// The time that cancelled calls have to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Finds files that commands changed. A directory means everything below it.
pub type ChangedFiles = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Vec<PathBuf>> + Send>> + Send + Sync>;

/// Takes the present labels of a session, by its key.
pub type SessionLabels = Arc<dyn Fn(&str, &[Label]) + Send + Sync>;

pub struct SessionsParts {
    pub journal: Journal,
    pub gate: Arc<Gate>,
    pub model: Arc<dyn Model>,
    /// The storage of agents' files.
    pub objects: Objects,
    pub settings: SessionSettings,
    /// Returns the current machines.
    pub nodes: Arc<dyn Fn() -> Vec<NodeLine> + Send + Sync>,
    /// Returns the files that commands in sandboxes changed since the last call, where they may hold untrusted content.
    pub changes: ChangedFiles,
    /// Gives the machine the present labels of a session, for its commands that still run.
    pub session_labels: SessionLabels,
    /// The time until an idle session is removed from memory, such as [`IDLE`].
    pub idle: Duration,
}

/// What a changed configuration replaces while sessions run.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// The agents by name.
    pub agents: Arc<BTreeMap<String, Agent>>,
    pub dm_scope: DmScope,
    pub zone: TimeZone,
    /// Files below these paths count as untrusted content.
    pub untrusted_paths: Vec<PathBuf>,
    /// Files below these paths count as untrusted if a tool reads them: package caches, which commands fill.
    pub cache_paths: Vec<PathBuf>,
    /// The roles of children by name.
    pub roles: BTreeMap<String, Role>,
    /// The time limit of a child.
    pub child_limit: Duration,
    /// Agents that were removed from the configuration. Their runs are stopped, and no tool is left to them.
    pub removed: Arc<BTreeMap<String, Agent>>,
}

impl SessionSettings {
    /// Settings of these agents, with defaults for the rest.
    pub fn of(agents: BTreeMap<String, Agent>) -> SessionSettings {
        SessionSettings {
            agents: Arc::new(agents),
            dm_scope: DmScope::Main,
            zone: TimeZone::UTC,
            untrusted_paths: Vec::new(),
            cache_paths: Vec::new(),
            roles: crate::role::built_in(),
            child_limit: Duration::from_secs(600),
            removed: Arc::default(),
        }
    }

    /// Returns an agent that is configured, or was until it was removed.
    pub(crate) fn agent(&self, name: &str) -> Option<&Agent> {
        self.agents.get(name).or_else(|| self.removed.get(name))
    }

    /// Keeps the agents of the earlier settings that are gone now.
    fn after(self, earlier: &SessionSettings) -> SessionSettings {
        let known = earlier.removed.iter().chain(earlier.agents.iter());
        let gone = known.filter(|(name, _)| !self.agents.contains_key(*name));
        let without_tools = |agent: &Agent| Agent { scope: crate::child::nothing(), ..agent.clone() };
        let removed = gone.map(|(name, agent)| (name.clone(), without_tools(agent))).collect();
        SessionSettings { removed: Arc::new(removed), ..self }
    }

    /// Whether agents have the rights that they had in earlier settings.
    pub(crate) fn same_rights(&self, earlier: &SessionSettings, names: &[String]) -> bool {
        let rights = |settings: &SessionSettings, name: &str| {
            settings.agent(name).map(|agent| format!("{:?} {:?}", agent.scope, agent.autonomy))
        };
        names.iter().all(|name| rights(self, name) == rights(earlier, name))
    }
}

/// The sessions of a gateway. Clones are cheap.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) parts: SessionsParts,
    settings: Live<SessionSettings>,
    pub(crate) marks: TaintMarks,
    pub(crate) grants: Grants,
    pub(crate) stopping: CancellationToken,
    pub(crate) ending: CancellationToken,
    /// The gate over the tool search.
    pub(crate) search: Gate,
    /// The rate limit of messages between agents.
    pub(crate) pairs: Pairs,
    /// Held while a child is started.
    pub(crate) starting_child: tokio::sync::Mutex<()>,
    /// Turns events into messages to people.
    outgoing: Mutex<Option<Arc<dyn Outgoing>>>,
    /// The slash commands of other domains.
    owner_commands: Mutex<Vec<Arc<dyn OwnerCommand>>>,
    /// The events of all sessions.
    everything: broadcast::Sender<Arc<SessionEventData>>,
    tasks: TaskTracker,
    live: Mutex<HashMap<String, RunningSession>>,
}

/// A session with a running driver.
struct RunningSession {
    commands: mpsc::Sender<Command>,
    feed: Arc<Feed>,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Key(#[from] BadKey),
    #[error("unknown agent {agent:?}{}", did_you_mean(.near))]
    UnknownAgent { agent: String, near: Option<String> },
    #[error("unknown session {key:?}{}", near_session(.near))]
    Unknown { key: String, near: Option<String> },
    /// The caller can fix this.
    #[error("{0}")]
    Refused(String),
    /// A rule denies it.
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

fn near_session(near: &Option<String>) -> String {
    if near.is_some() { did_you_mean(near) } else { "; `gantry sessions` lists the sessions".to_owned() }
}

/// Turns events of sessions into messages to people. The messages are stored together with the entries of the journal that
/// caused them.
pub trait Outgoing: Send + Sync {
    /// Returns the messages that an event causes. `labels` are those of the session.
    fn messages(&self, session: &SessionKey, event: &SessionEvent, labels: &[Label])
    -> Vec<NewOutboxMessage>;

    /// The messages are on disk.
    fn stored(&self);
}

/// A message to a session.
#[derive(Debug, Clone, Default)]
pub struct NewMessage {
    pub text: String,
    /// Pictures for the model, at most [`MAX_IMAGE_BYTES`] together.
    pub images: Vec<Image>,
    /// A message with a known id is a repetition and does not run again.
    pub id: Option<String>,
    pub from: String,
    pub reply_to: Value,
    pub labels: Vec<Label>,
    /// The account of an agent's message, from [`Sessions::payer`].
    pub payer: Option<Payer>,
    /// The new working directory of the conversation. A run in progress keeps its own.
    pub workspace: Option<PathBuf>,
    /// The event of a chat that the message comes from. It is stored together with the message.
    pub channel_event: Option<ChannelEvent>,
}

/// The outcome of sending a message.
#[derive(Debug)]
pub enum Sent {
    /// The message is in the journal. Its final event names this id.
    Accepted { message: String },
    /// The message was accepted before, and this is its final event.
    Settled { message: String, event: Box<SessionEvent> },
    /// The message was a command, and this is the answer.
    Command(String),
}

impl Shared {
    pub(crate) fn settings(&self) -> Arc<SessionSettings> {
        self.settings.get()
    }

    /// Marks the files that commands changed since the last call of this function. Calls that read files come after it.
    pub(crate) async fn mark_changed_files(&self, source: &str) -> Result<(), DatabaseError> {
        let changed = (self.parts.changes)().await;
        self.mark_files(&changed, source).await
    }

    /// Marks what a command changed in its workspace since its start, if the machine did not watch it.
    pub(crate) async fn mark_downloads(
        &self,
        workspace: PathBuf,
        since: SystemTime,
        source: &str,
    ) -> Result<(), DatabaseError> {
        let root = workspace.clone();
        let scanned =
            tokio::task::spawn_blocking(move || changed_since(&root, since, ScanLimits::default())).await;
        let changed = match scanned {
            Ok(Changed::Paths(paths)) => paths,
            Ok(Changed::Everything) | Err(_) => vec![workspace],
        };
        self.mark_files(&changed, source).await
    }

    async fn mark_files(&self, changed: &[PathBuf], source: &str) -> Result<(), DatabaseError> {
        let places: Vec<String> = changed.iter().map(|path| data_locations::path_text(path)).collect();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        self.marks.add_all(&places, &data_locations::shortened(source), now_ms()).await.map(|_| ())
    }

    /// The workspaces of all agents.
    pub(crate) fn workspaces(&self) -> Vec<PathBuf> {
        self.settings().agents.values().map(|agent| agent.workspace.clone()).collect()
    }
}

impl Sessions {
    pub fn new(parts: SessionsParts) -> Sessions {
        let shared = Shared {
            settings: Live::new(parts.settings.clone()),
            marks: parts.journal.marks(),
            grants: parts.journal.grants(),
            search: tool_search::gate(&parts.gate),
            parts,
            stopping: CancellationToken::new(),
            ending: CancellationToken::new(),
            pairs: Pairs::default(),
            starting_child: tokio::sync::Mutex::default(),
            outgoing: Mutex::default(),
            owner_commands: Mutex::default(),
            everything: broadcast::channel(EVENTS).0,
            tasks: TaskTracker::new(),
            live: Mutex::default(),
        };
        Sessions::of(Arc::new(shared))
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Sessions {
        Sessions { shared }
    }

    /// Replaces the settings. Running work goes on with them from its next step; that of agents that are gone is stopped.
    pub fn configure(&self, settings: SessionSettings) {
        let earlier = self.shared.settings();
        self.shared.settings.set(settings.after(&earlier));
        let now = self.shared.settings();
        let live: Vec<String> = {
            let live = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner);
            live.keys().cloned().collect()
        };
        let gone = live.iter().filter_map(|key| self.key(key, None).ok());
        for key in gone.filter(|key| now.removed.contains_key(&key.agent)) {
            let sessions = self.clone();
            self.shared.tasks.spawn(async move {
                let stop =
                    |done| Command::Stop { by: "the configuration, which has no such agent".into(), done };
                if let Err(err) = sessions.ask(&key, stop).await {
                    tracing::warn!(session = key.key, error = %err, "run_not_stopped");
                }
            });
        }
    }

    /// Resumes the runs of an earlier process. Returns the number of sessions.
    pub async fn resume(&self) -> Result<usize, SessionError> {
        let keys = self.shared.parts.journal.with_work().await?;
        let mut resumed = 0;
        for key in keys {
            // Sessions of an agent that is no longer configured stay unchanged.
            if let Ok(key) = self.key(&key, None)
                && self.send_command(&key, Command::Wake).await
            {
                resumed += 1;
            }
        }
        Ok(resumed)
    }

    /// Parses a key and checks that its agent exists.
    pub fn key(&self, text: &str, agent: Option<&str>) -> Result<SessionKey, SessionError> {
        let settings = self.shared.settings();
        let key = SessionKey::parse(text, agent.unwrap_or(crate::key::MAIN), settings.dm_scope)?;
        let agents = &settings.agents;
        // Sessions of agents that were removed can still be read and stopped.
        if settings.agent(&key.agent).is_some() {
            return Ok(key);
        }
        let near =
            nearest(&key.agent, agents.keys().map(String::as_str)).first().map(|&near| near.to_owned());
        Err(SessionError::UnknownAgent { agent: key.agent, near })
    }

    /// Sends a message. It is on disk when this returns.
    pub async fn send(&self, key: &SessionKey, message: NewMessage) -> Result<Sent, SessionError> {
        if self.shared.settings().removed.contains_key(&key.agent) && !message.text.starts_with('/') {
            return Err(SessionError::UnknownAgent { agent: key.agent.clone(), near: None });
        }
        if message.text.trim().is_empty() {
            return Err(SessionError::Refused("the message is empty".into()));
        }
        if message.text.len() > MAX_MESSAGE_BYTES {
            let error = format!(
                "the message has {} bytes; at most {MAX_MESSAGE_BYTES} are allowed",
                message.text.len()
            );
            return Err(SessionError::Refused(error));
        }
        if message.images.iter().map(|image| image.data.len()).sum::<usize>() > MAX_IMAGE_BYTES {
            let error =
                format!("the pictures of a message may have {MAX_IMAGE_BYTES} bytes in base64 together");
            return Err(SessionError::Refused(error));
        }
        if let Some((command, argument)) = self.owner_command(&message.text) {
            if !is_operator(&message.from) {
                let error = format!("only the owner can use /{}", command.name());
                return Err(SessionError::Refused(error));
            }
            let answer = command.run(&argument).await;
            return answer.map(Sent::Command).map_err(SessionError::Refused);
        }
        match slash::parse(&message.text) {
            Some(Ok(slash)) => return self.command(key, slash, &message.from).await.map(Sent::Command),
            Some(Err(wrong)) => return Err(SessionError::Refused(wrong)),
            None => {}
        }
        let id = message.id.filter(|id| !id.is_empty()).unwrap_or_else(|| Uuid::now_v7().to_string());
        if id.len() > 128 {
            return Err(SessionError::Refused("the id of a message may have at most 128 bytes".into()));
        }
        let incoming = Incoming {
            id: id.clone(),
            text: message.text,
            images: message.images,
            at: now_ms(),
            from: message.from,
            reply_to: message.reply_to,
            labels: message.labels,
            payer: message.payer,
        };
        let NewMessage { workspace, channel_event, .. } = message;
        let command = |done| Command::Message { incoming, workspace, channel_event, done };
        let settled = self.ask(key, command).await?;
        Ok(match settled {
            Some(event) => Sent::Settled { message: id, event: Box::new(event) },
            None => Sent::Accepted { message: id },
        })
    }

    /// Records a notice in a session. It starts no run. Returns whether it is new; a repetition changes nothing.
    pub async fn notify(&self, key: &SessionKey, notice: Notice) -> Result<bool, SessionError> {
        if notice.text.trim().is_empty() || notice.text.len() > MAX_MESSAGE_BYTES {
            let message = format!("a notice must have 1 to {MAX_MESSAGE_BYTES} bytes");
            return Err(SessionError::Refused(message));
        }
        self.ask(key, |done| Command::Notice { notice, done }).await
    }

    /// Returns the final event of a message, if its run is among the last ones. For listeners that missed events.
    pub async fn settled(&self, key: &SessionKey, message: &str) -> Option<SessionEvent> {
        let message = message.to_owned();
        self.ask(key, |done| Command::Settled { message, done }).await.ok().flatten()
    }

    /// Subscribes to the events of a session.
    pub fn listen(&self, key: &SessionKey) -> broadcast::Receiver<Arc<SessionEvent>> {
        self.live(key, |live| live.feed.subscribe())
    }

    /// Subscribes to the events of a session with their numbers. Whoever begins in the middle of a reply gets its text.
    pub(crate) fn listen_numbered(&self, key: &SessionKey) -> Listening {
        self.live(key, |live| live.feed.listen())
    }

    /// Subscribes to the events of all sessions, except the pieces of replies. A slow listener misses events.
    pub fn listen_to_all(&self) -> broadcast::Receiver<Arc<SessionEventData>> {
        self.shared.everything.subscribe()
    }

    /// Sets what turns events into messages to people.
    pub fn set_outgoing(&self, outgoing: Arc<dyn Outgoing>) {
        *self.shared.outgoing.lock().unwrap_or_else(PoisonError::into_inner) = Some(outgoing);
    }

    /// Sets the slash commands of other domains.
    pub fn set_owner_commands(&self, commands: Vec<Arc<dyn OwnerCommand>>) {
        *self.shared.owner_commands.lock().unwrap_or_else(PoisonError::into_inner) = commands;
    }

    /// Whether a word after a slash is a command that only the owner may use, in a chat of two.
    pub fn is_owner_command(&self, name: &str) -> bool {
        slash::answers_questions(name) || self.owner_command(&format!("/{name}")).is_some()
    }

    /// Returns the command of another domain that a message is, with its argument.
    fn owner_command(&self, text: &str) -> Option<(Arc<dyn OwnerCommand>, String)> {
        let (word, argument) = slash::word(text)?;
        let commands = self.shared.owner_commands.lock().unwrap_or_else(PoisonError::into_inner);
        let command = commands.iter().find(|command| command.name() == word)?;
        Some((command.clone(), argument.unwrap_or_default()))
    }

    fn help(&self) -> String {
        let commands = self.shared.owner_commands.lock().unwrap_or_else(PoisonError::into_inner);
        let more: Vec<(&str, &str, &str)> = commands.iter().map(|command| command.help()).collect();
        slash::help(&more)
    }

    /// Returns the keys of sessions that have work left.
    pub async fn with_work(&self) -> Result<Vec<String>, SessionError> {
        Ok(self.shared.parts.journal.with_work().await?)
    }

    /// Answers a question. Only surfaces with a person behind them may call this.
    pub async fn answer(
        &self,
        key: &SessionKey,
        question: Option<String>,
        answer: ApprovalDecision,
        by: &str,
    ) -> Result<String, SessionError> {
        let by = by.to_owned();
        let key = &self
            .asking_session(key, question.as_deref(), |status| ids(&status.questions, |open| &open.id))
            .await?;
        self.ask(key, |done| Command::Answer { question, answer, by, done }).await
    }

    /// As [`Sessions::answer`], with an approval that also covers later calls.
    pub async fn answer_always(
        &self,
        key: &SessionKey,
        question: Option<String>,
        always: LastingApproval,
        by: &str,
    ) -> Result<String, SessionError> {
        let agent = self.shared.settings().agent(&key.agent).cloned().unwrap_or_default();
        let always = match always.offer {
            Some(_) => {
                let open = self.status(key).await?.questions;
                let is_meant = |open: &&Question| question.as_ref().is_none_or(|id| open.id == *id);
                let offers = open.iter().find(is_meant).map(|open| open.offers.clone());
                always.with_offer(&offers.unwrap_or_default()).map_err(SessionError::Refused)?
            }
            None => always,
        };
        let answer = always.answer(agent.always_hours).map_err(SessionError::Refused)?;
        self.answer(key, question, answer, by).await
    }

    /// Answers an agent's questions to its user.
    pub async fn reply(
        &self,
        key: &SessionKey,
        question: Option<String>,
        answers: Vec<String>,
        by: &str,
    ) -> Result<String, SessionError> {
        let by = by.to_owned();
        let key = &self
            .asking_session(key, question.as_deref(), |status| ids(&status.asks, |open| &open.id))
            .await?;
        self.ask(key, |done| Command::Reply { question, answers, by, done }).await
    }

    /// Returns the status of an existing session, with the questions of its children.
    pub async fn status(&self, key: &SessionKey) -> Result<Status, SessionError> {
        self.known(key).await?;
        let mut status = self.own_status(key).await?;
        for child in self.family(key).await? {
            // A child without a status does not hide its parent's.
            if let Ok(asked) = self.own_status(&child).await {
                status.questions.extend(asked.questions);
                status.asks.extend(asked.asks);
            }
        }
        Ok(status)
    }

    /// Returns the sessions that have work left, the longest waiting first.
    pub async fn at_work(&self, limit: u32) -> Result<Vec<SessionRow>, SessionError> {
        Ok(self.shared.parts.journal.at_work(limit).await?)
    }

    /// Returns the status of a session without those of its children.
    pub async fn own_status(&self, key: &SessionKey) -> Result<Status, SessionError> {
        self.ask(key, |done| Command::Status { done }).await
    }

    /// Returns the session with the named question, among this session and its running children. Without a name it is the
    /// session with the only open question.
    async fn asking_session(
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
                let message =
                    format!("several questions are open ({}); choose one by its id", ids.join(", "));
                Err(SessionError::Refused(message))
            }
        }
    }

    pub async fn command(&self, key: &SessionKey, slash: Slash, by: &str) -> Result<String, SessionError> {
        let by_whom = by.to_owned();
        match slash {
            Slash::Help => Ok(self.help()),
            Slash::Stop => self.ask(key, |done| Command::Stop { by: by_whom, done }).await,
            Slash::New => {
                self.ask(key, |done| Command::Reset { why: format!("requested by {by_whom}"), done }).await
            }
            Slash::Compact => self.ask(key, |done| Command::Compact { done }).await,
            Slash::Status => Ok(self.status(key).await?.to_string()),
            Slash::Model(None) => Ok(format!("the model is {}", self.status(key).await?.model)),
            Slash::Model(Some(name)) => {
                let facts =
                    self.shared.parts.model.facts(Some(&name)).await.map_err(SessionError::Refused)?;
                let text = format!("the model is now {}", facts.name);
                self.ask(key, |done| Command::Set { model: Some(name), thinking: None, effort: None, done })
                    .await?;
                Ok(text)
            }
            Slash::Think(thinking, effort) => {
                let thinks = Some(thinking);
                self.ask(key, |done| Command::Set { model: None, thinking: thinks, effort, done }).await?;
                let effort = effort.map_or(String::new(), |effort| format!(", with {effort:?} effort"));
                Ok(format!("thinking is now {thinking:?}{effort}").to_lowercase())
            }
            // All agents share the marks, so a token for some agents cannot remove them.
            Slash::Trust(_) if !is_operator(by) => {
                let message = "only the operator can trust a location; use the operator's token";
                Err(SessionError::Refused(message.into()))
            }
            Slash::Trust(written) => {
                let workspace = self.own_status(key).await?.workspace;
                let place = data_locations::parse(&key.agent, &workspace, &written);
                let private = self.shared.marks.remove(&data_locations::private(&place)).await?;
                let marks = private.saturating_add(self.shared.marks.remove(&place).await?);
                Ok(match self.shared.marks.covering(&place).await? {
                    Some(_) => format!("{written} is in a marked directory; trust that directory"),
                    None if marks == 0 => format!("{written} is not marked; nothing changed"),
                    None if marks == 1 => format!("{written} is trusted; 1 mark was removed"),
                    None => format!("{written} is trusted; {marks} marks were removed"),
                })
            }
            Slash::Approve(id) => self.answer(key, id, ApprovalDecision::Yes, by).await,
            Slash::Deny(id) => self.answer(key, id, ApprovalDecision::No, by).await,
            Slash::Always(id, always) => self.answer_always(key, id, always, by).await,
        }
    }

    pub async fn list(&self, limit: u32, offset: u32) -> Result<(Vec<SessionRow>, u64), SessionError> {
        Ok(self.shared.parts.journal.list(limit, offset).await?)
    }

    /// As [`Sessions::list`], only for these agents.
    pub async fn list_of(
        &self,
        agents: &[String],
        limit: u32,
        offset: u32,
    ) -> Result<(Vec<SessionRow>, u64), SessionError> {
        Ok(self.shared.parts.journal.list_of(agents, limit, offset).await?)
    }

    /// Returns the journal of a session, starting at event `from`.
    pub async fn history(
        &self,
        key: &SessionKey,
        from: i64,
        limit: u32,
    ) -> Result<Vec<JournalEvent>, SessionError> {
        self.known(key).await?;
        Ok(self.shared.parts.journal.page(&key.key, from, limit).await?)
    }

    /// Returns the last events before a number, in their order.
    pub async fn history_before(
        &self,
        key: &SessionKey,
        before: i64,
        limit: u32,
    ) -> Result<Vec<JournalEvent>, SessionError> {
        self.known(key).await?;
        Ok(self.shared.parts.journal.page_before(&key.key, before, limit).await?)
    }

    /// Gives a session a title.
    pub async fn rename(&self, key: &SessionKey, label: &str) -> Result<(), SessionError> {
        self.known(key).await?;
        Ok(self.shared.parts.journal.label(&key.key, Some(label)).await?)
    }

    /// Finds messages and titles with a text, for these agents or for all.
    pub async fn search(
        &self,
        agents: Option<&[String]>,
        text: &str,
        limit: u32,
    ) -> Result<Vec<FoundEvent>, SessionError> {
        Ok(self.shared.parts.journal.search(agents, text, limit).await?)
    }

    /// Keeps a file from outside in an agent's storage. Whoever reads it has read untrusted content.
    pub async fn keep_file(
        &self,
        objects: &Objects,
        agent: &str,
        path: &str,
        bytes: &[u8],
    ) -> Result<(), String> {
        let key = format!("agents/{agent}/{path}");
        // The mark comes first: a file without its mark would count as trusted.
        let place = data_locations::object_key(&key);
        let source = data_locations::shortened("a chat");
        self.shared.marks.add(&place, &source, now_ms()).await.map_err(|err| err.to_string())?;
        objects.put(&key, bytes.to_vec(), "application/octet-stream").await.map_err(|err| err.to_string())
    }

    /// The direct messages that share a conversation.
    pub fn dm_scope(&self) -> DmScope {
        self.shared.settings().dm_scope
    }

    /// Returns the grants of all agents that count now. The newest comes first.
    pub async fn grants(&self) -> Result<Vec<GrantInfo>, SessionError> {
        Ok(self.shared.grants.list(now_ms()).await?)
    }

    /// Ends a grant. The next call that it would cover is asked about.
    pub async fn revoke_grant(&self, id: &str) -> Result<GrantInfo, SessionError> {
        let now = now_ms();
        let known = self.shared.grants.list(now).await?;
        let unknown =
            || SessionError::Refused(format!("unknown grant {id:?}; `gantry grants` lists the grants"));
        let grant = known.into_iter().find(|grant| grant.id == id).ok_or_else(unknown)?;
        match self.shared.grants.revoke(id, now).await? {
            true => Ok(grant),
            false => Err(unknown()),
        }
    }

    /// The gate that calls of sessions go through.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.shared.parts.gate
    }

    /// The configured agents.
    pub fn agents(&self) -> Arc<BTreeMap<String, Agent>> {
        self.shared.settings().agents.clone()
    }

    /// Stops all sessions. Running calls have `drain` to finish, then they are cancelled. Runs resume at the next start.
    pub async fn stop(&self, drain: Duration) {
        self.shared.stopping.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(drain, self.shared.tasks.wait()).await.is_err() {
            self.shared.ending.cancel();
            let _ = tokio::time::timeout(END_LIMIT, self.shared.tasks.wait()).await;
        }
    }

    /// Checks that a session exists, without creating it.
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
        self.send_command(key, command(done)).await;
        answer.await.map_err(|_| SessionError::Stopping)?
    }

    /// Sends a command to the session's driver, and starts a new driver if the old one has just ended. Returns false if no
    /// driver accepts it.
    pub(crate) async fn send_command(&self, key: &SessionKey, mut command: Command) -> bool {
        for _ in 0..DRIVERS_TRIED {
            let commands = self.live(key, |live| live.commands.clone());
            match commands.send(command).await {
                Ok(()) => return true,
                Err(mpsc::error::SendError(unsent)) => command = unsent,
            }
        }
        false
    }

    /// Reads from the session's driver entry. Starts a driver if there is none.
    fn live<T>(&self, key: &SessionKey, read: impl FnOnce(&RunningSession) -> T) -> T {
        let mut live = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        let session = live.entry(key.key.clone()).or_insert_with(|| {
            let (commands, taken) = mpsc::channel(COMMANDS);
            let feed = Arc::new(Feed::new(&key.key));
            let driver = Driver::new(self.shared.clone(), key.clone(), commands.clone(), feed.clone());
            self.shared.tasks.spawn(driver.run(taken));
            RunningSession { commands, feed }
        });
        read(session)
    }
}

impl Shared {
    /// Removes a session's driver, unless it has listeners.
    pub(crate) fn forget(&self, key: &str) -> bool {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = live.get(key).is_none_or(|session| !session.feed.has_listeners());
        if alone {
            live.remove(key);
        }
        alone
    }

    pub(crate) fn outgoing(&self) -> Option<Arc<dyn Outgoing>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes an event of a session to those who listen to all sessions.
    pub(crate) fn publish_to_all(&self, key: &str, event: &SessionEvent) {
        let is_piece = matches!(
            event,
            SessionEvent::Text { .. } | SessionEvent::Thinking { .. } | SessionEvent::CallInput { .. }
        );
        if !is_piece && self.everything.receiver_count() > 0 {
            let data = SessionEventData { session_key: key.to_owned(), seq: None, event: event.clone() };
            let _ = self.everything.send(Arc::new(data));
        }
    }

    /// Publishes an event to the listeners of another session.
    pub(crate) fn publish(&self, key: &str, event: SessionEvent) {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = live.get(key) {
            session.feed.send(event);
        }
    }
}

fn ids<T>(open: &[T], id: impl Fn(&T) -> &String) -> Vec<String> {
    open.iter().map(|one| id(one).clone()).collect()
}

/// Whether somebody has the operator's rights. Names of tokens and agents never have this form.
pub(crate) fn is_operator(by: &str) -> bool {
    by == OPERATOR || by.starts_with(OPERATOR_VIA)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
