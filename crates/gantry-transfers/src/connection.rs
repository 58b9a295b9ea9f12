//! [`EndpointConnection`] reaches one endpoint of a transfer while its connections last.

use std::sync::Arc;

use gantry_link::{Closed, LinkError};
use gantry_protocol::{ErrorCode, WireError, raw};
use gantry_toolsets::{Endpoint, LOCAL_NODE};
use gantry_transfer::{TransferRequest, TransferService};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::node_connections::NodeLinks;
use crate::object_backend::is_store_away;
use crate::relay::{FramePeer, Relay, RelayOut};
use crate::transfers::Transfers;

/// The endpoints inside the gateway's own process.
#[derive(Clone)]
pub(crate) struct OwnServices {
    pub(crate) storage: Arc<TransferService>,
    /// The files of this machine, if the gateway serves them.
    pub(crate) local: Option<Arc<TransferService>>,
}

pub(crate) enum EndpointConnection {
    Node { name: String, links: NodeLinks },
    Own { service: Arc<TransferService>, relay: Arc<Relay> },
}

impl Transfers {
    /// Connects to an endpoint. Waits for a node that is offline.
    pub(crate) async fn connect(&self, endpoint: &Endpoint) -> Result<EndpointConnection, Failure> {
        let service = match endpoint {
            Endpoint::Workspace { .. } => &self.own.storage,
            Endpoint::Node { node, .. } if node == LOCAL_NODE => {
                let missing = || Failure::failed("this gateway does not serve files of its own machine");
                self.own.local.as_ref().ok_or_else(missing)?
            }
            Endpoint::Node { node, .. } => {
                let links = self.nodes.links(node).await?;
                return Ok(EndpointConnection::Node { name: node.clone(), links });
            }
        };
        Ok(EndpointConnection::Own { service: service.clone(), relay: self.relay.clone() })
    }
}

impl EndpointConnection {
    /// Where the frames of this endpoint come from and go to.
    pub(crate) fn peer(&self) -> FramePeer {
        match self {
            EndpointConnection::Node { links, .. } => FramePeer::Link(links.bulk.clone()),
            EndpointConnection::Own { service, .. } => FramePeer::Service(service.clone()),
        }
    }

    /// Sends a request and waits for the answer, until one of the connections is lost.
    pub(crate) async fn request<P: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<R, Failure> {
        let answer = match self {
            EndpointConnection::Node { name, links } => {
                let lost = |reason: Closed| Failure::Lost(format!("the node \"{name}\": {reason}"));
                tokio::select! {
                    answer = links.main.request(method, raw(params), None) => match answer {
                        Ok(answer) => answer,
                        Err(LinkError::Remote(error)) => return Err(error.into()),
                        Err(LinkError::Closed(reason)) => return Err(lost(reason)),
                    },
                    reason = links.bulk.closed() => return Err(lost(reason)),
                }
            }
            EndpointConnection::Own { service, relay } => {
                let out = RelayOut { relay: relay.clone(), service: service.clone() };
                let cancel = CancellationToken::new();
                let _cancels_when_dropped = cancel.clone().drop_guard();
                let request = TransferRequest {
                    method: method.to_owned(),
                    params: raw(params),
                    cancel,
                    out: Some(Arc::new(out)),
                };
                // A task of its own, so that a cancelled request still ends in order.
                let service = service.clone();
                let answer = tokio::spawn(async move { service.answer(request).await }).await;
                let answer = answer.map_err(|err| {
                    let message = format!("the transfer service failed: {err}");
                    Failure::Final(WireError::new(ErrorCode::Internal, message))
                })?;
                answer.map_err(|error| match is_store_away(&error) {
                    true => Failure::StoreAway(error.message),
                    false => error.into(),
                })?
            }
        };
        serde_json::from_str(answer.get())
            .map_err(|err| Failure::failed(format!("the answer to {method} is not valid: {err}")))
    }
}
