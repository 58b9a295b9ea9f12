//! One server, as its callers see it: what of it may be called, and one call. How it runs is in `running.rs`, how it is
//! reached in `opening.rs`.
//!
//! Whoever calls waits for this server alone, and never longer than the call may take.

mod opening;
mod running;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gantry_store::{RecordError, RecordVersion, ServerRecord};
use gantry_tool::{Call, ProgressSink, Refusal, RefusalCode, Reply, ToolError, Validator};
use rmcp::model::CallToolResult;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, TalkError};
use super::content;
use super::definition;
use super::sanitize::{shown, shown_name};
use super::spec::{Place, ServerSpec, Surroundings};
use super::tool_status::{State, ToolStatus, statuses};
use running::Slot;

/// For a server to show that it is alive.
const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// At once; more are refused.
const MAX_CALLS: usize = 64;

#[derive(Debug, Clone, thiserror::Error)]
pub enum ServerError {
    #[error("the MCP server {server} cannot be used: {reason}")]
    Failed { server: String, reason: String },
    /// A program that was started, and could not do all that it may have wanted to.
    #[error("the MCP server {server} cannot be used: {reason}")]
    Confined { server: String, reason: String, confinement: String },
    #[error("the MCP server {server} has failed and is tried again in {}: {reason}", seconds(.wait))]
    Resting { server: String, wait: Duration, reason: String },
    #[error("the MCP server {server} wants a login")]
    Login { server: String, challenge: String },
    #[error("what is known of the MCP server {server} cannot be read: {reason}")]
    Record { server: String, reason: String },
    #[error("there is no MCP server {0}")]
    Unknown(String),
}

fn seconds(wait: &Duration) -> String {
    format!("{:.1} s", wait.as_secs_f64())
}

impl ServerError {
    /// What to do next, where there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            ServerError::Login { server, .. } => Some(format!("run `gantry mcp login {server}`")),
            ServerError::Failed { server, .. } | ServerError::Resting { server, .. } => {
                Some(format!("`gantry mcp test {server}` tries it"))
            }
            ServerError::Confined { server, confinement, .. } => Some(format!(
                "{confinement}; if it needs that, make what it needs there beforehand, or set mcpServers.{server}.confine = \
                 false (`gantry mcp add --unconfined`)"
            )),
            ServerError::Record { .. } => None,
            ServerError::Unknown(_) => Some("`gantry mcp list` names those there are".to_owned()),
        }
    }
}

/// A server's record, and what follows from it. Made once for each state of the record.
pub(super) struct Known {
    pub(super) record: ServerRecord,
    pub(super) statuses: Vec<ToolStatus>,
    /// What tools have promised to answer with, as it was accepted. Compiled when it is first needed.
    promises: BTreeMap<String, OnceLock<Validator>>,
}

impl Known {
    fn new(spec: &ServerSpec, record: ServerRecord) -> Known {
        let statuses = statuses(&spec.name, &record, spec.tools.as_deref());
        let promising = statuses.iter().filter(|standing| promise(standing).is_some());
        let promises = promising.map(|standing| (standing.name.clone(), OnceLock::new())).collect();
        Known { record, statuses, promises }
    }

    fn standing(&self, tool: &str) -> Option<&ToolStatus> {
        self.statuses.iter().find(|standing| standing.name == tool)
    }

    fn promised(&self, tool: &str) -> Option<&Validator> {
        let promised = self.promises.get(tool)?;
        let schema = self.standing(tool)?.accepted.as_ref()?.get("outputSchema")?;
        Some(promised.get_or_init(|| Validator::new(schema)))
    }
}

/// An answer that keeps what its tool has promised. Answers can be long, and others must not wait for them.
async fn checked(known: Arc<Known>, tool: &str, answer: CallToolResult) -> Result<CallToolResult, String> {
    if !known.promises.contains_key(tool) {
        return Ok(answer);
    }
    let tool = tool.to_owned();
    let checking = tokio::task::spawn_blocking(move || match known.promised(&tool) {
        Some(promised) => content::keeps_promise(&answer, promised).map(|()| answer),
        None => Ok(answer),
    });
    checking.await.map_err(|err| err.to_string())?
}

fn promise(standing: &ToolStatus) -> Option<&Value> {
    definition::promise(standing.accepted.as_ref()?)
}

pub(super) struct Server {
    pub(super) spec: ServerSpec,
    around: Arc<Surroundings>,
    slot: tokio::sync::Mutex<Slot>,
    busy: Semaphore,
    used: Mutex<Instant>,
    /// What was read last of its record.
    known: Mutex<Option<(RecordVersion, Arc<Known>)>>,
    /// Whether somebody is finding out if it still answers.
    probing: AtomicBool,
    /// When its list was read last.
    listed: Mutex<Option<Instant>>,
    /// Why it is ended for good, if it is.
    stopped: OnceLock<&'static str>,
    /// Fires then.
    stopping: CancellationToken,
}

