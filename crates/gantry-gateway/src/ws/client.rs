//! A client's connection: calls, listings, and administration for the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gantry_domain::{Identity, MethodContext};
use gantry_link::{Event, Link, LinkOptions, Request, ServeFuture, Service};
use gantry_protocol::{
    ApprovalAnswer, ApprovalAsk, CallParams, CallProgress, CloseReason, Empty, ErrorCode, Missed, NodeInfo,
    NodeList, RawJson, ResultPage, ResultParams, Role, StreamFrame, ToolList, ToolsGetParams,
    ToolsListParams, WireError, event, method, raw,
};
use gantry_tool::{Approval, Approver, Call, Consent, Progress, ProgressSink, Refusal, Surface, Toolset};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{ConnectRequest, Gateway, ServerSocket, welcome};
use crate::callers::Wanted;
use crate::gateway::now_ms;
use crate::process_exits::HEARD_AFTER;

/// Minimum time between two progress events of a call.
const PROGRESS_PAUSE: Duration = Duration::from_millis(100);

/// How often the states of nodes are compared while somebody watches them.
const NODE_STATES_PAUSE: Duration = Duration::from_secs(1);

/// How often an open page counts as a use of its session.
const PAGE_USE_PAUSE: Duration = Duration::from_secs(24 * 3600);

struct Client {
    gateway: Arc<Gateway>,
    identity: Identity,
    /// A bridge of a chat channel. It may call the methods of bridges and nothing else.
    is_bridge: bool,
    /// Whether the client subscribed to changes of the tools.
    follows: watch::Sender<bool>,
    /// Whether the client subscribed to the state of nodes.
    watches_nodes: watch::Sender<bool>,
    /// The unique number of this connection.
    connection: u64,
}

pub(super) async fn serve(
    gateway: Arc<Gateway>,
    mut socket: ServerSocket,
    request: ConnectRequest,
    identity: Identity,
) {
    let is_bridge = request.params.role == Role::Channel;
    let mut result = welcome(&gateway, &request);
    result.workspace = identity.is_operator().then(|| gateway.workspace.to_string_lossy().into_owned());
    if request.accept(&mut socket, &result).await.is_err() {
        return;
    }
    let (follows, following) = watch::channel(false);
    let (watches_nodes, watching) = watch::channel(false);
    let client = Arc::new(Client {
        is_bridge,
        gateway: gateway.clone(),
        identity: identity.clone(),
        follows,
        watches_nodes,
        connection: gateway.next_connection(),
    });
    let account = Some(gateway.quota.of(&identity));
    let options = LinkOptions { protocol: result.protocol, account, ..LinkOptions::default() };
    let (link, running) = Link::new(socket, client, options);
    let number = gateway.add_link(&link, &identity);
    // A separate task, so that rare events are not polled with every message.
    let events = AbortOnDropHandle::new(tokio::spawn(send_events(
        gateway.clone(),
        link,
        identity,
        following,
        watching,
    )));
    running.await;
    drop(events);
    gateway.remove_link(number);
}

/// Sends events to the client, closes the connection when the token expires, and cancels its calls. Never returns.
async fn send_events(
    gateway: Arc<Gateway>,
    link: Link,
    identity: Identity,
    following: watch::Receiver<bool>,
    watching: watch::Receiver<bool>,
) {
    let exits = report_process_exits(&gateway, &link, &identity);
    let changes = report_tool_changes(&gateway, &link, following);
    let nodes = report_node_states(&gateway, &link, watching);
    let expiring = async {
        identity.expired().await;
        link.close(CloseReason::TokenExpired);
        std::future::pending::<()>().await
    };
    // A page that stays open is in use.
    let in_use = async {
        if let Identity::Page(session) = &identity {
            loop {
                tokio::time::sleep(PAGE_USE_PAUSE).await;
                let _ = gateway.database.use_page_session(&session.id, now_ms()).await;
            }
        }
        std::future::pending::<()>().await
    };
    // When the gateway or the token ends, running calls are cancelled and new ones rejected.
    let ending = async {
        gateway.auth.ending_of_call(&identity).cancelled_owned().await;
        link.cancel_requests();
        std::future::pending::<()>().await
    };
    tokio::join!(exits, changes, nodes, expiring, in_use, ending);
}

