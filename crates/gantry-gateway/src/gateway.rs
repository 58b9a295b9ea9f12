//! What all surfaces share: the gate, who may call it, the nodes behind it, and how it comes to an end.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use gantry_domain::{
    Domain, DuplicateMethod, GatewayServices, Identity, MemoryQuota, Methods, RequestContext, Running,
    ToolsHandle,
};
use gantry_link::Link;
use gantry_protocol::{CloseReason, GatewayStatus, ProcessEnd, ProcessEnded};
use gantry_store::{Database, DatabaseError};
use gantry_tool::{Answer, BusyPoll, Call, Gate, Outcome, Refusal, RefusalCode, ResultStore, Surface};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Auth;
use crate::callers::{Agent, MAIN_AGENT, Wanted};
use crate::hosts::Hosts;
use crate::http::ProtectedResource;
use crate::nodes::Nodes;
use crate::process_exits::Ends;

/// A call for which nobody gave a deadline is given up after this long.
const LONGEST_CALL: Duration = Duration::from_secs(24 * 3600);

/// Revocations that a slow listener may miss before it is told so.
const REVOCATIONS: usize = 256;

const STOPPING: &str = "the gateway is stopping";

/// How long the answers of calls that are over may take to be sent when the gateway stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

pub struct GatewayParts {
    pub gate: Arc<Gate>,
    pub nodes: Arc<Nodes>,
    pub database: Database,
    pub results: Arc<dyn ResultStore>,
    /// Feature areas, in the order in which they start.
    pub domains: Vec<Arc<dyn Domain>>,
    pub operator_token: String,
    /// By name; `main` is always there.
    pub agents: BTreeMap<String, Agent>,
    pub hosts: Hosts,
    /// Where relative paths of calls start.
    pub workspace: PathBuf,
    /// How others reach it, if that was said.
    pub public_url: Option<String>,
    pub version: String,
    /// Told to clients of the Model Context Protocol that have no token.
    pub protected: Option<ProtectedResource>,
    /// A conversation at `/mcp` that is not used for so long is over.
    pub mcp_idle: Duration,
    /// Answers `gateway.status`.
    pub status: Option<StatusReport>,
}

/// What the program around a gateway knows of its models and its configuration.
pub type StatusReport = Arc<dyn Fn() -> BoxFuture<'static, GatewayStatus> + Send + Sync>;

/// Shared by everything that serves.
pub struct Gateway {
    pub(crate) gate: Arc<Gate>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) database: Database,
    pub(crate) results: Arc<dyn ResultStore>,
    pub(crate) domains: Vec<Arc<dyn Domain>>,
    /// The protocol methods of all domains.
    pub(crate) methods: Methods,
    /// Workers of domains.
    workers: TaskTracker,
    workers_stop: CancellationToken,
    /// Room for messages under way.
    pub(crate) quota: Arc<MemoryQuota>,
    pub(crate) agents: BTreeMap<String, Agent>,
    pub(crate) auth: Auth,
    pub(crate) hosts: Hosts,
    pub(crate) workspace: PathBuf,
    pub(crate) public_url: Option<String>,
    pub(crate) version: String,
    pub(crate) protected: Option<ProtectedResource>,
    pub(crate) mcp_idle: Duration,
    pub(crate) status: Option<StatusReport>,
    pub(crate) ends: Ends,
    /// Calls under way.
    calls: TaskTracker,
    /// No new calls.
    pub(crate) stopping: CancellationToken,
    /// Every call is cancelled.
    pub(crate) ending: CancellationToken,
    pub(crate) busy_poll: BusyPoll,
    links: Mutex<HashMap<u64, ClientLink>>,
    next_link: AtomicU64,
    /// Names of client tokens, when they are revoked.
    pub(crate) revoked: broadcast::Sender<String>,
}

struct ClientLink {
    link: Link,
    token: Option<String>,
}

impl Gateway {
    /// Fails when two domains answer the same method.
    pub fn new(parts: GatewayParts) -> Result<Arc<Gateway>, DuplicateMethod> {
        let none = Ok(Methods::default());
        let methods =
            parts.domains.iter().fold(none, |all, domain| all.and_then(|all| all.merge(domain.methods())))?;
        let mut agents = parts.agents;
        agents.entry(MAIN_AGENT.to_owned()).or_default();
        let (calls, ending) = (TaskTracker::new(), CancellationToken::new());
        let settling = parts.gate.clone();
        let gateway = Gateway {
            auth: Auth::new(&parts.operator_token, parts.database.clone(), ending.clone()),
            gate: parts.gate,
            nodes: parts.nodes,
            database: parts.database,
            results: parts.results,
            domains: parts.domains,
            methods,
            workers: TaskTracker::new(),
            workers_stop: CancellationToken::new(),
            quota: Arc::default(),
            agents,
            hosts: parts.hosts,
            workspace: parts.workspace,
            public_url: parts.public_url,
            version: parts.version,
            protected: parts.protected,
            mcp_idle: parts.mcp_idle,
            status: parts.status,
            ends: Ends::default(),
            busy_poll: BusyPoll::new(calls.clone(), move || settling.settle()),
            calls,
            stopping: CancellationToken::new(),
            ending,
            links: Mutex::default(),
            next_link: AtomicU64::new(0),
            revoked: broadcast::channel(REVOCATIONS).0,
        };
        Ok(Arc::new(gateway))
    }

