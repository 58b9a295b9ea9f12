//! One server: started when it is needed, listened to while it runs, stopped when it is not, started again if it fails.
//!
//! Whoever calls waits for this server alone, and never longer than the call may take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use gantry_net::{Client, ClientOptions, HostPattern};
use gantry_store::{RecordError, RecordVersion, ServerRecord};
use gantry_tool::{Call, Refusal, RefusalCode, Reply, ToolError};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::connection::{Connection, Greeting, Hearer, Listing, TalkError};
use super::content;
use super::credentials::Credentials;
use super::definition;
use super::http::Guarded;
use super::oauth::Login;
use super::spec::{AddressSpec, Place, ServerSpec, Surroundings};
use super::standing::{Standing, State, standings};
use super::wire::Lists;

/// For the handshake and the first list; programs that fetch themselves first take their time.
const START_LIMIT: Duration = Duration::from_secs(60);
const ENDED: &str = "it has ended by itself";
/// After a failure; doubled with each that follows.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A call waits this long for a server that may be tried again; longer waits are told instead.
const PATIENCE: Duration = Duration::from_secs(2);
/// A server that ran for so long has shown that it can.
const PROVEN: Duration = Duration::from_secs(60);
/// For a server to show that it is alive.
const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// At once; more are refused.
const MAX_CALLS: usize = 64;
/// A list is read again at most this often, however often a server says that it has changed.
const LIST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, thiserror::Error)]
pub enum ServerError {
    #[error("the MCP server {server} cannot be used: {reason}")]
    Failed { server: String, reason: String },
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
            ServerError::Record { .. } => None,
            ServerError::Unknown(_) => Some("`gantry mcp list` names those there are".to_owned()),
        }
    }
}

/// A server's record, and what follows from it. Made once for each state of the record.
pub(super) struct Known {
    pub(super) record: ServerRecord,
    pub(super) standings: Vec<Standing>,
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
}

#[derive(Default)]
struct Slot {
    connection: Option<Running>,
    failures: u32,
    again: Option<Instant>,
    reason: String,
    stopped: bool,
}

#[derive(Clone)]
struct Running {
    connection: Arc<Connection>,
    since: Instant,
}

impl Slot {
    /// What runs now, if it is this.
    fn running(&self, connection: &Arc<Connection>) -> Option<Running> {
        self.connection.clone().filter(|now| Arc::ptr_eq(&now.connection, connection))
    }

