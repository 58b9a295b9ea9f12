//! The life of a node: dial, serve, lose the connection, wait, dial again, until it is stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_link::{Closed, HandshakeError, Link, LinkError, LinkOptions};
use gantry_net::{GatewayUrl, Trust};
use gantry_process::Processes;
use gantry_protocol::{CloseReason, ErrorCode, check_node_id, method, raw};
use gantry_tool::Gate;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, Pace};
use crate::bulk::{Bulk, StreamSink};
use crate::calls::Calls;
use crate::connection::{ConnectError, Dialled, dial_gateway, hello, tools};
use crate::ends;
use crate::home::NodeHome;
use crate::log::{NodeLog, bounded};
use crate::progress::Current;
use crate::service::NodeService;
use crate::state::{Keeper, Phase};
use crate::token::TokenSource;

pub const DEFAULT_MAX_CALLS: usize = 64;

/// How long calls may go on when the node is stopped, and how long they may take to end when they are told to.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_secs(3);

/// How long the gateway may take to say that the last results have arrived, and to hear the goodbye.
const ACKNOWLEDGE_LIMIT: Duration = Duration::from_millis(500);
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);

const TOOLS_LIMIT: Duration = Duration::from_secs(15);

const REPLACED: &str = "another process with this node's id and token has taken its place; this one waits until that one \
                        is gone (stop one of them, or give each an id of its own with `gantry nodes add`)";

#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub gateway: GatewayUrl,
    pub trust: Trust,
    pub token: TokenSource,
    /// Where relative paths of calls start.
    pub workspace: PathBuf,
    /// Calls that run at once; more wait.
    pub max_calls: usize,
    pub pace: Pace,
}

/// What a node is made of. Its gate has the tools it offers, under their bare names.
pub struct Node {
    pub home: NodeHome,
    pub options: NodeOptions,
    pub gate: Arc<Gate>,
    /// The engine of its tools, whose background processes outlive the node.
    pub processes: Processes,
    pub log: NodeLog,
    pub streams: Arc<dyn StreamSink>,
}

/// Why a connection is over.
enum Ended {
    /// The node is to stop.
    Stopped,
    /// Trying again may help.
    Lost { reason: String, dismissed: Option<CloseReason>, lived: Duration },
    /// Trying again will not help before somebody does something.
    Refused { reason: String },
    /// The token is not this node's, or no longer.
    Unauthorized { reason: String },
    /// Another process has the node's id and token; the gateway lets this one in again when that one is gone.
    Replaced,
}

/// Why a node is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    Stopped,
    /// The gateway does not take its token: revoked, renewed, or of another node. Somebody has to bring another one.
    Unauthorized {
        reason: String,
        comeback: Comeback,
    },
}

/// How a node that was sent away may come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comeback {
    /// The gateway does not expect it.
    Unexpected,
    /// As what it was; there is a new token for it.
    WithNewToken,
    /// With the token it has.
    UnderId(String),
}

impl Comeback {
    fn after(dismissed: Option<&CloseReason>) -> Comeback {
        match dismissed {
            Some(CloseReason::NodeTokenRenewed) => Comeback::WithNewToken,
            Some(CloseReason::NodeRenamed { new_id }) if check_node_id(new_id).is_ok() => {
                Comeback::UnderId(new_id.clone())
            }
            _ => Comeback::Unexpected,
        }
    }
}

/// Runs until `stop` fires, or the gateway does not know the node's token. `abort` cuts the time short that calls have to finish.
pub async fn run(node: Node, stop: CancellationToken, abort: CancellationToken) -> Over {
    let Node { home, options, gate, processes, log, streams } = node;
    let state = Keeper::new(
        home.clone(),
        log.clone(),
        options.gateway.to_string(),
        options.workspace.display().to_string(),
    );
    let service = Arc::new(NodeService {
        id: home.id().to_owned(),
        instance: uuid::Uuid::new_v4().to_string(),
        calls: Calls::new(options.max_calls),
        current: Current::default(),
        bulk: Bulk::new(streams),
        options,
        gate,
        log: log.clone(),
    });
    let gateway = service.options.gateway.to_string();
    log.info(
        "started",
        json!({"pid": std::process::id(), "gateway": gateway, "version": env!("CARGO_PKG_VERSION"),
        "workspace": service.options.workspace}),
    );
    let mut backoff = Backoff::new(service.options.pace);
    let mut last_dismissal: Option<CloseReason> = None;
    let over = loop {
        state.enter(Phase::Connecting);
        let (event, reason, wait) = match connection(&service, &processes, &state, &stop, &abort).await {
            Ended::Stopped => break Over::Stopped,
            Ended::Unauthorized { reason } => {
                // The gateway's reason for closing says more than its answer to an unknown token.
                let reason = last_dismissal.as_ref().map_or(reason, ToString::to_string);
                state.failed(&reason);
                log.error("unauthorized", json!({"reason": bounded(&reason)}));
                let comeback = Comeback::after(last_dismissal.as_ref());
                break Over::Unauthorized { reason, comeback };
            }
            Ended::Lost { reason, dismissed, lived } => {
                last_dismissal = dismissed;
                ("disconnected", reason, backoff.after(lived))
            }
            Ended::Refused { reason } => ("disconnected", reason, backoff.slow()),
            Ended::Replaced => ("replaced", REPLACED.to_owned(), backoff.slow()),
        };
        state.failed(&reason);
        log.warning(event, json!({"reason": bounded(&reason), "retryInMs": wait.as_millis() as u64}));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => break Over::Stopped,
        }
    };
    // Nobody can be answered any more.
    if !service.calls.is_idle() {
        service.calls.drain(Duration::ZERO, END_LIMIT).await;
    }
    processes.shutdown().await;
    state.enter(Phase::Stopped);
    log.info("stopped", json!({}));
    let _ = log.flush();
    over
}

