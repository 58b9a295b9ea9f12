//! [`run`] is the main loop of a node: it dials, serves until the connection is lost, waits, and dials again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_link::{Closed, HandshakeError, Link, LinkError, LinkOptions};
use gantry_net::{GatewayUrl, KnownKeys, Trust};
use gantry_process::Processes;
use gantry_protocol::{CloseReason, ErrorCode, check_node_id, method, raw};
use gantry_tool::Gate;
use gantry_transfer::TransferService;
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, Pace};
use crate::bulk::Bulk;
use crate::calls::Calls;
use crate::connection::{ConnectError, Dialled, dial_gateway, hello, tools};
use crate::ends;
use crate::gateway_key::GatewayKeys;
use crate::home::NodeHome;
use crate::joined::GatewayPlace;
use crate::log::NodeLog;
use crate::progress::Current;
use crate::service::NodeService;
use crate::state::{Phase, StateFile};
use crate::token::TokenSource;

pub const DEFAULT_MAX_CALLS: usize = 64;

/// The exit code of a node whose token the gateway rejects. A service manager must not restart it then.
pub const UNAUTHORIZED_EXIT: u8 = 5;

/// How long calls may run on when the node is stopped, and how long they may take to end after cancellation.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_secs(3);

/// How long the gateway may take to acknowledge the last results, and how long closing may take.
const ACKNOWLEDGE_LIMIT: Duration = Duration::from_millis(500);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

const TOOLS_LIMIT: Duration = Duration::from_secs(15);

const REPLACED: &str = "another process with this node's id and token has taken its place; this one waits until that one \
                        is gone (stop one of them, or give each an id of its own with `gantry nodes add`)";

#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub gateway: GatewayUrl,
    pub trust: Trust,
    /// Further addresses of the same gateway.
    pub others: Vec<GatewayPlace>,
    /// The keys by which the gateway is recognised. Empty if authorities prove who it is.
    pub keys: KnownKeys,
    pub token: TokenSource,
    /// Where relative paths of calls start.
    pub workspace: PathBuf,
    /// How many calls run at once; more wait.
    pub max_calls: usize,
    pub pace: Pace,
}

/// The parts of a node. Its gate holds the tools it offers, under their plain names.
pub struct Node {
    pub home: NodeHome,
    pub options: NodeOptions,
    pub gate: Arc<Gate>,
    /// The process engine of its tools. Background processes outlive the node.
    pub processes: Processes,
    pub log: NodeLog,
    /// Sends and receives files. Without it the node takes part in no transfers.
    pub transfers: Option<Arc<TransferService>>,
}

/// Why a connection ended.
enum Disconnect {
    /// The node was stopped.
    Stopped,
    /// The connection failed; retrying may help.
    Lost { reason: String, dismissed: Option<CloseReason>, lived: Duration },
    /// Retrying does not help until a person fixes something.
    Refused { reason: String },
    /// The token is not, or no longer, this node's.
    Unauthorized { reason: String },
    /// Another process uses the node's id and token. The gateway accepts this one again when the other is gone.
    Replaced,
}

/// Why a node ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    Stopped,
    /// The gateway rejects the token: it was revoked or renewed, or belongs to another node. The operator has
    /// to provide another one.
    Unauthorized {
        reason: String,
        rejoin: Rejoin,
    },
}

/// How a rejected node may join again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejoin {
    /// The gateway does not expect it again.
    Unexpected,
    /// Under the same id, with a new token.
    WithNewToken,
    /// Under this id, with the same token.
    UnderId(String),
}

impl Rejoin {
    fn after(dismissed: Option<&CloseReason>) -> Rejoin {
        match dismissed {
            Some(CloseReason::NodeTokenRenewed) => Rejoin::WithNewToken,
            Some(CloseReason::NodeRenamed { new_id }) if check_node_id(new_id).is_ok() => {
                Rejoin::UnderId(new_id.clone())
            }
            _ => Rejoin::Unexpected,
        }
    }
}

/// Runs until `stop` fires or the gateway rejects the node's token. `abort` ends the time that calls get to finish.
pub async fn run(node: Node, stop: CancellationToken, abort: CancellationToken) -> ExitReason {
    let Node { home, options, gate, processes, log, transfers } = node;
    let state =
        StateFile::new(home.clone(), options.gateway.to_string(), options.workspace.display().to_string());
    let service = Arc::new(NodeService {
        id: home.id().to_owned(),
        instance: uuid::Uuid::new_v4().to_string(),
        calls: Calls::new(options.max_calls),
        current: Current::default(),
        bulk: Bulk::new(transfers),
        keys: GatewayKeys::new(options.keys.clone(), home.clone()),
        options,
        gate,
        log: log.clone(),
    });
    let gateway = service.options.gateway.to_string();
    tracing::info!(
        pid = std::process::id(),
        gateway,
        version = env!("CARGO_PKG_VERSION"),
        workspace = %service.options.workspace.display(),
        "started"
    );
    let mut backoff = Backoff::new(service.options.pace);
    let mut last_dismissal: Option<CloseReason> = None;
    let over = loop {
        state.enter(Phase::Connecting);
        let (reason, wait) = match connection(&service, &processes, &state, &stop, &abort).await {
            Disconnect::Stopped => break ExitReason::Stopped,
            Disconnect::Unauthorized { reason } => {
                // The gateway's reason for closing says more than its answer to an unknown token.
                let reason = last_dismissal.as_ref().map_or(reason, ToString::to_string);
                state.failed(&reason);
                tracing::error!(reason, "unauthorized");
                let rejoin = Rejoin::after(last_dismissal.as_ref());
                break ExitReason::Unauthorized { reason, rejoin };
            }
            Disconnect::Lost { reason, dismissed, lived } => {
                last_dismissal = dismissed;
                (reason, backoff.after(lived))
            }
            Disconnect::Refused { reason } => (reason, backoff.slow()),
            Disconnect::Replaced => (REPLACED.to_owned(), backoff.slow()),
        };
        state.failed(&reason);
        let event = if reason == REPLACED { "replaced" } else { "disconnected" };
        tracing::warn!(reason, retryInMs = wait.as_millis() as u64, "{event}");
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => break ExitReason::Stopped,
        }
    };
    // No connection is left to answer remaining calls over.
    if !service.calls.is_idle() {
        service.calls.drain(Duration::ZERO, END_LIMIT).await;
    }
    processes.shutdown().await;
    state.enter(Phase::Stopped);
    tracing::info!("stopped");
    let _ = log.flush();
    over
}

