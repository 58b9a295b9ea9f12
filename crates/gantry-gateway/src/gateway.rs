//! The state that all surfaces share: the gate, authentication, the nodes, the domains, and the shutdown.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use gantry_domain::{
    BusyPoll, Domain, DuplicateMethod, GatewayServices, IdempotentRequests, Identity, MemoryQuota, Methods,
    RequestContext, Running, ToolsHandle,
};
use gantry_link::Link;
use gantry_protocol::{CloseReason, GatewayStatus, ProcessEnd, ProcessEnded};
use gantry_store::{Database, DatabaseError};
use gantry_tool::{Answer, Call, Gate, Live, Outcome, Refusal, RefusalCode, ResultStore, Surface};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Auth;
use crate::callers::{Agent, MAIN_AGENT, Wanted};
use crate::hosts::Hosts;
use crate::http::ProtectedResource;
use crate::nodes::Nodes;
use crate::process_exits::ProcessExits;

/// Deadline of calls without one.
const LONGEST_CALL: Duration = Duration::from_secs(24 * 3600);

/// Size of the queue of revocations for each listener.
const REVOCATIONS: usize = 256;

const STOPPING: &str = "the gateway is stopping";

/// How long a stopping gateway waits until the last answers are sent.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

pub struct GatewayParts {
    pub gate: Arc<Gate>,
    pub nodes: Arc<Nodes>,
    pub database: Database,
    pub results: Arc<dyn ResultStore>,
    /// Feature areas, in the order in which they start.
    pub domains: Vec<Arc<dyn Domain>>,
    pub operator_token: String,
    /// Agents by name. `main` always exists.
    pub agents: BTreeMap<String, Agent>,
    pub hosts: Hosts,
    /// Directory that relative paths of calls start in.
    pub workspace: PathBuf,
    /// URL at which other machines reach the gateway, if configured.
    pub public_url: Option<String>,
    pub version: String,
    /// OAuth metadata for MCP clients without a token.
    pub protected: Option<ProtectedResource>,
    /// Idle timeout of sessions at `/mcp`.
    pub mcp_idle: Duration,
    /// Answers `gateway.status`.
    pub status: Option<StatusReport>,
}

/// Reports the models and the configuration, which only the binary knows.
pub type StatusReport = Arc<dyn Fn() -> BoxFuture<'static, GatewayStatus> + Send + Sync>;

/// `Gateway` is shared by all connections.
pub struct Gateway {
    pub(crate) gate: Arc<Gate>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) database: Database,
    pub(crate) results: Arc<dyn ResultStore>,
    pub(crate) domains: Vec<Arc<dyn Domain>>,
    /// The protocol methods of all domains.
    pub(crate) methods: Methods,
    /// The domains' background tasks.
    workers: TaskTracker,
    workers_stop: CancellationToken,
    /// Memory quota for messages in transit.
    pub(crate) quota: Arc<MemoryQuota>,
    pub(crate) requests: Arc<IdempotentRequests>,
    agents: Live<BTreeMap<String, Agent>>,
    pub(crate) auth: Auth,
    pub(crate) hosts: Hosts,
    pub(crate) workspace: PathBuf,
    pub(crate) public_url: Option<String>,
    pub(crate) version: String,
    pub(crate) protected: Option<ProtectedResource>,
    pub(crate) mcp_idle: Duration,
    pub(crate) status: Option<StatusReport>,
    pub(crate) exits: ProcessExits,
    /// Running calls.
    calls: TaskTracker,
    /// Cancelled when the gateway stops. No new calls start from then on.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when the drain time is over. It cancels every call.
    pub(crate) ending: CancellationToken,
    pub(crate) busy_poll: BusyPoll,
    links: Mutex<HashMap<u64, (Link, Identity)>>,
    next_link: AtomicU64,
    /// Sends the names of client tokens and page sessions that are revoked.
    pub(crate) revoked: broadcast::Sender<String>,
}

/// The agent `main` always exists.
fn with_main(mut agents: BTreeMap<String, Agent>) -> BTreeMap<String, Agent> {
    agents.entry(MAIN_AGENT.to_owned()).or_default();
    agents
}

impl Gateway {
    /// The configured agents.
    pub(crate) fn agents(&self) -> Arc<BTreeMap<String, Agent>> {
        self.agents.get()
    }

    /// Replaces the agents for calls that come later.
    pub fn configure(&self, agents: BTreeMap<String, Agent>) {
        self.agents.set(with_main(agents));
    }