/// Sends exits of background processes to an operator. Never returns.
async fn report_process_exits(gateway: &Gateway, link: &Link, identity: &Identity) {
    if !identity.is_operator() {
        return std::future::pending().await;
    }
    let (unheard, mut exits) = gateway.exits.listen();
    for data in &unheard {
        let _ = link.event(event::PROCESS_ENDED, raw(data)).await;
    }
    let staying = async {
        tokio::time::sleep(HEARD_AFTER).await;
        let _staying = gateway.exits.stay();
        std::future::pending::<()>().await
    };
    let sending = async {
        loop {
            match exits.recv().await {
                Ok(data) => {
                    let _ = link.event(event::PROCESS_ENDED, raw(&data)).await;
                }
                Err(RecvError::Lagged(missed)) => {
                    let _ = link.event(event::MISSED, raw(&Missed { events: missed })).await;
                }
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    };
    tokio::join!(staying, sending).1
}

/// Notifies a subscribed client that tools have changed. The event has no details, because the client may not see all
/// tools. Never returns.
async fn report_tool_changes(gateway: &Gateway, link: &Link, mut following: watch::Receiver<bool>) {
    let mut changes = gateway.gate.registry().changes();
    if following.wait_for(|follows| *follows).await.is_err() {
        return std::future::pending().await;
    }
    while changes.changed().await.is_ok() {
        let _ = link.event(event::TOOLS_CHANGED, raw(&Empty {})).await;
        // Many nodes may reconnect at once, so events are throttled. The last change is always sent.
        tokio::time::sleep(PROGRESS_PAUSE).await;
    }
    std::future::pending().await
}

/// Sends the nodes to a subscribed client whenever their state has changed. Never returns.
async fn report_node_states(gateway: &Gateway, link: &Link, mut watching: watch::Receiver<bool>) {
    if watching.wait_for(|watches| *watches).await.is_err() {
        return std::future::pending().await;
    }
    let mut changes = gateway.gate.registry().changes();
    let mut sent = Vec::new();
    loop {
        let nodes = gateway.node_infos();
        let state = node_state(&nodes);
        if state != sent {
            let _ = link.event(event::NODES_CHANGED, raw(&NodeList { nodes })).await;
            sent = state;
        }
        tokio::time::sleep(PROGRESS_PAUSE).await;
        // Calls begin and end without a change of the registry.
        let _ = tokio::time::timeout(NODE_STATES_PAUSE, changes.changed()).await;
    }
}

/// What is compared: the gateway's own machine was always seen just now, and latencies vary a little.
fn node_state(nodes: &[NodeInfo]) -> Vec<NodeInfo> {
    let rounded =
        |latency: f64| if latency < 10.0 { latency.round() } else { (latency / 10.0).round() * 10.0 };
    let known = |node: &NodeInfo| NodeInfo {
        last_seen: None,
        latency_ms: node.latency_ms.map(rounded),
        ..node.clone()
    };
    nodes.iter().map(known).collect()
}

impl Service for Client {
    fn request(self: Arc<Self>, link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { self.answer(link, request).await })
    }

    fn event(&self, _link: &Link, _event: Event) {}

    fn stream(&self, link: &Link, frame: StreamFrame) {
        link.try_stream(StreamFrame::abort(frame.stream(), "clients cannot open streams"));
    }
}

impl Client {
    async fn answer(&self, link: Link, request: Request) -> Result<RawJson, WireError> {
        if self.is_bridge && !request.method.starts_with("channel.") {
            let message = format!("a connection with the role channel may not call {}", request.method);
            return Err(WireError::new(ErrorCode::Forbidden, message));
        }
        match request.method.as_str() {
            method::TOOL_CALL => self.tool_call(link, request).await,
            // Rare requests have large futures, so they are boxed separately from calls.
            _ => Box::pin(self.answer_other(link, request)).await,
        }
    }

    async fn answer_other(&self, link: Link, request: Request) -> Result<RawJson, WireError> {
        let context = MethodContext { identity: self.identity.clone(), link, connection: self.connection };
        let request = match self.gateway.methods.answer(context, request) {
            Ok(answering) => return answering.await,
            Err(request) => request,
        };
        match request.method.as_str() {
            method::TOOLS_LIST => self.list(&request),
            method::TOOLS_GET => self.describe(&request),
            method::RESULTS_READ => self.read_result(&request).await,
            method::NODES_LISTEN => {
                request.no_params()?;
                self.watches_nodes.send_replace(true);
                Ok(raw(&NodeList { nodes: self.gateway.node_infos() }))
            }
            method::CONNECT => {
                Err(WireError::new(ErrorCode::NotConnected, "this connection has already sent connect"))
            }
            _ if self.identity.is_operator() => match self.gateway.administer(&request).await {
                Some(answer) => answer,
                None => Err(request.unknown()),
            },
            method::NODES_LIST => {
                request.no_params()?;
                Ok(raw(&NodeList { nodes: self.gateway.node_infos() }))
            }
            name if name.starts_with("nodes.") || name.starts_with("tokens.") => {
                Err(WireError::new(ErrorCode::Forbidden, format!("{name} requires the operator's token")))
            }
            _ => Err(request.unknown()),
        }
    }

    async fn tool_call(&self, link: Link, request: Request) -> Result<RawJson, WireError> {
        let mut params: CallParams = request.parse()?;
        let Request { id, params: text, deadline, cancel, .. } = request;
        // The input may be large and the call long, so only one copy of it is kept.
        drop(text);
        let wanted = Wanted {
            agent: params.agent.as_deref(),
            workspace: params.workspace.as_deref(),
            mcp: params.mcp.as_deref(),
        };
        let mut call = self.call(cancel, wanted)?;
        call.approver = params.asks.then(|| approver(link.clone(), id));
        call.deadline = deadline;
        call.progress = Some(progress(link, id));
        let input = match params.input.take() {
            Some(input) => serde_json::from_str(input.get()).map_err(|err| {
                WireError::new(ErrorCode::InvalidInput, format!("the input is not valid JSON: {err}"))
            })?,
            None => Value::Object(serde_json::Map::new()),
        };
        let outcome = self.gateway.run(call, &params.tool, input).await;
        outcome.into_wire().map(|result| raw(&result))
    }

    fn call(&self, cancel: CancellationToken, wanted: Wanted<'_>) -> Result<Call, WireError> {
        let surface = if wanted.mcp.is_some() { Surface::Mcp } else { Surface::Websocket };
        let call = self.gateway.call_until(cancel, &self.identity, &wanted, surface);
        call.map_err(|refusal: Refusal| refusal.to_wire())
    }

    fn list(&self, request: &Request) -> Result<RawJson, WireError> {
        let params: ToolsListParams = request.parse()?;
        let wanted =
            Wanted { agent: params.agent.as_deref(), mcp: params.mcp.as_deref(), ..Wanted::default() };
        let call = self.call(request.cancel.clone(), wanted)?;
        if params.follow {
            self.follows.send_replace(true);
        }
        let view = self.gateway.gate.registry().view(&call.scope);
        let toolset = params.toolset.as_deref().map(|name| {
            let unknown = || WireError::new(ErrorCode::BadParams, format!("unknown toolset {name:?}"));
            Toolset::from_name(name).ok_or_else(unknown)
        });
        let listed = params.mcp.is_some().then(|| call.scope.is_listed());
        Ok(raw(&ToolList { tools: view.list(toolset.transpose()?), listed }))
    }

    fn describe(&self, request: &Request) -> Result<RawJson, WireError> {
        let params: ToolsGetParams = request.parse()?;
        let wanted =
            Wanted { agent: params.agent.as_deref(), mcp: params.mcp.as_deref(), ..Wanted::default() };
        let call = self.call(request.cancel.clone(), wanted)?;
        let view = self.gateway.gate.registry().view(&call.scope);
        let tool = view.describe(&params.name).ok_or_else(|| view.unknown(&params.name).to_wire())?;
        Ok(raw(&tool))
    }

    async fn read_result(&self, request: &Request) -> Result<RawJson, WireError> {
        let params: ResultParams = request.parse()?;
        let reader = self.call(request.cancel.clone(), Wanted::default())?.principal.to_string();
        let results = self.gateway.results.clone();
        let page = tokio::task::spawn_blocking(move || {
            results.read(&reader, &params.handle, params.offset, params.limit, params.grep.as_deref())
        });
        let page = page.await.map_err(|err| WireError::new(ErrorCode::Internal, err.to_string()))?;
        let page = page.map_err(|err| WireError::new(ErrorCode::NotFound, err.to_string()))?;
        Ok(raw(&ResultPage {
            text: page.text,
            total_characters: page.total_characters,
            next_offset: page.next_offset,
            matches: page.matches,
        }))
    }
}

/// Asks the client to approve its call.
fn approver(link: Link, request: u64) -> Approver {
    Approver::new(move |approval| {
        let (link, call) = (link.clone(), request.to_string());
        async move {
            let Approval { tool, rule, reason, input, fingerprint, action, .. } = approval;
            let action = Some(action);
            let asked = ApprovalAsk { call, tool, rule, reason, input, fingerprint, action };
            let answer = link.request(method::APPROVAL_ASK, raw(&asked), None).await;
            let answer =
                answer.ok().and_then(|answer| serde_json::from_str::<ApprovalAnswer>(answer.get()).ok());
            match answer {
                Some(ApprovalAnswer { allow: true, .. }) => Consent::Allowed,
                Some(ApprovalAnswer { reason: Some(reason), .. }) => Consent::Denied(reason),
                _ => Consent::Denied("the client did not answer the approval question".into()),
            }
        }
    })
}

/// Forwards progress, throttled. Only intermediate states are dropped.
fn progress(link: Link, request: u64) -> ProgressSink {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    ProgressSink::new(move |Progress { done, total, message }| {
        let now = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let pause = u64::try_from(PROGRESS_PAUSE.as_millis()).unwrap_or(u64::MAX);
        let due = next.load(Ordering::Relaxed);
        let last = total == Some(done);
        if (now >= due || last)
            && next.compare_exchange(due, now + pause, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let data = CallProgress { call: request.to_string(), done, total, message };
            link.try_event(event::CALL_PROGRESS, raw(&data));
        }
    })
}
