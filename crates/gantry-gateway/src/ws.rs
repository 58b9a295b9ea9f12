//! `/ws` upgrades a connection to a WebSocket, performs the handshake, and serves a client or a node.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use gantry_domain::Identity;
use gantry_link::{ConnectRequest, Socket, accepted, receive_connect};
use gantry_protocol::{
    ConnectParams, ConnectResult, ErrorCode, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, Role, ServerInfo,
    WireError, is_valid_platform, is_valid_version,
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

use crate::auth::AuthError;
use crate::gateway::{Gateway, now_ms};
use crate::http::{not_allowed, problem};
use crate::page_claim::PageClaim;
use crate::server::Peer;

mod client;
mod node;

/// Timeout of the handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

type ServerSocket = Socket<TokioIo<Upgraded>>;

/// The GUID of RFC 6455, which is hashed with the client's key.
const WEBSOCKET_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Length of a handshake's key.
const KEY_BYTES: usize = 16;

pub(crate) async fn upgrade(
    State(gateway): State<Arc<Gateway>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    if request.method() != Method::GET {
        return not_allowed(request.method().clone(), request.uri().clone()).await;
    }
    let accept = accept_key(request.headers()).filter(|_| request.version() == Version::HTTP_11);
    let Some(accept) = accept else {
        return problem(StatusCode::BAD_REQUEST, "bad_frame", "this path needs a WebSocket upgrade", None);
    };
    if gateway.stopping.is_cancelled() {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the gateway is stopping", None);
    }
    let headers = request.headers().clone();
    let upgraded = hyper::upgrade::on(request);
    let Peer { address, sockets, permit } = peer;
    sockets.spawn(async move {
        let _permit = permit;
        if let Ok(upgraded) = upgraded.await {
            serve(gateway, accepted(TokioIo::new(upgraded)), headers, address).await;
        }
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
}

fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name, token: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
    };
    let sound = has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
        && has(header::SEC_WEBSOCKET_VERSION, "13");
    let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
    let key = keys.next().filter(|_| sound && keys.next().is_none())?;
    let nonce = base64::engine::general_purpose::STANDARD.decode(key.as_bytes()).ok()?;
    if nonce.len() != KEY_BYTES {
        return None;
    }
    let mut sha1 = sha1_smol::Sha1::new();
    sha1.update(key.as_bytes());
    sha1.update(WEBSOCKET_GUID.as_bytes());
    let accept = base64::engine::general_purpose::STANDARD.encode(sha1.digest().bytes());
    HeaderValue::from_str(&accept).ok()
}

async fn serve(gateway: Arc<Gateway>, mut socket: ServerSocket, headers: HeaderMap, from: IpAddr) {
    let Ok(request) = receive_connect(&mut socket, CONNECT_LIMIT).await else { return };
    let range = request.params.protocol;
    if range.common().is_none() {
        let message = format!(
            "this gateway supports protocol versions {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}, not {} to {}",
            range.min, range.max
        );
        return request.refuse(&mut socket, WireError::new(ErrorCode::UnsupportedProtocol, message)).await;
    }
    if !is_valid_platform(&request.params.platform) || !is_valid_version(&request.params.version) {
        let message = "\"platform\" and \"version\" must be 1 to 64 letters, digits, \".\", \"_\" or \"-\"; \
                       a version may contain \"+\"";
        return request.refuse(&mut socket, WireError::new(ErrorCode::BadParams, message)).await;
    }
    if request.params.role == Role::Node {
        drop(headers);
        return node::serve(gateway, socket, request, from).await;
    }
    let identified = authenticate(&gateway, &request.params, &headers, from).await;
    // Connections are many and long.
    drop(headers);
    match identified {
        Ok(identity) if request.params.role == Role::Channel && identity.is_operator() => {
            let message = "a bridge connects with a client token of its own, never with the operator's";
            request.refuse(&mut socket, WireError::new(ErrorCode::Forbidden, message)).await;
        }
        Ok(identity) => client::serve(gateway, socket, request, identity).await,
        Err(err) => request.refuse(&mut socket, unauthorized(&err)).await,
    }
}

/// A page session has no token: it shows a key in `connect`, and its cookie in the upgrade.
async fn authenticate(
    gateway: &Gateway,
    params: &ConnectParams,
    headers: &HeaderMap,
    from: IpAddr,
) -> Result<Identity, AuthError> {
    match &params.page_key {
        Some(key) if params.token.is_empty() => {
            gateway.auth.check_page(&PageClaim::of(headers, key), from).await
        }
        _ => gateway.auth.check(&params.token, from).await,
    }
}

fn unauthorized(err: &AuthError) -> WireError {
    let code = match err {
        AuthError::TooMany => ErrorCode::TooMany,
        AuthError::Database(_) => ErrorCode::Internal,
        _ => ErrorCode::Unauthorized,
    };
    WireError::new(code, err.to_string())
}

fn welcome(gateway: &Gateway, request: &ConnectRequest) -> ConnectResult {
    let server = ServerInfo {
        version: gateway.version.clone(),
        instance: gateway.nodes.instance.clone(),
        now: now_ms(),
    };
    let protocol = request.params.protocol.common().unwrap_or(PROTOCOL_VERSION);
    ConnectResult { protocol, server, wanted: Vec::new(), workspace: None }
}
