//! The clients and settings that the web tools of all toolsets share.

pub(crate) mod search;
pub(crate) mod untrusted;

use std::sync::Arc;
use std::time::Duration;

use gantry_apis::Apis;
use gantry_net::{Body, Client, HostPattern, NetError, ReadBody, Response};
use gantry_store::Secrets;
use gantry_tool::{Call, Crossing, Masker, ToolError};
use serde::Deserialize;
use tokio::time::Instant;

use crate::Machine;
use crate::assistant::TokenCache;

pub use search::{SearchEndpoints, SearchKey, SearchProvider, SearchSettings};

/// The client and the operator's settings of the web tools.
#[derive(Debug, Clone)]
pub struct Web {
    pub client: Client,
    /// The most bytes of a response that `http_request` shows.
    pub http_response_limit: usize,
    pub search: SearchSettings,
    /// Hosts other than this machine to which credentials may go without TLS.
    pub plain_hosts: Vec<HostPattern>,
    /// The values of `secret:NAME`; without them no credential can be sent.
    pub secrets: Option<Secrets>,
    /// The API profiles; without them no profile covers a request, and none can be created.
    pub apis: Option<Apis>,
    /// Masks text that tools store themselves; the gate masks their answers.
    pub masker: Masker,
    /// Access tokens that were fetched for profiles.
    pub tokens: Arc<TokenCache>,
}

pub(crate) const HTTP_RESPONSE_LIMIT: usize = 100 * 1024;

impl Default for Web {
    fn default() -> Self {
        Web {
            client: Client::default(),
            http_response_limit: HTTP_RESPONSE_LIMIT,
            search: SearchSettings::default(),
            plain_hosts: Vec::new(),
            secrets: None,
            apis: None,
            masker: Masker::default(),
            tokens: Arc::default(),
        }
    }
}

impl Web {
    /// Fails if the secrets cannot be read: they could not be masked, so nothing may be fetched.
    pub(crate) fn knows_its_secrets(&self) -> Result<(), ToolError> {
        match self.secrets.as_ref().map(Secrets::all) {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(err)) => Err(ToolError::failed(format!(
                "{err}; web tools are disabled, because stored secrets could not be masked in their results"
            ))
            .with_hint("ask the operator to run `gantry doctor`")),
        }
    }
}

/// The field of an input that decides which host a web tool connects to.
#[derive(Deserialize)]
pub(crate) struct Address {
    url: Option<String>,
}

/// Declares how a web tool crosses the border: it connects to the host of `url`, or without one to
/// the search service that the operator configured.
pub(crate) fn crossing_of_url(
    machine: &Arc<Machine>,
) -> impl Fn(&Call, Address) -> Vec<Crossing> + Send + Sync + use<> {
    let machine = machine.clone();
    move |call, address| match address.url {
        Some(url) => machine.web_crossing(call, &url),
        None => vec![Crossing::Network],
    }
}

/// Adds `private` to the call if an answer came from an address that is not public: it belongs to
/// the operator's network.
pub(crate) fn note_closed_network(call: &Call, response: &Response) {
    if let Some(host) = response.url.host_str().filter(|_| response.from_closed_network) {
        call.findings.add_private_from(host);
    }
}

/// Returns the deadline of an operation with this limit, at most the deadline of the call.
pub(crate) fn deadline(call: &Call, limit: Duration) -> Instant {
    let own = Instant::now() + limit;
    call.deadline.map_or(own, |deadline| own.min(deadline.into()))
}

/// Returns at most `limit` bytes of a body. Reads past the limit, so that the end is never a part
/// of a known secret.
pub(crate) async fn read_whole_secrets(
    body: Body,
    limit: usize,
    masker: &Masker,
) -> Result<ReadBody, NetError> {
    let ReadBody { mut bytes, cut } = body.read(limit.saturating_add(masker.reach())).await?;
    if bytes.len() <= limit {
        return Ok(ReadBody { bytes, cut });
    }
    bytes.truncate(masker.cut_before_secret(&bytes, limit));
    Ok(ReadBody { bytes, cut: true })
}

/// Converts an error of the guarded client. An address that it refuses is a denial.
pub(crate) fn net_error(err: &NetError) -> ToolError {
    let hint = match err {
        NetError::NotAllowed { listed: true, .. } => {
            "ask the operator to add it to the agent's isolation.allowedHosts and to restart the gateway"
        }
        NetError::NotAllowed { listed: false, .. } => {
            "ask the operator to change the agent's isolation.networkPolicy, or its isolation.level if that is air-gapped"
        }
        NetError::ForbiddenAddress { .. } | NetError::ForbiddenName { .. } => {
            "ask the operator to add it to web.allowedHosts in gantry.toml and to restart the gateway"
        }
        _ => return ToolError::failed(err.to_string()),
    };
    ToolError::denied(err.to_string()).with_hint(hint)
}

pub(crate) fn is_denial(err: &NetError) -> bool {
    matches!(
        err,
        NetError::NotAllowed { .. } | NetError::ForbiddenAddress { .. } | NetError::ForbiddenName { .. }
    )
}
