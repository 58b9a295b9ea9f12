//! Routes without authentication: webhooks, the page, a join code.

use axum::routing::MethodRouter;

use crate::request_context::RequestContext;

/// A route that anybody may reach. The gateway limits its body and how often one address may call
/// it; the handler authenticates the caller.
pub struct PublicRoute {
    pub path: &'static str,
    pub handler: MethodRouter<RequestContext>,
    /// The longest body, in bytes.
    pub max_body_bytes: usize,
    /// Requests that one address may send in a minute.
    pub per_minute: u32,
}
