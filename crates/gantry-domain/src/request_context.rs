//! Services of the gateway for the routes and workers of a domain.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use gantry_store::DatabaseError;
use gantry_tool::{Call, Gate, Outcome, Refusal, Surface};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::idempotent_requests::IdempotentRequests;
use crate::identity::Identity;
use crate::memory_quota::MemoryQuota;

/// The state of every route of a domain. The caller's [`Identity`] is an extension of the request.
#[derive(Clone)]
pub struct RequestContext {
    pub gate: Arc<Gate>,
    pub quota: Arc<MemoryQuota>,
    /// Requests with an `Idempotency-Key`.
    pub requests: Arc<IdempotentRequests>,
    pub services: Arc<dyn GatewayServices>,
}

/// The gateway, as domains see it.
pub trait GatewayServices: Send + Sync {
    /// A call by this caller, or as an agent that it may act as. The call ends with the gateway and
    /// with the token it is made with.
    fn call(&self, identity: &Identity, agent: Option<&str>, surface: Surface) -> Result<Call, Refusal>;

    /// Runs a tool through the gate.
    fn run<'a>(&'a self, call: Call, tool: &'a str, input: Value) -> BoxFuture<'a, Outcome>;

    /// Closes the connections of a page session that was removed, and cancels its calls.
    fn end_page_session(&self, id: &str);

    /// The token that cancels work of a client token, by the name of its owner. `None` when the
    /// client token is no longer valid.
    fn ending_of_token<'a>(
        &'a self,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<Option<CancellationToken>, DatabaseError>>;
}