    /// Starts the domains in order. The first failure ends it, and names the domain.
    pub(crate) async fn start_domains(self: &Arc<Self>) -> Result<(), (&'static str, anyhow::Error)> {
        let running = Running {
            gate: self.gate.clone(),
            tools: ToolsHandle::new(self.gate.registry().clone()),
            services: self.clone(),
            tasks: self.workers.clone(),
            stopping: self.workers_stop.clone(),
        };
        for domain in &self.domains {
            domain.start(&running).await.map_err(|err| (domain.name(), err))?;
        }
        Ok(())
    }

    /// The state of every route of a domain.
    pub(crate) fn request_context(self: &Arc<Self>) -> RequestContext {
        RequestContext { gate: self.gate.clone(), quota: self.quota.clone(), services: self.clone() }
    }

    /// Calls a tool for a surface: the one way from here to the gate.
    pub(crate) async fn run(&self, mut call: Call, name: &str, input: Value) -> Outcome {
        if self.stopping.is_cancelled() {
            let refusal = Refusal::new(RefusalCode::Unavailable, STOPPING);
            return Outcome::refused(&call, name, refusal);
        }
        call.deadline = call.deadline.or_else(|| Instant::now().checked_add(LONGEST_CALL));
        let _counted = self.calls.token();
        self.busy_poll.on_activity();
        // Of all futures of a call the largest: those around it are moved often.
        let mut outcome = Box::pin(self.gate.dispatch(call, name, input)).await;
        self.busy_poll.on_activity();
        if let Answer::Refused(refusal) = &mut outcome.answer
            && refusal.code == RefusalCode::Cancelled
            && self.ending.is_cancelled()
        {
            // Its caller did not call it off: it may ask again, and should know of whom.
            *refusal = Refusal::lost(format!("{STOPPING}, and has ended the call, whose outcome is unknown"));
        }
        outcome
    }

    /// A background process has ended on a node: on disk when this returns. False when it was known.
    pub async fn process_ended(&self, node: &str, end: &ProcessEnd) -> Result<bool, DatabaseError> {
        let data = serde_json::to_value(end).unwrap_or_default();
        let new = self.database.record_process_end(node, &end.event_id, &data, now_ms()).await?;
        if new {
            self.ends.tell(ProcessEnded { end: end.clone(), node_id: node.to_owned() });
        }
        Ok(new)
    }

    /// Lets calls under way finish for at most `drain`, then ends them, then closes every link with a reason.
    pub(crate) async fn stop(&self, drain: Duration) {
        self.stopping.cancel();
        // Transfers resume with the next start; to wait for them could take days.
        if let Some(transfers) = self.nodes.transfers() {
            transfers.suspend();
        }
        self.calls.close();
        let work = async {
            for domain in self.domains.iter().rev() {
                domain.drain(drain).await;
            }
        };
        let calls = async {
            if tokio::time::timeout(drain, self.calls.wait()).await.is_err() {
                self.ending.cancel();
                let _ = tokio::time::timeout(Duration::from_secs(5), self.calls.wait()).await;
            }
        };
        tokio::join!(work, calls);
        self.ending.cancel();
        self.workers_stop.cancel();
        let links: Vec<Link> = self.links().values().map(|client| client.link.clone()).collect();
        let answered = async {
            for link in &links {
                link.answered().await;
            }
        };
        let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
        links.iter().for_each(|link| link.close(CloseReason::Stopping));
        self.nodes.close_all(&CloseReason::Stopping);
        for domain in self.domains.iter().rev() {
            domain.stop().await;
        }
    }

    /// A number for a connection, which no other has.
    pub(crate) fn next_connection(&self) -> u64 {
        self.next_link.fetch_add(1, Ordering::Relaxed)
    }

    /// Remembers a client's link, so that it can be closed when its token is revoked or the gateway stops.
    pub(crate) fn add_link(&self, link: &Link, identity: &Identity) -> u64 {
        let number = self.next_connection();
        let token = match identity {
            Identity::Operator => None,
            Identity::Client(token) => Some(token.name.clone()),
        };
        self.links().insert(number, ClientLink { link: link.clone(), token });
        number
    }

    pub(crate) fn remove_link(&self, number: u64) {
        self.links().remove(&number);
    }

    pub(crate) fn close_links_of(&self, token: &str) {
        let links = self.links();
        let theirs = links.values().filter(|client| client.token.as_deref() == Some(token));
        theirs.for_each(|client| client.link.close(CloseReason::TokenRevoked));
        // Nobody may be listening.
        let _ = self.revoked.send(token.to_owned());
    }

    fn links(&self) -> std::sync::MutexGuard<'_, HashMap<u64, ClientLink>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl GatewayServices for Gateway {
    fn call(&self, identity: &Identity, agent: Option<&str>, surface: Surface) -> Result<Call, Refusal> {
        Gateway::call(self, identity, &Wanted { agent, ..Wanted::default() }, surface)
    }

    fn run<'a>(&'a self, call: Call, tool: &'a str, input: Value) -> BoxFuture<'a, Outcome> {
        Box::pin(Gateway::run(self, call, tool, input))
    }

    fn ending_of_token<'a>(
        &'a self,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<Option<CancellationToken>, DatabaseError>> {
        Box::pin(Gateway::ending_of_token(self, owner))
    }
}