impl Server {
    pub(super) fn new(spec: ServerSpec, around: Arc<Surroundings>) -> Arc<Server> {
        Arc::new(Server {
            spec,
            around,
            slot: tokio::sync::Mutex::default(),
            busy: Semaphore::new(MAX_CALLS),
            used: Mutex::new(Instant::now()),
            known: Mutex::default(),
            probing: AtomicBool::new(false),
            listed: Mutex::default(),
            stopped: OnceLock::new(),
            stopping: CancellationToken::new(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// What is known of it, as it is on disk now.
    pub(super) fn known(&self) -> Result<Arc<Known>, ServerError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.around.records.version(self.name());
        match known.as_ref() {
            Some((read, seen)) if *read == version => Ok(seen.clone()),
            _ => {
                let record = self.around.records.read(self.name()).map_err(|err| self.unreadable(&err))?;
                let seen = Arc::new(Known::new(&self.spec, record));
                *known = Some((version, seen.clone()));
                Ok(seen)
            }
        }
    }

    pub(super) fn version(&self) -> RecordVersion {
        self.around.records.version(self.name())
    }

    /// Runs one call. The deadline and the caller's change of mind end it, whatever the server does.
    pub(super) async fn call(
        self: Arc<Self>,
        call: Arc<Call>,
        tool: String,
        input: Value,
    ) -> Result<Reply, ToolError> {
        let Ok(_permit) = self.busy.try_acquire() else {
            let message = format!("the MCP server {} has {MAX_CALLS} calls to answer already", self.name());
            return Err(ToolError::Refused(Refusal::new(RefusalCode::Unavailable, message)));
        };
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let Value::Object(input) = input else { return Err(ToolError::input("the input is no object")) };
        let asked = OnceLock::new();
        let progress = call.progress.clone().map(|sink| self.hushed(sink));
        let work = async {
            if let Err(held) = self.check(&tool) {
                // It may be defined again as it was accepted.
                self.look_again().await.ok_or(held)?;
                self.check(&tool)?;
            }
            let connection = self.connected().await.map_err(unavailable)?;
            let _ = asked.set(connection.clone());
            // It may have come back with other definitions than those that were accepted.
            let known = self.check(&tool)?;
            let answer = connection.call(&tool, input, progress).await;
            let answer = answer.map_err(|err| self.unanswered(err))?;
            let answer =
                checked(known, &tool, answer).await.map_err(|why| self.broken_promise(&tool, &why))?;
            self.in_confidence(content::reply(answer))
        };
        let answer = tokio::select! {
            biased;
            () = call.cancel.cancelled() => {
                self.probe(asked.get());
                Err(ToolError::Cancelled)
            }
            answer = tokio::time::timeout(self.spec.timeout, work) => answer.unwrap_or_else(|_| {
                self.probe(asked.get());
                let message =
                    format!("the MCP server {} did not answer within {}", self.name(), seconds(&self.spec.timeout));
                Err(ToolError::failed(message).with_hint(format!("mcpServers.{}.timeoutSeconds is the limit", self.name())))
            }),
        };
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        answer
    }

    /// After a call that was not answered: a server that answers nothing any more is ended, and starts anew when it is
    /// needed.
    fn probe(self: &Arc<Self>, connection: Option<&Arc<Connection>>) {
        let Some(connection) = connection.cloned() else { return };
        if self.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        let server = self.clone();
        tokio::spawn(async move {
            let answer = tokio::time::timeout(PROBE_LIMIT, connection.list()).await;
            if !matches!(
                answer,
                Ok(Ok(_) | Err(TalkError::Refused(_) | TalkError::Garbled(_) | TalkError::Login(_)))
            ) {
                let mut slot = server.slot.lock().await;
                if let Some(running) = slot.running(&connection) {
                    server.lost(&mut slot, &running, "it has stopped answering");
                }
                drop(slot);
                connection.close().await;
            }
            server.probing.store(false, Ordering::Release);
        });
    }

    /// Only what the operator has accepted runs.
    fn check(&self, tool: &str) -> Result<Arc<Known>, ToolError> {
        let seen = self.known().map_err(unavailable)?;
        let standing = seen.standing(tool);
        let (server, name) = (self.name(), format!("{}__{tool}", self.name()));
        let (why, hint) = match standing.map(|standing| &standing.state) {
            Some(State::Ready) => return Ok(seen),
            Some(State::Changed) => (
                format!("{name} is held: the server defines it otherwise than it was accepted"),
                format!(
                    "the operator sees the difference and accepts it with `gantry mcp accept {server} {tool}`"
                ),
            ),
            Some(State::New) => (
                format!("{name} is held: it was never accepted"),
                format!("the operator accepts it with `gantry mcp accept {server} {tool}`"),
            ),
            Some(State::Unusable(reason)) => (
                format!("{name} is held: {reason}"),
                format!("`gantry mcp show {server}` shows what it offers"),
            ),
            Some(State::NotChosen) => (
                format!("{name} is not among the tools that were chosen of the server"),
                format!("mcpServers.{server}.tools names those"),
            ),
            Some(State::Gone) | None => {
                let message = format!("the MCP server {server} does not offer {tool} any more");
                return Err(ToolError::Refused(Refusal::new(RefusalCode::Unavailable, message)));
            }
        };
        Err(ToolError::Refused(Refusal::new(RefusalCode::Denied, why).with_hint(hint)))
    }

    fn unanswered(&self, err: TalkError) -> ToolError {
        match err {
            TalkError::Refused(reason) => {
                ToolError::failed(format!("the MCP server {} refuses: {reason}", self.name()))
            }
            TalkError::Garbled(reason) => {
                ToolError::failed(format!("the MCP server {} has answered, but {reason}", self.name()))
            }
            err => {
                if let TalkError::Login(challenge) = &err {
                    // For the next login to ask for what is missing; without it, it asks for what it asked before.
                    let wanted = Some(challenge.clone());
                    let _ = self.around.records.change(self.name(), |record| record.wanted = wanted);
                }
                unavailable(self.failed(err))
            }
        }
    }

    fn broken_promise(&self, tool: &str, why: &str) -> ToolError {
        let message = format!(
            "the MCP server {} has answered {} with other structuredContent than its outputSchema says: {why}",
            self.name(),
            shown_name(tool)
        );
        ToolError::failed(message).with_hint("the tool has run; only its answer is refused")
    }

    fn failed(&self, err: TalkError) -> ServerError {
        let server = self.name().to_owned();
        match err {
            // However its end looked from outside, it was we who ended it.
            TalkError::Lost(reason) => ServerError::Failed {
                server,
                reason: self.masked(self.stopped.get().map_or(reason, |why| (*why).to_owned())),
            },
            TalkError::Login(challenge) => ServerError::Login { server, challenge },
            err => ServerError::Failed { server, reason: self.masked(err.to_string()) },
        }
    }

    /// A server's answer without the secrets that it was given.
    fn in_confidence(&self, answer: Result<Reply, ToolError>) -> Result<Reply, ToolError> {
        let hidden = |mut reply: Reply| match self.around.in_confidence(&self.spec, &mut reply) {
            Ok(()) => Ok(reply),
            Err(why) => Err(ToolError::failed(format!("the answer is not shown: {why}"))),
        };
        match answer {
            Ok(reply) => hidden(reply),
            Err(ToolError::Shaped(reply)) => Err(hidden(reply).map_or_else(|err| err, ToolError::Shaped)),
            Err(err) => Err(err),
        }
    }

    /// What a server says while it works, bounded and without the secrets that it was given.
    fn hushed(&self, sink: ProgressSink) -> ProgressSink {
        let masker = self.around.masker(&self.spec).ok();
        ProgressSink::new(move |mut progress| {
            match &masker {
                Some(masker) => masker.mask_text(&mut progress.message),
                None => progress.message.clear(),
            }
            progress.message = shown(&progress.message);
            sink.report(progress);
        })
    }

    /// A server's words without the secrets that it was given.
    fn masked(&self, mut words: String) -> String {
        match self.around.masker(&self.spec) {
            Ok(masker) => masker.mask_text(&mut words),
            Err(why) => words = format!("what it said is not shown: {why}"),
        }
        words
    }

    /// What this server cannot do, if it is a program that is confined.
    pub(super) fn confinement(&self) -> Option<String> {
        match &self.spec.place {
            Place::Program(program) if program.confined => self.around.confinement(),
            Place::Program(_) | Place::Address(_) => None,
        }
    }

    fn unreadable(&self, err: &RecordError) -> ServerError {
        ServerError::Record { server: self.name().to_owned(), reason: err.to_string() }
    }
}

/// As the gate tells it: the server is not there.
fn unavailable(err: ServerError) -> ToolError {
    let refusal = Refusal::new(RefusalCode::Unavailable, err.to_string());
    ToolError::Refused(match err.hint() {
        Some(hint) => refusal.with_hint(hint),
        None => refusal,
    })
}
