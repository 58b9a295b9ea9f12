//! What the web tools of all toolsets work with.

pub(crate) mod search;
pub(crate) mod untrusted;

use std::sync::Arc;
use std::time::Duration;

use gantry_apis::Apis;
use gantry_net::{Body, Client, HostPattern, NetError, ReadBody};
use gantry_store::Secrets;
use gantry_tool::{Call, Masker, ToolError};
use tokio::time::Instant;

use crate::assistant::TokenCache;

pub use search::{SearchEndpoints, SearchKey, SearchProvider, SearchSettings};

/// The client, and how the operator has set up the tools that use it.
#[derive(Debug, Clone)]
pub struct Web {
    pub client: Client,
    /// Of an answer to `http_request`, in bytes.
    pub http_response_limit: usize,
    pub search: SearchSettings,
    /// Hosts to which credentials may go without TLS, beside this machine.
    pub plain_hosts: Vec<HostPattern>,
    /// What `secret:NAME` stands for; without them no credential can be sent.
    pub secrets: Option<Secrets>,
    /// Without them no request is covered by a profile, and none can be made.
    pub apis: Option<Apis>,
    /// For what tools keep by themselves; what they answer is masked by the gate.
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
    /// What cannot be opened cannot be masked: rather than show a stored value, nothing is fetched.
    pub(crate) fn knows_its_secrets(&self) -> Result<(), ToolError> {
        match self.secrets.as_ref().map(Secrets::all) {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(err)) => Err(ToolError::failed(format!(
                "{err}; the web tools stay closed, since stored values could not be masked in what they show"
            ))
            .with_hint("the operator can see what to do with `gantry doctor`")),
        }
    }
}

/// When work that may take this long has to be over: never later than the call itself.
pub(crate) fn deadline(call: &Call, limit: Duration) -> Instant {
    let own = Instant::now() + limit;
    call.deadline.map_or(own, |deadline| own.min(deadline.into()))
}

/// At most `limit` bytes of a body, and never a part of a known secret at their end: what follows the limit is looked at, too.
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

/// What the guard refuses is a denial, the rest is how the world is.
pub(crate) fn net_error(err: &NetError) -> ToolError {
    let hint = match err {
        NetError::NotAllowed { listed: true, .. } => {
            "the operator can add it to the agent's isolation.allowedHosts, and restart the gateway"
        }
        NetError::NotAllowed { listed: false, .. } => {
            "the operator can change the agent's isolation.networkPolicy, or its isolation.level if that is air-gapped"
        }
        NetError::ForbiddenAddress { .. } | NetError::ForbiddenName { .. } => {
            "the operator can open it with web.allowedHosts in gantry.toml, and restart the gateway"
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
