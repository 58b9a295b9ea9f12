//! Transfers between nodes, the gateway's own machine and the workspaces: each is driven to its end over as many
//! connections, and as many starts of the gateway, as that takes. Tools ask for them through [`NodeServices`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use gantry_protocol::{Caller, ErrorCode, WireError};
use gantry_store::{DataDir, Database, DatabaseError, NewTransfer, Objects, TransferRow};
use gantry_tool::{Call, Gate, Message, Progress, Refusal, ResumedWork, ToolError, ToolScope};
use gantry_toolsets::{Endpoint, LOCAL_NODE, NodeLogs, NodeServices, ToolFuture, Transferred};
use gantry_transfer::TransferService;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::gateway::now_ms;
use crate::node_logs::shown_to;
use crate::nodes::Nodes;

mod attempt;
mod domain;
mod drive;
mod log;
mod meter;
pub(crate) mod orphan_parts;
mod progress;
pub(crate) mod relay;
mod resume_identity;
mod session;
mod storage;

use attempt::TransferSpec;
pub use domain::TransfersDomain;
use meter::{Meter, Meters};
use orphan_parts::{End, remove_orphan_parts};
use resume_identity::ResumeIdentity;
use session::OwnDesks;
use storage::ObjectBackend;

/// Transfers that are driven at once.
const MAX_RUNNING: usize = 256;

/// The tool that all of them are asked for by.
const TRANSFER: &str = "gsv__Transfer";

const TOKEN_IS_OVER: &str = "the token that it was begun with is no longer good";

/// How often a caller hears how far it is; surfaces thin it out further.
const REPORT_PAUSE: Duration = Duration::from_millis(100);

/// How long after its start a gateway waits for nodes that were connected before, and how recently that was.
const RETURN_LIMIT: Duration = Duration::from_secs(20);
const SEEN_RECENTLY: Duration = Duration::from_secs(60);
const RETURN_PAUSE: Duration = Duration::from_millis(50);

const TIDY_PAUSE: Duration = Duration::from_secs(3600);

/// A transfer of which nothing moves for so long has failed.
pub const IDLE_LIMIT: Duration = Duration::from_secs(10 * 60);

pub struct TransfersParts {
    pub nodes: Arc<Nodes>,
    /// Judges ends of transfers and files of directories, and keeps the record.
    pub gate: Arc<Gate>,
    pub database: Database,
    pub objects: Objects,
    pub data: DataDir,
    /// This machine's files, when it serves them.
    pub local: Option<Arc<TransferService>>,
    pub idle_limit: Duration,
}

pub struct Transfers {
    nodes: Arc<Nodes>,
    gate: Arc<Gate>,
    database: Database,
    objects: Objects,
    own: OwnDesks,
    meters: Meters,
    idle_limit: Duration,
    running: Mutex<HashMap<Key, Arc<Job>>>,
    /// One is started at a time, so that the same one asked for twice is one.
    starting: tokio::sync::Mutex<()>,
    /// When this gateway started.
    started: Instant,
}

/// The same caller, from and to the same places: the same transfer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    principal: String,
    agent: String,
    source: String,
    destination: String,
}

/// What an earlier start wrote down.
struct Resumed {
    ledger: Option<String>,
    /// Of the client token that it was begun with.
    ending: CancellationToken,
}

type Ended = Result<Transferred, WireError>;

struct Job {
    id: String,
    /// Another one when a node at one end was renamed.
    errand: Mutex<Arc<TransferSpec>>,
    /// Goes on from an earlier start of the gateway.
    resumed: Option<Resumed>,
    meter: Arc<Meter>,
    cancel: CancellationToken,
    outcome: watch::Sender<Option<Ended>>,
    /// Callers that wait. The last one to give up ends it.
    waiting: AtomicUsize,
}