/// One connection from beginning to end.
async fn connection(
    service: &Arc<NodeService>,
    processes: &Processes,
    state: &Keeper,
    stop: &CancellationToken,
    abort: &CancellationToken,
) -> Ended {
    let listed = service.calls.listed();
    let hello = hello(service.gate.registry(), &service.instance, listed.clone());
    let dialled = tokio::select! {
        dialled = dial_gateway(&service.id, &service.options, hello) => dialled,
        () = stop.cancelled() => return Ended::Stopped,
    };
    let Dialled { socket, welcome } = match dialled {
        Ok(dialled) => dialled,
        Err(err) => return failed(&err),
    };
    let ended = service.calls.keep_only(&listed, &welcome.wanted);
    if ended > 0 {
        service.log.info("callsNotWanted", json!({ "ended": ended }));
    }
    let since = Instant::now();
    let options = LinkOptions { protocol: welcome.protocol, ..LinkOptions::default() };
    let (link, running) = Link::new(socket, Arc::clone(service), options);
    let running = tokio::spawn(running);
    let ended = tokio::select! {
        ended = serve(service, processes, state, &link, since) => ended,
        () = stop.cancelled() => {
            say_goodbye(service, &link, abort).await;
            Ended::Stopped
        }
    };
    service.current.set(None);
    link.close(CloseReason::Done);
    let _ = tokio::time::timeout(GOODBYE_LIMIT, running).await;
    ended
}

/// Offers the tools, then waits for the end; the link's own task does the rest.
async fn serve(
    service: &NodeService,
    processes: &Processes,
    state: &Keeper,
    link: &Link,
    since: Instant,
) -> Ended {
    let offer = raw(&tools(service.gate.registry()));
    match link.request_within(method::NODE_TOOLS, offer, TOOLS_LIMIT).await {
        Ok(_) => {}
        Err(LinkError::Remote(error)) if !error.retryable => {
            return Ended::Refused { reason: format!("the gateway does not take the node's tools: {error}") };
        }
        Err(LinkError::Remote(error)) => {
            return Ended::Lost { reason: error.to_string(), dismissed: None, lived: since.elapsed() };
        }
        Err(LinkError::Closed(reason)) => return closed(&reason, since),
    }
    service.current.set(Some(link.clone()));
    state.enter(Phase::Connected);
    service.log.info("connected", json!({"gateway": service.options.gateway.to_string()}));
    tokio::select! {
        reason = link.closed() => closed(&reason, since),
        never = ends::tell(processes, link, &service.log) => match never {},
    }
}

fn failed(err: &ConnectError) -> Ended {
    let reason = err.to_string();
    match err {
        ConnectError::Handshake(HandshakeError::Refused(error)) if error.code == ErrorCode::Unauthorized => {
            Ended::Unauthorized { reason }
        }
        err if err.is_lasting() => Ended::Refused { reason },
        _ => Ended::Lost { reason, dismissed: None, lived: Duration::ZERO },
    }
}

/// A node that was replaced by another with its token must not fight for its place.
fn closed(closed: &Closed, since: Instant) -> Ended {
    // After a dismissal the node asks once more: its token's file may hold a new one by now.
    let dismissed = match &closed.reason {
        Some(CloseReason::Replaced) => return Ended::Replaced,
        Some(
            reason @ (CloseReason::NodeRenamed { .. }
            | CloseReason::NodeForgotten
            | CloseReason::NodeTokenRenewed
            | CloseReason::NodeTokenRevoked),
        ) => Some(reason.clone()),
        _ => None,
    };
    Ended::Lost { reason: closed.to_string(), dismissed, lived: since.elapsed() }
}

/// Calls may finish, and their results are delivered, before the connection is closed with a reason.
async fn say_goodbye(service: &NodeService, link: &Link, abort: &CancellationToken) {
    service.log.info("stopping", json!({}));
    let drain = service.calls.drain(DRAIN_LIMIT, END_LIMIT);
    tokio::select! {
        () = drain => {}
        () = abort.cancelled() => service.calls.drain(Duration::ZERO, END_LIMIT).await,
        _ = link.closed() => return,
    }
    service.calls.acknowledged(ACKNOWLEDGE_LIMIT).await;
    link.close(CloseReason::NodeStopping);
}