/// Runs one connection from dialling to its end.
async fn connection(
    service: &Arc<NodeService>,
    processes: &Processes,
    state: &StateFile,
    stop: &CancellationToken,
    abort: &CancellationToken,
) -> Disconnect {
    let listed = service.calls.listed();
    let hello = hello(service.gate.registry(), &service.instance, listed.clone());
    let dialled = tokio::select! {
        dialled = dial_gateway(&service.id, &service.options, hello) => dialled,
        () = stop.cancelled() => return Disconnect::Stopped,
    };
    let Dialled { socket, welcome, key } = match dialled {
        Ok(dialled) => dialled,
        Err(err) => return failed(&err),
    };
    service.keys.seen(key);
    let ended = service.calls.keep_only(&listed, &welcome.wanted);
    if ended > 0 {
        tracing::info!(ended, "callsNotWanted");
    }
    let since = Instant::now();
    let options = LinkOptions { protocol: welcome.protocol, ..LinkOptions::default() };
    let (link, running) = Link::new(socket, Arc::clone(service), options);
    let running = tokio::spawn(running);
    let ended = tokio::select! {
        ended = serve(service, processes, state, &link, since) => ended,
        () = stop.cancelled() => {
            finish_and_close(service, &link, abort).await;
            Disconnect::Stopped
        }
    };
    service.current.set(None);
    link.close(CloseReason::Done);
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, running).await;
    ended
}

/// Offers the tools and waits until the connection ends. The link's own task serves requests.
async fn serve(
    service: &NodeService,
    processes: &Processes,
    state: &StateFile,
    link: &Link,
    since: Instant,
) -> Disconnect {
    let offer = raw(&tools(service.gate.registry()));
    match link.request_within(method::NODE_TOOLS, offer, TOOLS_LIMIT).await {
        Ok(_) => {}
        Err(LinkError::Remote(error)) if !error.retryable => {
            return Disconnect::Refused {
                reason: format!("the gateway does not take the node's tools: {error}"),
            };
        }
        Err(LinkError::Remote(error)) => {
            return Disconnect::Lost { reason: error.to_string(), dismissed: None, lived: since.elapsed() };
        }
        Err(LinkError::Closed(reason)) => return closed(&reason, since),
    }
    service.current.set(Some(link.clone()));
    state.enter(Phase::Connected);
    tracing::info!(gateway = %service.options.gateway, "connected");
    tokio::select! {
        reason = link.closed() => closed(&reason, since),
        never = ends::report(processes, link, service.gate.masker()) => match never {},
    }
}

fn failed(err: &ConnectError) -> Disconnect {
    let reason = err.to_string();
    match err {
        ConnectError::Handshake(HandshakeError::Refused(error)) if error.code == ErrorCode::Unauthorized => {
            Disconnect::Unauthorized { reason }
        }
        err if err.is_lasting() => Disconnect::Refused { reason },
        _ => Disconnect::Lost { reason, dismissed: None, lived: Duration::ZERO },
    }
}

/// A node that was replaced by another process with its token must not try to replace that one in turn.
fn closed(closed: &Closed, since: Instant) -> Disconnect {
    // After a dismissal the node asks once more: its token file may hold a new token by now.
    let dismissed = match &closed.reason {
        Some(CloseReason::Replaced) => return Disconnect::Replaced,
        Some(
            reason @ (CloseReason::NodeRenamed { .. }
            | CloseReason::NodeForgotten
            | CloseReason::NodeTokenRenewed
            | CloseReason::NodeTokenRevoked),
        ) => Some(reason.clone()),
        _ => None,
    };
    Disconnect::Lost { reason: closed.to_string(), dismissed, lived: since.elapsed() }
}

/// Lets calls finish and delivers their results before it closes the connection.
async fn finish_and_close(service: &NodeService, link: &Link, abort: &CancellationToken) {
    tracing::info!("stopping");
    let drain = service.calls.drain(DRAIN_LIMIT, END_LIMIT);
    tokio::select! {
        () = drain => {}
        () = abort.cancelled() => service.calls.drain(Duration::ZERO, END_LIMIT).await,
        _ = link.closed() => return,
    }
    service.calls.acknowledged(ACKNOWLEDGE_LIMIT).await;
    link.close(CloseReason::NodeStopping);
}