/// Looks up what ends the work of a client token; `None` when the token is no longer valid.
pub type TokenEnding<'a> = &'a (
        dyn for<'t> Fn(&'t str) -> BoxFuture<'t, Result<Option<CancellationToken>, DatabaseError>>
            + Send
            + Sync
    );

/// Transfers that go on, once it is known what ends them.
pub struct Unfinished<'a> {
    transfers: &'a Arc<Transfers>,
    rows: Vec<TransferRow>,
    _starting: tokio::sync::MutexGuard<'a, ()>,
}

impl Unfinished<'_> {
    /// Goes on with them; returns how many. `ending` says what ends the work of a client token, if that is still good.
    pub async fn resume(self, ending: TokenEnding<'_>) -> Result<usize, DatabaseError> {
        let count = self.rows.len();
        for row in self.rows {
            let going_on = match resumed_errand(&row) {
                Ok(errand) => self.transfers.going_on(errand, row.ledger, ending).await?,
                Err(reason) => Err(reason),
            };
            match going_on {
                Ok((job, work)) => self.transfers.spawn(Arc::new(job), Some(work)),
                Err(reason) => {
                    self.transfers.database.finish_transfer(&row.id, Err(&reason), now_ms()).await?;
                }
            }
        }
        Ok(count)
    }
}

impl Transfers {
    pub fn new(parts: TransfersParts) -> Arc<Transfers> {
        let meters = Meters::default();
        let objects = parts.objects.clone();
        let storage =
            TransferService::new(Arc::new(ObjectBackend::new(parts.objects, parts.data, meters.clone())));
        let transfers = Arc::new(Transfers {
            nodes: parts.nodes,
            gate: parts.gate,
            database: parts.database,
            objects,
            own: OwnDesks { storage, local: parts.local },
            meters,
            idle_limit: parts.idle_limit,
            running: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            started: Instant::now(),
        });
        let told = Arc::downgrade(&transfers);
        transfers.nodes.when_renamed(move |old, new| {
            if let Some(transfers) = told.upgrade() {
                transfers.rename(old, new);
            }
        });
        transfers
    }

    /// What runs with a node goes on under its new name.
    fn rename(&self, old: &str, new: &str) {
        let mut running = self.running();
        for job in std::mem::take(&mut *running).into_values() {
            job.rename(old, new);
            running.insert(job.key(), job);
        }
    }

