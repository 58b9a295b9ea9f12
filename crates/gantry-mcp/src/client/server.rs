//! One server: which of its tools may be called, and one call. `running.rs` starts and stops it, `opening.rs` connects.
//!
//! A caller waits only for this server, and never longer than the call's timeout.

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

/// Timeout of the probe that checks whether a server still answers.
const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// Maximum concurrent calls of one server; more are rejected.
const MAX_CALLS: usize = 64;

#[derive(Debug, Clone, thiserror::Error)]
pub enum ServerError {
    #[error("cannot use the MCP server {server}: {reason}")]
    Failed { server: String, reason: String },
    /// A confined program failed. Its confinement may be the cause.
    #[error("cannot use the MCP server {server}: {reason}")]
    Confined { server: String, reason: String, confinement: String },
    #[error("the MCP server {server} failed and is retried in {}: {reason}", seconds(.wait))]
    Resting { server: String, wait: Duration, reason: String },
    #[error("the MCP server {server} requires a login")]
    Login { server: String, challenge: String },
    #[error("cannot read the record of the MCP server {server}: {reason}")]
    Record { server: String, reason: String },
    #[error("unknown MCP server {0}")]
    Unknown(String),
}

fn seconds(wait: &Duration) -> String {
    format!("{:.1} s", wait.as_secs_f64())
}

impl ServerError {
    /// Returns how to fix the error, for a caller of its tools.
    pub fn hint(&self) -> Option<String> {
        match self {
            ServerError::Failed { server, .. } | ServerError::Resting { server, .. } => {
                Some(format!("test it with `gantry mcp test {server}`"))
            }
            _ => self.fix(),
        }
    }

    /// Returns how to fix the error, for a command that has just tested the server itself.
    pub fn fix(&self) -> Option<String> {
        match self {
            ServerError::Login { server, .. } => Some(format!("run `gantry mcp login {server}`")),
            ServerError::Confined { server, confinement, .. } => Some(format!(
                "{confinement}; if it needs that access, create the files beforehand, or set mcpServers.{server}.confine = \
                 false (`gantry mcp add --unconfined`)"
            )),
            ServerError::Failed { .. } | ServerError::Resting { .. } | ServerError::Record { .. } => None,
            ServerError::Unknown(_) => Some("`gantry mcp list` lists the servers".to_owned()),
        }
    }
}

/// `Known` is a server's record and what is derived from it. It is made once for each version of the record.
pub(super) struct Known {
    pub(super) record: ServerRecord,
    pub(super) statuses: Vec<ToolStatus>,
    /// The accepted output schemas of tools, compiled when first needed.
    promises: BTreeMap<String, OnceLock<Validator>>,
}

impl Known {
    fn new(spec: &ServerSpec, record: ServerRecord) -> Known {
        let statuses = statuses(&spec.name, &record, spec.tools.as_deref());
        let promising = statuses.iter().filter(|status| promise(status).is_some());
        let promises = promising.map(|status| (status.name.clone(), OnceLock::new())).collect();
        Known { record, statuses, promises }
    }

    fn status(&self, tool: &str) -> Option<&ToolStatus> {
        self.statuses.iter().find(|status| status.name == tool)
    }

    fn promised(&self, tool: &str) -> Option<&Validator> {
        let promised = self.promises.get(tool)?;
        let schema = self.status(tool)?.accepted.as_ref()?.get("outputSchema")?;
        Some(promised.get_or_init(|| Validator::new(schema)))
    }
}

/// Checks an answer against the tool's output schema. It runs on a blocking thread, because answers can be long.
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

fn promise(status: &ToolStatus) -> Option<&Value> {
    definition::promise(status.accepted.as_ref()?)
}

pub(super) struct Server {
    pub(super) spec: ServerSpec,
    around: Arc<Surroundings>,
    slot: tokio::sync::Mutex<Slot>,
    busy: Semaphore,
    used: Mutex<Instant>,
    /// The record as it was read last.
    known: Mutex<Option<(RecordVersion, Arc<Known>)>>,
    /// Whether a probe is running.
    probing: AtomicBool,
    /// When the list of tools was read last.
    listed: Mutex<Option<Instant>>,
    /// Why the server was ended for good, if it was.
    stopped: OnceLock<&'static str>,
    /// Cancelled when the server is ended for good.
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

    /// Returns the server's record as it is on disk now.
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

