//! A node's connection: its tools, its answers to calls, process exits and progress.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_link::{Event, Link, LinkOptions, Request, ServeFuture, Service};
use gantry_protocol::{
    CallProgress, CloseReason, Empty, ErrorCode, NodeHello, NodeTools, ProcessEnd, ProcessEndTaken, RawJson,
    StreamFrame, StreamKind, WireError, event, method, raw,
};
use gantry_store::{DatabaseError, TokenCheck};

use super::{ConnectRequest, Gateway, ServerSocket, unauthorized, welcome};
use crate::auth::AuthError;
use crate::nodes::{Joining, Live, Node};
use crate::remote_tools::check_hello;

/// How long a node may take to send its tools.
const TOOLS_LIMIT: Duration = Duration::from_secs(10);

struct NodeLink {
    gateway: Arc<Gateway>,
    node: Arc<Node>,
    hello: NodeHello,
    platform: String,
    version: String,
    joined: OnceLock<()>,
}

pub(super) async fn serve(
    gateway: Arc<Gateway>,
    mut socket: ServerSocket,
    request: ConnectRequest,
    from: IpAddr,
) {
    let (node, hello) = match admit(&gateway, &request, from).await {
        Ok(admitted) => admitted,
        Err(error) => return request.refuse(&mut socket, error).await,
    };
    let mut result = welcome(&gateway, &request);
    result.wanted = gateway.nodes.wanted(node.id(), &hello.calls);
    let (platform, version) = (request.params.platform.clone(), request.params.version.clone());
    if request.accept(&mut socket, &result).await.is_err() {
        return;
    }
    let bulk = hello.bulk;
    let instance = hello.instance.clone();
    let service = NodeLink {
        gateway: gateway.clone(),
        node: node.clone(),
        hello,
        platform,
        version,
        joined: OnceLock::new(),
    };
    let service = Arc::new(service);
    let account = Some(gateway.quota.of_node(node.id()));
    let options = LinkOptions { protocol: result.protocol, account, ..LinkOptions::default() };
    let (link, running) = Link::new(socket, service.clone(), options);
    let dismissed = async {
        link.close(node.dismissed().await);
        std::future::pending::<()>().await
    };
    if bulk {
        if let Err(reason) = gateway.nodes.attach_bulk(&node, &instance, link.clone()) {
            link.close(reason);
        }
        tokio::select! {
            () = running => {}
            () = dismissed => {}
        }
        return gateway.nodes.detach_bulk(&node, &link);
    }
    let tools_timeout = async {
        tokio::time::sleep(TOOLS_LIMIT).await;
        if service.joined.get().is_none() {
            link.close(CloseReason::ToolsMissing);
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        () = running => {}
        () = tools_timeout => {}
        () = dismissed => {}
    }
    gateway.nodes.detach(&node, &link).await;
}

/// Authenticates a node and checks its introduction.
async fn admit(
    gateway: &Gateway,
    request: &ConnectRequest,
    from: IpAddr,
) -> Result<(Arc<Node>, NodeHello), WireError> {
    let params = &request.params;
    // The node is looked up before its token, so that a later change of the node closes this connection too.
    let node = gateway.nodes.find(&params.id);
    let check = gateway.database.check_node_token(&params.id, &params.token).await;
    let refused = match check {
        Ok(TokenCheck::Ok) => None,
        Ok(TokenCheck::Unknown) => Some(AuthError::Wrong),
        Ok(TokenCheck::Revoked) => Some(AuthError::Revoked),
        Err(err) => Some(AuthError::Database(err)),
    };
    match refused {
        None => {}
        Some(err @ AuthError::Database(_)) => return Err(unauthorized(&err)),
        Some(refused) => return Err(unauthorized(&gateway.auth.count_failure(from, refused))),
    }
    let bad = |message: String| WireError::new(ErrorCode::BadParams, message);
    let hello = params.node.clone().ok_or_else(|| bad("a node must send \"node\" in connect".into()))?;
    check_hello(&hello).map_err(bad)?;
    let node = node.ok_or_else(|| unauthorized(&AuthError::Wrong))?;
    if hello.bulk && node.live().is_none_or(|live| live.instance != hello.instance) {
        let message = "a bulk connection needs a main connection of the same process";
        return Err(WireError::new(ErrorCode::Conflict, message));
    }
    if !hello.bulk && node.is_replaced(&hello.instance) {
        let message = "a newer process with this node's id and token is connected";
        return Err(WireError::new(ErrorCode::Conflict, message));
    }
    Ok((node, hello))
}

impl Service for NodeLink {
    fn request(self: Arc<Self>, link: Link, request: Request) -> ServeFuture {
        Box::pin(async move { self.answer(link, request).await })
    }

    fn event(&self, _link: &Link, received: Event) {
        if received.name == event::CALL_PROGRESS
            && let Some(progress) = received.parse::<CallProgress>()
        {
            self.node.report(progress);
        }
    }

    fn stream(&self, link: &Link, frame: StreamFrame) {
        match self.gateway.nodes.transfers() {
            Some(transfers) => transfers.relay_frame(link, frame),
            // An abort is never answered with an abort, or both ends would loop forever.
            None if frame.kind() == StreamKind::Abort => {}
            None => {
                link.try_stream(StreamFrame::abort(frame.stream(), "this gateway has no transfers"));
            }
        }
    }
}

impl NodeLink {
    async fn answer(&self, link: Link, request: Request) -> Result<RawJson, WireError> {
        if self.hello.bulk {
            return Err(WireError::new(ErrorCode::Forbidden, "a bulk connection is for streams only"));
        }
        match request.method.as_str() {
            method::NODE_TOOLS => self.join(link, request.parse()?).await,
            method::PROCESS_ENDED => self.process_ended(request.parse()?).await,
            method::CONNECTION_ASK => {
                let gate = &self.gateway.gate;
                let asking = self.node.ask_about_connection(&link, gate.masker(), request.parse()?);
                tokio::select! {
                    answer = Box::pin(asking) => Ok(raw(&answer?)),
                    () = request.cancel.cancelled() => {
                        Err(WireError::new(ErrorCode::Cancelled, "the question was withdrawn"))
                    }
                }
            }
            method::CONNECT => {
                Err(WireError::new(ErrorCode::NotConnected, "this connection has already sent connect"))
            }
            method::TOOL_CALL | method::TOOLS_LIST | method::TOOLS_GET | method::RESULTS_READ => {
                Err(WireError::new(ErrorCode::Forbidden, "this request is for clients, not for nodes"))
            }
            name if name.starts_with("nodes.") || name.starts_with("tokens.") => Err(WireError::new(
                ErrorCode::Forbidden,
                "this request requires the operator's token, not a node's",
            )),
            _ => Err(request.unknown()),
        }
    }

    async fn join(&self, link: Link, tools: NodeTools) -> Result<RawJson, WireError> {
        let joining = Joining {
            live: Live { link, instance: self.hello.instance.clone() },
            hello: self.hello.clone(),
            tools,
            platform: self.platform.clone(),
            version: self.version.clone(),
        };
        if self.joined.get().is_some() {
            return Err(WireError::new(ErrorCode::Conflict, "this connection has already sent its tools"));
        }
        let nodes = &self.gateway.nodes;
        nodes.attach(&self.node, joining).await.map_err(|err| WireError::new(ErrorCode::BadParams, err))?;
        let _ = self.joined.set(());
        Ok(raw(&Empty {}))
    }

    /// Records a process exit. The answer is sent once it is on disk, because the node keeps the exit until then.
    async fn process_ended(&self, end: ProcessEnd) -> Result<RawJson, WireError> {
        let new = self.gateway.process_ended(self.node.id(), &end).await;
        let new = new.map_err(|err| match err {
            // The same report would be rejected again, so the node can drop it.
            DatabaseError::Refused(message) => WireError::new(ErrorCode::BadParams, message),
            err => WireError::new(ErrorCode::Unavailable, err.to_string()),
        })?;
        Ok(raw(&ProcessEndTaken { new }))
    }
}
