//! What the web tools of all toolsets work with.

use std::sync::Arc;

use gantry_net::{Client, HostPattern};
use gantry_store::{Apis, Secrets};
use gantry_tool::Masker;

use crate::assistant::TokenCache;

/// The client, and how the operator has set up the tools that use it.
#[derive(Debug, Clone)]
pub struct Web {
    pub client: Client,
    /// Of an answer to `http_request`, in bytes.
    pub http_response_limit: usize,
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
            plain_hosts: Vec::new(),
            secrets: None,
            apis: None,
            masker: Masker::default(),
            tokens: Arc::default(),
        }
    }
}
