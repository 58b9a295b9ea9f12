//! One end of a transfer for as long as its connection lasts: requests go there, frames have a port.

use std::sync::Arc;
use std::time::Duration;

use gantry_link::{Closed, Link, LinkError};
use gantry_protocol::{ErrorCode, WireError, method, raw};
use gantry_toolsets::{Endpoint, LOCAL_NODE};
use gantry_transfer::{Ask, FrameOut, TransferService};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::relay::{DeskOut, Port, Relay};
use super::storage::is_store_away;
use crate::nodes::{Node, Nodes};

/// How long a node's second connection may take, and when it is asked for once more.
const BULK_LIMIT: Duration = Duration::from_secs(20);
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Why a round did not succeed, by what to do about it.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Try again when both ends are there, from what has come.
    Lost(String),
    /// The workspace's store is away. Try again when it is back, however often that takes.
    Away(String),
    /// Begin this file anew.
    Restart(String),
    /// The source cannot be read; below a directory that one entry is left out.
    Source(WireError),
    Final(WireError),
}

impl Failure {
    /// The cause, of two ends that both failed: one usually only tells that the other did.
    pub(crate) fn or(self, other: Failure) -> Failure {
        match (&self, &other) {
            (Failure::Final(_), _) => self,
            (_, Failure::Final(_)) => other,
            (Failure::Source(_), _) => self,
            (_, Failure::Source(_)) => other,
            (Failure::Restart(_), _) => self,
            (_, Failure::Restart(_)) => other,
            (_, Failure::Away(_)) => other,
            _ => self,
        }
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Failure {
        match error.code {
            ErrorCode::Unavailable
            | ErrorCode::NotFound
            | ErrorCode::TooMany
            | ErrorCode::Deadline
            | ErrorCode::Cancelled => Failure::Lost(error.message),
            ErrorCode::PrefixMismatch | ErrorCode::Conflict => Failure::Restart(error.message),
            ErrorCode::UnknownMethod => {
                let message = "the node's version does not know transfers yet";
                Failure::Final(WireError::new(ErrorCode::Failed, message))
            }
            _ => Failure::Final(error),
        }
    }
}

pub(crate) struct Session {
    via: Via,
    pub(crate) port: Port,
}

enum Via {
    Node { name: String, control: Link, bulk: Link },
    Service { desk: Arc<TransferService>, relay: Arc<Relay> },
}

/// The gateway's own ends.
#[derive(Clone)]
pub(crate) struct OwnDesks {
    pub(crate) storage: Arc<TransferService>,
    pub(crate) local: Option<Arc<TransferService>>,
}

impl Session {
    /// Waits until the end is there.
    pub(crate) async fn open(nodes: &Nodes, own: &OwnDesks, endpoint: &Endpoint) -> Result<Session, Failure> {
        let desk = match endpoint {
            Endpoint::Workspace { .. } => Some(&own.storage),
            Endpoint::Node { node, .. } if node == LOCAL_NODE => {
                let missing = "this gateway serves no files of its own machine";
                let missing = || Failure::Final(WireError::new(ErrorCode::Failed, missing));
                Some(own.local.as_ref().ok_or_else(missing)?)
            }
            Endpoint::Node { .. } => None,
        };
        match (desk, endpoint) {
            (Some(desk), _) => Ok(Session {
                via: Via::Service { desk: desk.clone(), relay: nodes.relay.clone() },
                port: Port::Service(desk.clone()),
            }),
            (None, Endpoint::Node { node, .. }) => {
                let unknown =
                    || Failure::Final(WireError::new(ErrorCode::Failed, format!("unknown node \"{node}\"")));
                let node = nodes.find(node).ok_or_else(unknown)?;
                // It will not be back by itself, so nobody waits for it.
                if node.is_revoked() {
                    let message = format!("the token of the node \"{}\" is revoked", node.id());
                    return Err(Failure::Final(WireError::new(ErrorCode::Failed, message)));
                }
                connect(&node).await
            }
            (None, Endpoint::Workspace { .. }) => Err(Failure::Lost("no storage".into())),
        }
    }