    /// Runs one call. The timeout and a cancellation end it, whatever the server does.
    pub(super) async fn call(
        self: Arc<Self>,
        call: Arc<Call>,
        tool: String,
        input: Value,
    ) -> Result<Reply, ToolError> {
        let Ok(_permit) = self.busy.try_acquire() else {
            let message =
                format!("the MCP server {} is busy: it already has {MAX_CALLS} running calls", self.name());
            return Err(ToolError::Refused(Refusal::new(RefusalCode::Unavailable, message)));
        };
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let Value::Object(input) = input else {
            return Err(ToolError::input("the input must be a JSON object"));
        };
        let asked = OnceLock::new();
        let progress = call.progress.clone().map(|sink| self.masked_progress(sink));
        let work = async {
            if let Err(held) = self.check(&tool) {
                // The server may have restored the accepted definition.
                self.refresh_list().await.ok_or(held)?;
                self.check(&tool)?;
            }
            let connection = self.connected().await.map_err(unavailable)?;
            let _ = asked.set(connection.clone());
            // After a restart the server may offer changed definitions.
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
                Err(ToolError::failed(message).with_hint(format!("raise mcpServers.{}.timeoutSeconds", self.name())))
            }),
        };
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        answer
    }

    /// Probes a server after an unanswered call. A server that no longer answers is ended and restarted when needed.
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
                    server.lost(&mut slot, &running, "it stopped answering");
                }
                drop(slot);
                connection.close().await;
            }
            server.probing.store(false, Ordering::Release);
        });
    }

    /// Checks that the operator has accepted the tool in its current definition.
    fn check(&self, tool: &str) -> Result<Arc<Known>, ToolError> {
        let seen = self.known().map_err(unavailable)?;
        let status = seen.status(tool);
        let (server, name) = (self.name(), format!("{}__{tool}", self.name()));
        let (why, hint) = match status.map(|status| &status.state) {
            Some(State::Ready) => return Ok(seen),
            Some(State::Changed) => (
                format!("{name} is blocked: its definition has changed since it was accepted"),
                format!(
                    "the operator can review and accept the change with `gantry mcp accept {server} {tool}`"
                ),
            ),
            Some(State::New) => (
                format!("{name} is blocked: it was never accepted"),
                format!("the operator can accept it with `gantry mcp accept {server} {tool}`"),
            ),
            Some(State::Unusable(reason)) => (
                format!("{name} is blocked: {reason}"),
                format!("`gantry mcp show {server}` shows the server's tools"),
            ),
            Some(State::NotChosen) => (
                format!("{name} is not one of the configured tools of the server"),
                format!("add it to mcpServers.{server}.tools"),
            ),
            Some(State::Gone) | None => {
                let message = format!("the MCP server {server} no longer offers {tool}");
                return Err(ToolError::Refused(Refusal::new(RefusalCode::Unavailable, message)));
            }
        };
        Err(ToolError::Refused(Refusal::new(RefusalCode::Denied, why).with_hint(hint)))
    }

    fn unanswered(&self, err: TalkError) -> ToolError {
        match err {
            TalkError::Refused(reason) => {
                ToolError::failed(format!("the MCP server {} returned an error: {reason}", self.name()))
            }
            TalkError::Garbled(reason) => ToolError::failed(format!(
                "the MCP server {} returned an invalid answer: {reason}",
                self.name()
            )),
            err => {
                if let TalkError::Login(challenge) = &err {
                    // The challenge is stored, so that the next login requests the missing scopes.
                    let wanted = Some(challenge.clone());
                    let _ = self.around.records.change(self.name(), |record| record.wanted = wanted);
                }
                unavailable(self.failed(err))
            }
        }
    }

    fn broken_promise(&self, tool: &str, why: &str) -> ToolError {
        let message = format!(
            "the MCP server {} answered {} with structuredContent that violates its outputSchema: {why}",
            self.name(),
            shown_name(tool)
        );
        ToolError::failed(message).with_hint("the tool ran; only its answer is rejected")
    }

    fn failed(&self, err: TalkError) -> ServerError {
        let server = self.name().to_owned();
        match err {
            // The server was ended on purpose, so that reason is reported.
            TalkError::Lost(reason) => ServerError::Failed {
                server,
                reason: self.masked(self.stopped.get().map_or(reason, |why| (*why).to_owned())),
            },
            TalkError::Login(challenge) => ServerError::Login { server, challenge },
            err => ServerError::Failed { server, reason: self.masked(err.to_string()) },
        }
    }

    /// Masks the server's secrets in an answer.
    fn in_confidence(&self, answer: Result<Reply, ToolError>) -> Result<Reply, ToolError> {
        let hidden = |mut reply: Reply| match self.around.in_confidence(&self.spec, &mut reply) {
            Ok(()) => Ok(reply),
            Err(why) => Err(ToolError::failed(format!(
                "cannot mask secrets in the answer, so it is not shown: {why}"
            ))),
        };
        match answer {
            Ok(reply) => hidden(reply),
            Err(ToolError::Shaped(reply)) => Err(hidden(reply).map_or_else(|err| err, ToolError::Shaped)),
            Err(err) => Err(err),
        }
    }

    /// Bounds progress messages of a server and masks its secrets.
    fn masked_progress(&self, sink: ProgressSink) -> ProgressSink {
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

    /// Masks the server's secrets in a text.
    fn masked(&self, mut words: String) -> String {
        match self.around.masker(&self.spec) {
            Ok(masker) => masker.mask_text(&mut words),
            Err(why) => words = format!("(hidden, because secrets cannot be masked: {why})"),
        }
        words
    }

    /// Describes what the server cannot do, if it is a confined program.
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

/// Converts an error of the server to a tool error.
fn unavailable(err: ServerError) -> ToolError {
    let refusal = Refusal::new(RefusalCode::Unavailable, err.to_string());
    ToolError::Refused(match err.hint() {
        Some(hint) => refusal.with_hint(hint),
        None => refusal,
    })
}