    /// Fails if two domains register the same method.
    pub fn new(parts: GatewayParts) -> Result<Arc<Gateway>, DuplicateMethod> {
        let none = Ok(Methods::default());
        let methods =
            parts.domains.iter().fold(none, |all, domain| all.and_then(|all| all.merge(domain.methods())))?;
        let agents = Live::new(with_main(parts.agents));
        let (calls, ending) = (TaskTracker::new(), CancellationToken::new());
        let settling = parts.gate.clone();
        let instance = parts.nodes.instance.clone();
        let requests = IdempotentRequests::new(parts.database.clone(), parts.gate.clone(), instance);
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
            requests: Arc::new(requests),
            agents,
            hosts: parts.hosts,
            workspace: parts.workspace,
            public_url: parts.public_url,
            version: parts.version,
            protected: parts.protected,
            mcp_idle: parts.mcp_idle,
            status: parts.status,
            exits: ProcessExits::default(),
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

    /// Starts the domains in order. Returns the first domain that fails, with its error.
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

    /// Returns the state of the domains' routes.
    pub(crate) fn request_context(self: &Arc<Self>) -> RequestContext {
        RequestContext {
            gate: self.gate.clone(),
            quota: self.quota.clone(),
            requests: self.requests.clone(),
            services: self.clone(),
        }
    }

    /// Calls a tool for a surface, through the gate.
    pub(crate) async fn run(&self, mut call: Call, name: &str, input: Value) -> Outcome {
        if self.stopping.is_cancelled() {
            let refusal = Refusal::new(RefusalCode::Unavailable, STOPPING);
            return Outcome::refused(&call, name, refusal);
        }
        call.deadline = call.deadline.or_else(|| Instant::now().checked_add(LONGEST_CALL));
        let _counted = self.calls.token();
        self.busy_poll.on_activity();
        // This future is large, and the ones around it are moved often, so it is boxed.
        let mut outcome = Box::pin(self.gate.dispatch(call, name, input)).await;
        self.busy_poll.on_activity();
        if let Answer::Refused(refusal) = &mut outcome.answer
            && refusal.code == RefusalCode::Cancelled
            && self.ending.is_cancelled()
        {
            // The caller did not cancel it. The error explains that the gateway did.
            *refusal = Refusal::lost(format!("{STOPPING} and ended the call; its outcome is unknown"));
        }
        outcome
    }

    /// Records the exit of a background process on a node. It is on disk on return. Returns false if it was known.
    pub async fn process_ended(&self, node: &str, end: &ProcessEnd) -> Result<bool, DatabaseError> {
        let data = serde_json::to_value(end).unwrap_or_default();
        let new = self.database.record_process_end(node, &end.event_id, &data, now_ms()).await?;
        if new {
            self.exits.publish(ProcessEnded { end: end.clone(), node_id: node.to_owned() });
        }
        Ok(new)
    }

    /// Lets running calls finish for at most `drain`, ends the rest, and closes every link with a reason.
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
        let links: Vec<Link> = self.links().values().map(|(link, _)| link.clone()).collect();
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

    /// Returns a unique number for a connection.
    pub(crate) fn next_connection(&self) -> u64 {
        self.next_link.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers a client's link, so that it is closed when its token or page session is revoked or the gateway stops.
    pub(crate) fn add_link(&self, link: &Link, identity: &Identity) -> u64 {
        let number = self.next_connection();
        self.links().insert(number, (link.clone(), identity.clone()));
        number
    }

    pub(crate) fn remove_link(&self, number: u64) {
        self.links().remove(&number);
    }

    pub(crate) fn close_links_of(&self, token: &str) {
        let is_theirs = |identity: &Identity| matches!(identity, Identity::Client(own) if own.name == token);
        self.close_links(is_theirs, &CloseReason::TokenRevoked);
        // Sending fails if there are no listeners, which is fine.
        let _ = self.revoked.send(token.to_owned());
    }

    fn close_links(&self, is_theirs: impl Fn(&Identity) -> bool, reason: &CloseReason) {
        let links = self.links();
        let theirs = links.values().filter(|(_, identity)| is_theirs(identity));
        theirs.for_each(|(link, _)| link.close(reason.clone()));
    }

    fn links(&self) -> std::sync::MutexGuard<'_, HashMap<u64, (Link, Identity)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names a page session among client tokens, whose names have no space.
pub(crate) fn page_name(id: &str) -> String {
    format!("page {id}")
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

    fn end_page_session(&self, id: &str) {
        let name = page_name(id);
        self.auth.revoked(&name);
        let is_its = |identity: &Identity| matches!(identity, Identity::Page(session) if session.id == id);
        self.close_links(is_its, &CloseReason::PageSessionEnded);
        let _ = self.revoked.send(name);
    }

    fn ending_of_token<'a>(
        &'a self,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<Option<CancellationToken>, DatabaseError>> {
        Box::pin(Gateway::ending_of_token(self, owner))
    }
}
