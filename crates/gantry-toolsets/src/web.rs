//! What the web tools of all toolsets work with.

use gantry_net::Client;

/// The client, and how the operator has set up the tools that use it.
#[derive(Debug, Clone)]
pub struct Web {
    pub client: Client,
    /// Of an answer to `http_request`, in bytes.
    pub http_response_limit: usize,
}

pub(crate) const HTTP_RESPONSE_LIMIT: usize = 100 * 1024;

impl Default for Web {
    fn default() -> Self {
        Web { client: Client::default(), http_response_limit: HTTP_RESPONSE_LIMIT }
    }
}
