//! [`AgentsDomain`] plugs agents into the gateway.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use futures_util::future::BoxFuture;
use gantry_domain::{Domain, Methods, RequestContext, Running};

use crate::sessions::Sessions;
use crate::sessions_api::SessionsApi;
use crate::{http, methods, tools};

/// The agents that a gateway runs itself: their sessions, routes, methods and tools.
pub struct AgentsDomain {
    api: Arc<SessionsApi>,
}

impl AgentsDomain {
    pub fn new(sessions: Sessions) -> AgentsDomain {
        AgentsDomain { api: Arc::new(SessionsApi::new(sessions)) }
    }
}

impl Domain for AgentsDomain {
    fn name(&self) -> &'static str {
        "agents"
    }

    fn routes(&self) -> Router<RequestContext> {
        http::routes(self.api.clone())
    }

    fn methods(&self) -> Methods {
        methods::methods(self.api.clone())
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            running.tools.add(tools(Some(self.api.sessions.clone())))?;
            self.api.sessions.resume().await.context("cannot resume the agents' runs")?;
            Ok(())
        })
    }

    fn drain(&self, limit: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.api.sessions.stop(limit).await })
    }
}