    /// What an earlier start of the gateway did not finish. While it is held no transfer is started, so that whoever asks for
    /// one of these again finds it.
    pub async fn unfinished(self: &Arc<Self>) -> Result<Unfinished<'_>, DatabaseError> {
        let starting = self.starting.lock().await;
        Ok(Unfinished {
            transfers: self,
            rows: self.database.unfinished_transfers().await?,
            _starting: starting,
        })
    }

    /// What nobody asks for now is on record as if somebody did, and ends with the token that it was begun with.
    async fn going_on(
        &self,
        errand: TransferSpec,
        ledger: Option<String>,
        ending: TokenEnding<'_>,
    ) -> Result<Result<(Job, ResumedWork), String>, DatabaseError> {
        let ends =
            json!({"source": errand.source.to_string(), "destination": errand.destination.to_string()});
        let work = match self.gate.resumes(&errand.judged_as, TRANSFER, &ends).await {
            Ok(work) => work,
            Err(err) => return Ok(Err(format!("{err}; the transfer does not go on"))),
        };
        let ending = match &errand.judged_as.token {
            None => CancellationToken::new(),
            Some(token) => match ending(token).await? {
                Some(ending) => ending,
                None => {
                    work.ended(Err(&Refusal::from_wire(token_is_over())));
                    return Ok(Err(TOKEN_IS_OVER.to_owned()));
                }
            },
        };
        Ok(Ok((Job::new(errand, Some(Resumed { ledger, ending })), work)))
    }

    /// Removes what transfers that are over have left here, and on nodes, and forgets them after a week: now, and then every
    /// hour. Nodes are also asked when they connect.
    pub async fn keep_tidy(&self) -> std::convert::Infallible {
        loop {
            let own = || self.own.local.iter().chain([&self.own.storage]);
            for end in own().map(|desk| End::Service(desk.clone())).chain(self.nodes.ends()) {
                remove_orphan_parts(&self.database, &end).await;
            }
            // What fails now is tried again.
            for desk in own() {
                let _ = desk.sweep().await;
            }
            let _ = self.database.sweep_transfers(now_ms()).await;
            tokio::time::sleep(TIDY_PAUSE).await;
        }
    }

    /// The transfer of this key, running already or started now, with this caller counted.
    async fn start(
        self: &Arc<Self>,
        call: &Call,
        source: Endpoint,
        destination: Endpoint,
    ) -> Result<Waiting, ToolError> {
        let _starting = self.starting.lock().await;
        let caller = call.caller();
        let standing = ResumeIdentity::of(call);
        let kept_standing = standing.to_text();
        let judged_as = Arc::new(standing.call(&caller).map_err(tool_error)?);
        let id = uuid::Uuid::now_v7().to_string();
        let errand = TransferSpec { id, caller, judged_as, source, destination };
        let job = Job::new(errand, None);
        let (key, errand) = (job.key(), job.errand());
        let known = self.running().get(&key).filter(|known| !known.cancel.is_cancelled()).cloned();
        if let Some(known) = known {
            return Ok(Waiting::new(known));
        }
        for endpoint in [&errand.source, &errand.destination] {
            self.check_present(endpoint)?;
        }
        if self.running().len() >= MAX_RUNNING {
            let text = format!("{MAX_RUNNING} transfers are under way already");
            return Err(ToolError::unavailable(text).with_hint("try again later"));
        }
        let new = NewTransfer {
            id: job.id.clone(),
            agent: key.agent,
            principal: key.principal,
            autonomy: errand.caller.autonomy.clone(),
            source: key.source,
            destination: key.destination,
            standing: kept_standing,
        };
        let recorded = self.database.insert_transfer(&new, now_ms()).await;
        recorded.map_err(|err| ToolError::failed(format!("the transfer cannot be recorded: {err}")))?;
        let waiting = Waiting::new(Arc::new(job));
        self.spawn(waiting.job.clone(), None);
        Ok(waiting)
    }

    fn spawn(self: &Arc<Self>, job: Arc<Job>, work: Option<ResumedWork>) {
        self.running().insert(job.key(), job.clone());
        self.meters.add(&job.id, &job.meter);
        let transfers = self.clone();
        log::started(&job, work.is_some());
        tokio::spawn(async move {
            let outcome = transfers.drive(&job).await;
            log::ended(&job, &outcome);
            if let Some(work) = work {
                let failed = outcome.as_ref().err().map(|error| Refusal::from_wire(error.clone()));
                work.ended(failed.as_ref().map_or(Ok(()), Err));
            }
            transfers.meters.remove(&job.id);
            let mut running = transfers.running();
            let key = job.key();
            if running.get(&key).is_some_and(|known| Arc::ptr_eq(known, &job)) {
                running.remove(&key);
            }
            drop(running);
            job.outcome.send_replace(Some(outcome));
        });
    }

    /// Who may not use a node's `Read` and `Write` may not use them by way of a transfer.
    fn check_view(&self, call: &Call, endpoint: &Endpoint, tool: &str) -> Result<(), ToolError> {
        let Endpoint::Node { node, .. } = endpoint else { return Ok(()) };
        let name = format!("{node}__{tool}");
        if self.gate.registry().view(&call.scope).registered(&name) {
            return Ok(());
        }
        if node != LOCAL_NODE && self.nodes.find(node).is_none() {
            return Err(unknown_node(node));
        }
        if self.gate.registry().view(&ToolScope::default()).find(&name).is_none() {
            self.check_present(endpoint)?;
        }
        let text = format!("the transfer needs {tool} on the node \"{node}\", which is not available here");
        Err(ToolError::denied(text))
    }

    /// Waits for nodes that were connected just before the gateway restarted: they reconnect within seconds, and a caller
    /// that survived the restart asks again at once.
    async fn wait_for_returning(&self, call: &Call, endpoint: &Endpoint) {
        let Endpoint::Node { node, .. } = endpoint else { return };
        let is_returning = || {
            let Some(node) = self.nodes.find(node) else { return false };
            let seen = node.info().last_seen.unwrap_or(0);
            let recent = i64::try_from(SEEN_RECENTLY.as_millis()).unwrap_or(i64::MAX);
            node.live().is_none() && now_ms().saturating_sub(seen) < recent
        };
        while self.started.elapsed() < RETURN_LIMIT && !call.cancel.is_cancelled() && is_returning() {
            tokio::time::sleep(RETURN_PAUSE).await;
        }
    }

    /// A new transfer does not wait for a node that is away.
    fn check_present(&self, endpoint: &Endpoint) -> Result<(), ToolError> {
        let Endpoint::Node { node, .. } = endpoint else { return Ok(()) };
        if node == LOCAL_NODE {
            return Ok(());
        }
        match self.nodes.find(node) {
            Some(node) if node.live().is_some() => Ok(()),
            Some(node) => Err(node.absent()),
            None => Err(unknown_node(node)),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Key, Arc<Job>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an earlier start of the gateway wrote down, or why nothing can come of it.
fn resumed_errand(row: &TransferRow) -> Result<TransferSpec, String> {
    let caller = Caller {
        principal: row.principal.clone(),
        agent: row.agent.clone(),
        autonomy: row.autonomy.clone(),
        surface: "websocket".into(),
    };
    let standing = ResumeIdentity::from_text(row.standing.as_deref())?.of_token(&row.principal);
    let judged_as = standing.call(&caller).map_err(|error| error.message)?;
    Ok(TransferSpec {
        id: row.id.clone(),
        source: Endpoint::parse(&row.source)?,
        destination: Endpoint::parse(&row.destination)?,
        caller,
        judged_as: Arc::new(judged_as),
    })
}

fn token_is_over() -> WireError {
    WireError::new(ErrorCode::Cancelled, TOKEN_IS_OVER)
}

fn unknown_node(node: &str) -> ToolError {
    ToolError::failed(format!("unknown node \"{node}\"")).with_hint("`gantry nodes` lists them")
}

impl Job {
    fn new(errand: TransferSpec, resumed: Option<Resumed>) -> Job {
        Job {
            id: errand.id.clone(),
            errand: Mutex::new(Arc::new(errand)),
            resumed,
            meter: Arc::new(Meter::new()),
            cancel: CancellationToken::new(),
            outcome: watch::channel(None).0,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Returns when the token is no longer good that an earlier start of the gateway began it with, if nobody waits for it:
    /// then it is theirs, and ends when they give up.
    async fn token_over(&self) {
        if let Some(resumed) = &self.resumed {
            resumed.ending.cancelled().await;
            if self.waiting.load(Ordering::Acquire) == 0 {
                // Nobody is to begin to wait for it.
                return self.cancel.cancel();
            }
        }
        std::future::pending().await
    }

    /// As it is now.
    fn errand(&self) -> Arc<TransferSpec> {
        self.errand.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn key(&self) -> Key {
        let errand = self.errand();
        Key {
            principal: errand.caller.principal.clone(),
            agent: errand.caller.agent.clone(),
            source: errand.source.to_string(),
            destination: errand.destination.to_string(),
        }
    }

    fn rename(&self, old: &str, new: &str) {
        let renamed = |endpoint: &Endpoint| match endpoint {
            Endpoint::Node { node, path } if node == old => {
                Endpoint::Node { node: new.to_owned(), path: path.clone() }
            }
            other => other.clone(),
        };
        let mut errand = self.errand.lock().unwrap_or_else(PoisonError::into_inner);
        let (source, destination) = (renamed(&errand.source), renamed(&errand.destination));
        if (&source, &destination) != (&errand.source, &errand.destination) {
            let (id, caller) = (errand.id.clone(), errand.caller.clone());
            let judged_as = errand.judged_as.clone();
            *errand = Arc::new(TransferSpec { id, caller, judged_as, source, destination });
        }
    }

    /// How far it is, and which node it waits for.
    fn progress(&self, nodes: &Nodes) -> Progress {
        let errand = self.errand();
        let away = [&errand.source, &errand.destination].into_iter().find_map(|end| match end {
            Endpoint::Node { node, .. } => nodes.find(node).filter(|node| node.live().is_none()),
            Endpoint::Workspace { .. } => None,
        });
        let message = away.map_or("bytes".into(), |node| format!("waiting for {} to reconnect", node.id()));
        Progress { done: self.meter.done(), total: self.meter.total(), message }
    }
}

/// A caller that waits for a transfer. When the last one goes before the end, the transfer is called off.
struct Waiting {
    job: Arc<Job>,
}

impl Waiting {
    fn new(job: Arc<Job>) -> Waiting {
        job.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting { job }
    }

    async fn outcome(&self) -> Ended {
        let mut outcome = self.job.outcome.subscribe();
        let ended = outcome.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        ended.unwrap_or_else(|| Err(WireError::new(ErrorCode::Internal, "the transfer came to no end")))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.job.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.job.cancel.cancel();
        }
    }
}

/// What the native tools ask of the gateway's nodes.
pub struct GatewayNodes(pub Arc<Transfers>);

impl NodeServices for GatewayNodes {
    fn logs(&self, call: Arc<Call>, node: Option<String>, lines: usize) -> ToolFuture<'_, NodeLogs> {
        Box::pin(async move {
            let (node_id, logs) = self.0.nodes.logs(node.as_deref(), lines).await?;
            let lines = shown_to(&call.principal, logs.lines);
            Ok(NodeLogs { node_id, lines, truncated: logs.truncated })
        })
    }

    fn transfer(
        &self,
        call: Arc<Call>,
        source: Endpoint,
        destination: Endpoint,
    ) -> ToolFuture<'_, Transferred> {
        Box::pin(async move {
            self.0.wait_for_returning(&call, &source).await;
            self.0.wait_for_returning(&call, &destination).await;
            self.0.check_view(&call, &source, "Read")?;
            self.0.check_view(&call, &destination, "Write")?;
            let waiting = self.0.start(&call, source, destination).await?;
            let mut report = tokio::time::interval(REPORT_PAUSE);
            let outcome = {
                let mut outcome = std::pin::pin!(waiting.outcome());
                loop {
                    tokio::select! {
                        outcome = &mut outcome => break outcome,
                        () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
                        _ = report.tick() => {
                            if let Some(sink) = &call.progress {
                                sink.report(waiting.job.progress(&self.0.nodes));
                            }
                        }
                    }
                }
            };
            if let (Some(sink), Ok(_)) = (&call.progress, &outcome) {
                sink.report(waiting.job.progress(&self.0.nodes));
            }
            outcome.map_err(tool_error)
        })
    }
}

fn tool_error(error: WireError) -> ToolError {
    match error.code {
        ErrorCode::Denied | ErrorCode::ApprovalNeeded | ErrorCode::Unaudited => {
            ToolError::Refused(Refusal::from_wire(error))
        }
        ErrorCode::Cancelled => ToolError::Cancelled,
        ErrorCode::Unavailable => ToolError::Unavailable(Message::new(error.message)),
        ErrorCode::InvalidInput | ErrorCode::BadParams => ToolError::input(error.message),
        _ => ToolError::failed(error.message),
    }
}