    fn failed(&mut self, reason: String) {
        let doubled = FIRST_WAIT.saturating_mul(1 << self.failures.min(8));
        self.failures += 1;
        self.again = Some(Instant::now() + doubled.min(LONGEST_WAIT));
        self.reason = reason;
    }
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
                let standings = standings(&record);
                let seen = Arc::new(Known { record, standings });
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
        self.check(&tool)?;
        let Ok(_permit) = self.busy.try_acquire() else {
            let message = format!("the MCP server {} has {MAX_CALLS} calls to answer already", self.name());
            return Err(ToolError::Refused(Refusal::new(RefusalCode::Unavailable, message)));
        };
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let Value::Object(input) = input else { return Err(ToolError::input("the input is no object")) };
        let asked = OnceLock::new();
        let work = async {
            let connection = self.connected().await.map_err(unavailable)?;
            let _ = asked.set(connection.clone());
            // It may have come back with other definitions than those that were accepted.
            self.check(&tool)?;
            let answer = connection.call(&tool, input, call.progress.clone()).await;
            content::reply(answer.map_err(|err| self.unanswered(err))?)
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
            if !matches!(answer, Ok(Ok(_) | Err(TalkError::Refused(_) | TalkError::Login(_)))) {
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
    fn check(&self, tool: &str) -> Result<(), ToolError> {
        let seen = self.known().map_err(unavailable)?;
        let standing = seen.standings.iter().find(|standing| standing.name == tool);
        let (server, name) = (self.name(), format!("{}__{tool}", self.name()));
        let (why, hint) = match standing.map(|standing| &standing.state) {
            Some(State::Ready) => return Ok(()),
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

    fn failed(&self, err: TalkError) -> ServerError {
        let server = self.name().to_owned();
        match err {
            TalkError::Login(challenge) => ServerError::Login { server, challenge },
            err => ServerError::Failed { server, reason: err.to_string() },
        }
    }

    fn unreadable(&self, err: &RecordError) -> ServerError {
        ServerError::Record { server: self.name().to_owned(), reason: err.to_string() }
    }

    /// The running server, started if it is not. The start goes on when whoever asked for it has left.
    pub(super) async fn connected(self: &Arc<Self>) -> Result<Arc<Connection>, ServerError> {
        let server = self.clone();
        match tokio::spawn(async move { server.start().await }).await {
            Ok(started) => started,
            Err(err) => Err(ServerError::Failed { server: self.name().to_owned(), reason: err.to_string() }),
        }
    }

    async fn start(self: Arc<Self>) -> Result<Arc<Connection>, ServerError> {
        let mut slot = self.slot.lock().await;
        if let Some(running) = slot.connection.clone() {
            if !running.connection.is_lost() {
                return Ok(running.connection);
            }
            self.lost(&mut slot, &running, ENDED);
        }
        let failed =
            |reason: &str| ServerError::Failed { server: self.name().to_owned(), reason: reason.to_owned() };
        if slot.stopped {
            return Err(failed("Gantry is stopping"));
        }
        if let Some(again) = slot.again {
            let wait = again.saturating_duration_since(Instant::now());
            if wait > PATIENCE {
                return Err(ServerError::Resting {
                    server: self.name().to_owned(),
                    wait,
                    reason: slot.reason.clone(),
                });
            }
            tokio::time::sleep(wait).await;
        }
        let (hearer, heard) = Hearer::new(self.around.version);
        let opened = match tokio::time::timeout(START_LIMIT, self.open(hearer)).await {
            Ok(opened) => opened,
            Err(_) => Err(TalkError::Silent(START_LIMIT)),
        };
        match opened {
            Ok(connection) => {
                let running = Running { connection: Arc::new(connection), since: Instant::now() };
                slot.connection = Some(running.clone());
                *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                tokio::spawn(attend(Arc::downgrade(&self), running.clone(), heard));
                Ok(running.connection)
            }
            Err(err) => {
                let err = self.failed(err);
                slot.failed(err.to_string());
                Err(err)
            }
        }
    }

    async fn open(&self, hearer: Hearer) -> Result<Connection, TalkError> {
        let greetings = match self.speaks_older() {
            true => [Greeting::Older, Greeting::Newest],
            false => [Greeting::Newest, Greeting::Older],
        };
        let connection = match self.greeted(hearer.clone(), greetings[0]).await {
            Err(TalkError::Odd(_) | TalkError::Refused(_)) => self.greeted(hearer, greetings[1]).await?,
            greeted => greeted?,
        };
        match connection.list().await {
            Ok(listing) => {
                self.note(&connection, listing)?;
                Ok(connection)
            }
            Err(err) => {
                connection.close().await;
                Err(err)
            }
        }
    }

    /// Whether it spoke a revision before 2026-07-28 when it was listed last.
    fn speaks_older(&self) -> bool {
        let about = self.known().ok().and_then(|seen| seen.record.about.clone());
        let revision = about.as_ref().and_then(|about| about["protocolVersion"].as_str());
        revision.is_some_and(|revision| revision < "2026-07-28")
    }

    async fn greeted(&self, hearer: Hearer, greeting: Greeting) -> Result<Connection, TalkError> {
        match &self.spec.place {
            Place::Program(program) => {
                let command = self.around.command(program).map_err(TalkError::Lost)?;
                let piped = self.around.processes.pipe(command).await.map_err(|err| {
                    let hint = err.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
                    TalkError::Lost(format!("{err}{hint}"))
                })?;
                Connection::over_stdio(piped, hearer, greeting).await
            }
            Place::Address(address) => {
                Connection::over_http(address.url.as_str(), self.guarded(address), hearer, greeting).await
            }
        }
    }

    fn guarded(&self, address: &AddressSpec) -> Guarded {
        let client = self.client(address);
        let login = self.login_with(address, client.clone());
        Guarded {
            client,
            credentials: Arc::new(Credentials {
                secrets: self.around.secrets.clone(),
                headers: address.headers.clone(),
                login: Some(Arc::new(login)),
            }),
            lists: Lists::default(),
            limit: self.spec.timeout.saturating_add(Duration::from_secs(5)),
        }
    }

    /// The operator named this host, so it may be one of their own machines.
    fn client(&self, address: &AddressSpec) -> Client {
        let own = address.url.host_str().and_then(|host| HostPattern::parse(host).ok());
        let mut options: ClientOptions = self.around.network.clone();
        options.private_hosts.extend(own);
        Client::new(options)
    }

    /// For servers at addresses; programs have their own ways.
    pub(super) fn login(&self) -> Option<Login> {
        match &self.spec.place {
            Place::Program(_) => None,
            Place::Address(address) => Some(self.login_with(address, self.client(address))),
        }
    }

    fn login_with(&self, address: &AddressSpec, client: Client) -> Login {
        Login {
            server: self.name().to_owned(),
            url: address.url.clone(),
            client,
            secrets: self.around.secrets.clone(),
            records: self.around.records.clone(),
            renewing: tokio::sync::Mutex::new(()),
        }
    }

    /// Writes down what was listed, for everybody who asks what there is.
    fn note(&self, connection: &Connection, listing: Listing) -> Result<(), TalkError> {
        let Listing { mut tools, usable, .. } = listing;
        // What the protocol itself forbids is as good as not offered; what we cannot use is shown as such.
        tools.retain(|tool| {
            definition::problem(tool).is_some()
                || definition::name(tool).is_some_and(|name| usable.iter().any(|usable| usable == name))
        });
        let about = connection.about();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let listed = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let noted = self.around.records.change(self.name(), |record| {
            if record.offered != tools || record.about != about || record.listed == 0 {
                (record.offered, record.about, record.listed) = (tools, about, listed);
            }
        });
        noted.map_err(|err| TalkError::Refused(err.to_string()))?;
        Ok(())
    }

    fn lost(&self, slot: &mut Slot, running: &Running, why: &str) {
        slot.connection = None;
        if running.since.elapsed() >= PROVEN {
            slot.failures = 0;
        }
        slot.failed(why.to_owned());
    }

    /// The process that runs now, if there is one.
    pub(super) async fn pid(&self) -> Option<i32> {
        self.slot.lock().await.connection.as_ref()?.connection.pid()
    }

    /// For good: nothing starts it again.
    pub(super) async fn stop(&self) {
        let running = {
            let mut slot = self.slot.lock().await;
            slot.stopped = true;
            slot.connection.take()
        };
        if let Some(running) = running {
            running.connection.close().await;
        }
    }

    /// When it may be stopped for want of work; in the future while there is any.
    fn idle_at(&self) -> Instant {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let since = if self.busy.available_permits() == MAX_CALLS { used } else { Instant::now() };
        since + self.spec.idle
    }
}

/// Looks after a server that runs: hears that its tools have changed, that it has ended, that nobody needs it.
async fn attend(server: Weak<Server>, running: Running, mut heard: watch::Receiver<u64>) {
    let mut list_after = Instant::now();
    loop {
        let Some(idle_at) = server.upgrade().map(|server| server.idle_at()) else {
            return running.connection.close().await;
        };
        let changed = async {
            let changed = heard.changed().await;
            tokio::time::sleep_until(list_after).await;
            changed
        };
        tokio::select! {
            () = running.connection.ended() => {
                if let Some(server) = server.upgrade() {
                    let mut slot = server.slot.lock().await;
                    if slot.running(&running.connection).is_some() {
                        server.lost(&mut slot, &running, ENDED);
                    }
                }
                return running.connection.close().await;
            }
            // Whoever tells is part of the connection, so it cannot be gone before it.
            _ = changed => {
                let Some(server) = server.upgrade() else { continue };
                list_after = Instant::now() + LIST_PAUSE;
                if let Ok(listing) = running.connection.list().await {
                    // A list that cannot be written down is read again with the next start.
                    let _ = server.note(&running.connection, listing);
                }
            }
            () = tokio::time::sleep_until(idle_at) => {
                let Some(server) = server.upgrade() else { continue };
                let mut slot = server.slot.lock().await;
                if server.idle_at() > Instant::now() {
                    continue;
                }
                if slot.running(&running.connection).is_some() {
                    slot.connection = None;
                    (slot.failures, slot.again) = (0, None);
                }
                drop(slot);
                return running.connection.close().await;
            }
        }
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
