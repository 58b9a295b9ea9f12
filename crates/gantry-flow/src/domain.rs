//! [`FlowDomain`] plugs schedules, tasks and pipelines into the gateway.

use std::sync::Arc;

use axum::{Extension, Router};
use futures_util::future::BoxFuture;
use gantry_agent::Sessions;
use gantry_domain::{Domain, Methods, RequestContext, Running};
use gantry_net::ClientOptions;
use gantry_store::Database;
use gantry_tool::Masker;
use jiff::tz::TimeZone;
use uuid::Uuid;

use crate::clock::Clock;
use crate::config::FlowConfig;
use crate::inbox::{self, InboxListeners};
use crate::jobs::{self, Jobs};
use crate::metrics::Metrics;
use crate::outbox::{self, Outbox, SecretFor};
use crate::pipelines::{self, Pipelines};
use crate::run_events::{self, RunEvents};
use crate::slots::Slots;
use crate::tasks::{self, PageAccess, Tasks, TasksConfig};
use crate::tools::tools;

/// The parts of a gateway that background work uses.
pub struct FlowParts {
    pub config: FlowConfig,
    pub database: Database,
    pub sessions: Sessions,
    /// Messages to people. Other domains add channels to it.
    pub outbox: Outbox,
    pub clock: Clock,
    /// The user's time zone.
    pub zone: TimeZone,
    /// Settings of the guarded client.
    pub network: ClientOptions,
    /// Opens stored secrets.
    pub secret: SecretFor,
    /// Masks secrets in questions.
    pub masker: Masker,
    pub tasks: TasksConfig,
    /// How watched pages are fetched.
    pub pages: PageAccess,
}

/// The work of a running gateway: what tools, routes, methods and workers of this domain share.
pub struct Flow {
    pub(crate) parts: FlowParts,
    /// Identifies this process. Work in the database belongs to it or to a process that has ended.
    pub(crate) owner: String,
    pub(crate) jobs: Jobs,
    pub(crate) pipelines: Pipelines,
    pub(crate) tasks: Tasks,
    pub(crate) slots: Slots,
    pub(crate) run_events: RunEvents,
    pub(crate) inbox: InboxListeners,
    pub(crate) metrics: Metrics,
}

impl Flow {
    pub(crate) fn new(parts: FlowParts) -> Flow {
        parts.outbox.add_own_channels(&parts);
        Flow {
            owner: Uuid::now_v7().to_string(),
            jobs: Jobs::default(),
            pipelines: Pipelines::default(),
            tasks: Tasks::new(parts.tasks.clone(), parts.pages.clone()),
            slots: Slots::default(),
            run_events: RunEvents::default(),
            inbox: InboxListeners::default(),
            metrics: Metrics::default(),
            parts,
        }
    }

    /// Wakes the workers of schedules and tasks, because a slot is free.
    pub(crate) fn slot_freed(&self) {
        self.jobs.wake.notify_one();
        self.tasks.wake.notify_one();
    }
}

pub struct FlowDomain {
    flow: Arc<Flow>,
}

impl FlowDomain {
    pub fn new(parts: FlowParts) -> FlowDomain {
        FlowDomain { flow: Arc::new(Flow::new(parts)) }
    }
}

impl Domain for FlowDomain {
    fn name(&self) -> &'static str {
        "flow"
    }

    fn routes(&self) -> Router<RequestContext> {
        Router::new()
            .merge(outbox::routes())
            .merge(jobs::routes())
            .layer(Extension(self.flow.clone()))
            .merge(pipelines::http::routes(self.flow.clone()))
            .merge(tasks::http::routes(self.flow.clone()))
    }

    fn methods(&self) -> Methods {
        let methods = jobs::methods(outbox::methods(Methods::default(), &self.flow), &self.flow);
        let methods = inbox::methods(run_events::methods(methods, &self.flow), &self.flow);
        let methods = pipelines::methods::add(methods, &self.flow);
        tasks::methods::add(methods, &self.flow)
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            running.tools.add(tools(Some(self.flow.clone())))?;
            running.tasks.spawn(outbox::run(self.flow.clone(), running.stopping.clone()));
            self.flow.start_pipelines(running.tasks.clone(), running.stopping.clone());
            if self.flow.parts.config.enabled {
                jobs::run(self.flow.clone(), &running.tasks, &running.stopping);
                let work =
                    tasks::worker::run(self.flow.clone(), running.tasks.clone(), running.stopping.clone());
                running.tasks.spawn(work);
            }
            Ok(())
        })
    }

    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(self.flow.metrics_text())
    }
}
