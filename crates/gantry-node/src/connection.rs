//! Opens a connection to the gateway: dials, upgrades to WebSocket, sends `connect`.

use std::time::Duration;

use gantry_link::{HandshakeError, Socket, connect, upgrade};
use gantry_net::{DialError, KeyPin, Stream, dial};
use gantry_protocol::{
    ConnectParams, ConnectResult, ErrorCode, NodeHello, NodeTools, ProtocolRange, Role, current_platform,
};
use gantry_tool::{Registry, Tool};
use tokio::task::JoinSet;

use crate::joined::GatewayPlace;
use crate::run::NodeOptions;
use crate::token::TokenError;

/// The timeout of the upgrade, and of the answer to `connect`. Dialling has its own.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);

/// How long an address may try before the next one is tried as well.
const HEAD_START: Duration = Duration::from_millis(250);

/// A socket after the gateway accepted `connect`.
pub(crate) struct Dialled {
    pub(crate) socket: Socket<Stream>,
    pub(crate) welcome: ConnectResult,
    /// The key that the gateway proved to hold.
    pub(crate) key: Option<KeyPin>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the gateway did not answer within {HANDSHAKE_LIMIT:?}")]
    TimedOut,
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl ConnectError {
    /// Whether a retry cannot help before a person fixes something.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            ConnectError::Token(_) | ConnectError::Dial(DialError::OtherKey { .. }) => true,
            ConnectError::Handshake(HandshakeError::Refused(error)) => {
                !matches!(error.code, ErrorCode::Unavailable | ErrorCode::TooMany | ErrorCode::Internal)
            }
            _ => false,
        }
    }
}

pub(crate) async fn dial_gateway(
    id: &str,
    options: &NodeOptions,
    hello: NodeHello,
) -> Result<Dialled, ConnectError> {
    let token = options.token.read()?;
    let (stream, address) = dial_any(options).await?;
    let key = stream.peer_key();
    let upgrading = upgrade(stream, &address);
    let mut socket =
        tokio::time::timeout(HANDSHAKE_LIMIT, upgrading).await.map_err(|_| ConnectError::TimedOut)??;
    let params = ConnectParams {
        protocol: ProtocolRange::default(),
        role: Role::Node,
        id: id.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        platform: current_platform(),
        token: token.expose().to_owned(),
        page_key: None,
        node: Some(hello),
    };
    let welcome = connect(&mut socket, &params, HANDSHAKE_LIMIT).await?;
    Ok(Dialled { socket, welcome, key })
}

/// Dials all addresses of the gateway, each a moment after the one before, and takes the first that answers as the
/// gateway. If none does, the error is of the first address, or of one where another server answered.
async fn dial_any(options: &NodeOptions) -> Result<(Stream, String), DialError> {
    let first = GatewayPlace { url: options.gateway.clone(), trust: options.trust.clone() };
    let mut dialling = JoinSet::new();
    let places = std::iter::once(first).chain(options.others.iter().cloned());
    for (wait, GatewayPlace { url, trust }) in (0..).map(|nth| HEAD_START * nth).zip(places) {
        dialling.spawn(async move {
            tokio::time::sleep(wait).await;
            let dialled = dial(&url, &trust).await;
            (wait, dialled.map(|stream| (stream, url.socket())))
        });
    }
    let mut failed: Vec<(Duration, DialError)> = Vec::new();
    while let Some(ended) = dialling.join_next().await {
        match ended {
            Ok((_, Ok(dialled))) => return Ok(dialled),
            Ok((wait, Err(err))) => failed.push((wait, err)),
            // A task that was cancelled has no result; the others decide.
            Err(_) => {}
        }
    }
    failed.sort_by_key(|(wait, err)| (!matches!(err, DialError::OtherKey { .. }), *wait));
    let none = || DialError::TimedOut { address: options.gateway.authority() };
    Err(failed.into_iter().next().map_or_else(none, |(_, err)| err))
}

/// The node's part of `connect`.
pub(crate) fn hello(registry: &Registry, instance: &str, calls: Vec<String>) -> NodeHello {
    let ids = |tool: &Tool| tool.capability_ids().iter().map(|id| id.id().to_owned()).collect::<Vec<_>>();
    let tools: std::collections::BTreeMap<_, _> =
        registry.entries().iter().map(|tool| (tool.name().to_owned(), ids(tool))).collect();
    let mut host_capabilities: Vec<String> = tools.values().flatten().cloned().collect();
    host_capabilities.sort();
    host_capabilities.dedup();
    NodeHello { instance: instance.to_owned(), bulk: false, tools, host_capabilities, calls }
}

/// The tools that the node offers after `connect`.
pub(crate) fn tools(registry: &Registry) -> NodeTools {
    NodeTools { tools: registry.entries().iter().map(|tool| tool.to_wire()).collect() }
}