    /// Asks this end. The wait is over when its connections are.
    pub(crate) async fn request<P: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<R, Failure> {
        let answer = match &self.via {
            Via::Node { name, control, bulk } => {
                let lost = |reason: Closed| Failure::Lost(format!("the node \"{name}\": {reason}"));
                tokio::select! {
                    answer = control.request(method, raw(params), None) => match answer {
                        Ok(answer) => answer,
                        Err(LinkError::Remote(error)) => return Err(error.into()),
                        Err(LinkError::Closed(reason)) => return Err(lost(reason)),
                    },
                    reason = bulk.closed() => return Err(lost(reason)),
                }
            }
            Via::Service { desk, relay } => {
                let out: Arc<dyn FrameOut> = Arc::new(DeskOut { relay: relay.clone(), desk: desk.clone() });
                let cancel = CancellationToken::new();
                let _called_off = cancel.clone().drop_guard();
                let ask = Ask { method: method.to_owned(), params: raw(params), cancel, out: Some(out) };
                // A task of its own: what is called off still ends in order.
                let desk = desk.clone();
                let answer = tokio::spawn(async move { desk.answer(ask).await }).await;
                let answer = answer.map_err(|err| {
                    Failure::Final(WireError::new(
                        ErrorCode::Internal,
                        format!("the transfer's end failed: {err}"),
                    ))
                })?;
                answer.map_err(|error| match is_store_away(&error) {
                    true => Failure::Away(error.message),
                    false => error.into(),
                })?
            }
        };
        serde_json::from_str(answer.get()).map_err(|err| {
            Failure::Final(WireError::new(
                ErrorCode::Failed,
                format!("not a valid answer to {method}: {err}"),
            ))
        })
    }
}

/// Waits for a node's connection, and has it open the second one.
async fn connect(node: &Node) -> Result<Session, Failure> {
    let lost = |reason: &str| Failure::Lost(format!("the node \"{}\": {reason}", node.id()));
    let mut lives = node.watch();
    let live = tokio::select! {
        live = lives.wait_for(Option::is_some) => live.ok().and_then(|live| live.clone()),
        // It may be sent away while it is waited for.
        reason = node.dismissed() => {
            let message = format!("the node \"{}\" does not come back: {reason}", node.id());
            return Err(Failure::Final(WireError::new(ErrorCode::Failed, message)));
        }
    };
    let live = live.ok_or_else(|| lost("it was removed"))?;
    let bulk = tokio::select! {
        bulk = tokio::time::timeout(BULK_LIMIT, bulk_of(node, &live.link)) => bulk,
        reason = live.link.closed() => return Err(lost(&reason.to_string())),
    };
    let bulk = bulk.unwrap_or_else(|_| Err(lost("its second connection did not come")))?;
    Ok(Session {
        port: Port::Link(bulk.clone()),
        via: Via::Node { name: node.id().to_owned(), control: live.link, bulk },
    })
}

/// The second connection, which is asked for again when it does not come: it may have been lost before anybody saw it.
async fn bulk_of(node: &Node, control: &Link) -> Result<Link, Failure> {
    let is_open = |bulk: &Link| !bulk.is_closed();
    let mut bulks = node.bulk.subscribe();
    loop {
        if let Some(bulk) = bulks.borrow_and_update().clone().filter(is_open) {
            return Ok(bulk);
        }
        let asked = control.request(method::BULK_OPEN, raw(&serde_json::Map::new()), None).await;
        asked.map_err(|err| match err {
            LinkError::Remote(error) => error.into(),
            LinkError::Closed(reason) => Failure::Lost(format!("the node \"{}\": {reason}", node.id())),
        })?;
        let _ =
            tokio::time::timeout(ASK_AGAIN, bulks.wait_for(|bulk| bulk.as_ref().is_some_and(is_open))).await;
    }
}
