//! [`FlowDomain`] plugs schedules, tasks and pipelines into the gateway.

use std::sync::Arc;

use axum::Router;
use futures_util::future::BoxFuture;
use gantry_agent::Sessions;
use gantry_domain::{Domain, Methods, RequestContext, Running};
use gantry_store::Database;
use jiff::tz::TimeZone;

use crate::clock::Clock;
use crate::config::FlowConfig;
use crate::pipelines::{self, Pipelines};
use crate::tasks::{self, PageAccess, Tasks, TasksConfig};
use crate::tools::tools;

/// The parts of a gateway that background work uses.
pub struct FlowParts {
    pub config: FlowConfig,
    pub database: Database,
    pub sessions: Sessions,
    pub clock: Clock,
    /// The user's time zone.
    pub zone: TimeZone,
    pub tasks: TasksConfig,
    /// How watched pages are fetched.
    pub pages: PageAccess,
}

/// The work of a running gateway: what tools, routes, methods and workers of this domain share.
pub struct Flow {
    pub(crate) parts: FlowParts,
    pub(crate) pipelines: Pipelines,
    pub(crate) tasks: Tasks,
}

impl Flow {
    /// Reports something to the owner of an agent.
    pub(crate) fn notify(&self, agent: &str, text: &str) {
        tracing::warn!(agent, text, "flow_notice");
    }
}

pub struct FlowDomain {
    flow: Arc<Flow>,
}

impl FlowDomain {
    pub fn new(parts: FlowParts) -> FlowDomain {
        let tasks = Tasks::new(parts.tasks.clone(), parts.pages.clone());
        FlowDomain { flow: Arc::new(Flow { parts, pipelines: Pipelines::default(), tasks }) }
    }
}

impl Domain for FlowDomain {
    fn name(&self) -> &'static str {
        "flow"
    }

    fn routes(&self) -> Router<RequestContext> {
        pipelines::http::routes(self.flow.clone()).merge(tasks::http::routes(self.flow.clone()))
    }

    fn methods(&self) -> Methods {
        tasks::methods::add(pipelines::methods::add(Methods::default(), &self.flow), &self.flow)
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            running.tools.add(tools(Some(self.flow.clone())))?;
            self.flow.start_pipelines(running.tasks.clone(), running.stopping.clone());
            if self.flow.parts.config.enabled {
                let work =
                    tasks::worker::run(self.flow.clone(), running.tasks.clone(), running.stopping.clone());
                running.tasks.spawn(work);
            }
            Ok(())
        })
    }
}
