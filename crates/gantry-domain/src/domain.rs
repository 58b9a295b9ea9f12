//! The `Domain` trait, and `Running`, which a domain gets when the gateway starts it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::BoxFuture;
use gantry_tool::{Gate, Registry, RegistryError, Tool, Violation};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config_section::{Checked, ConfigSections};
use crate::methods::Methods;
use crate::owner_command::OwnerCommand;
use crate::public_route::PublicRoute;
use crate::request_context::{GatewayServices, RequestContext};

/// A feature area of the gateway.
///
/// Dependencies go to the constructor of the implementing type. The gateway asks for routes and
/// methods once, starts domains in the order of its list, and stops them in reverse.
pub trait Domain: Send + Sync + 'static {
    /// Names the domain in errors, in the log and in `gantry doctor`.
    fn name(&self) -> &'static str;

    /// Routes behind authentication. Handlers find the caller's [`crate::Identity`] as an extension.
    fn routes(&self) -> Router<RequestContext> {
        Router::new()
    }

    /// Routes that anybody may reach. Each checks its caller itself.
    fn public_routes(&self) -> Vec<PublicRoute> {
        Vec::new()
    }

    /// Methods of the WebSocket protocol.
    fn methods(&self) -> Methods {
        Methods::default()
    }

    /// Slash commands for the owner's conversations.
    fn owner_commands(&self) -> Vec<Arc<dyn OwnerCommand>> {
        Vec::new()
    }

    /// Checks a changed configuration and prepares what it needs. Nothing changes yet: every domain
    /// has to agree before any of them applies its part.
    fn check_config(&self, new: &ConfigSections) -> Result<Checked, Vec<Violation>> {
        let _ = new;
        Ok(Checked::unchanged())
    }

    /// Applies what [`Domain::check_config`] prepared.
    fn apply_config(&self, checked: Checked) -> BoxFuture<'_, ()> {
        drop(checked);
        Box::pin(std::future::ready(()))
    }

    /// Resumes the work of an earlier process, registers tools and spawns workers. The gateway's
    /// socket is bound by then, and accepts connections once every domain has started.
    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        let _ = running;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Lets work finish for at most `limit`, then ends it. The gateway drains its calls meanwhile.
    fn drain(&self, limit: Duration) -> BoxFuture<'_, ()> {
        let _ = limit;
        Box::pin(std::future::ready(()))
    }

    /// Ends all remaining work. No call runs any more.
    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Metrics of the domain as OpenMetrics text, for `/metrics`.
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(std::future::ready(String::new()))
    }

    /// Findings that `gantry doctor` reports about the domain.
    fn doctor(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// The parts of the gateway that a domain may use while it runs.
pub struct Running {
    pub gate: Arc<Gate>,
    pub tools: ToolsHandle,
    pub services: Arc<dyn GatewayServices>,
    /// Workers that are spawned here end with `stopping`.
    pub tasks: TaskTracker,
    pub stopping: CancellationToken,
}

impl Running {
    /// Spawns a worker that is dropped when the gateway stops.
    pub fn spawn_worker(&self, worker: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = worker => {}
            }
        });
    }
}

/// Adds and withdraws a domain's tools while the gateway runs.
#[derive(Clone)]
pub struct ToolsHandle {
    registry: Registry,
}

impl ToolsHandle {
    pub fn new(registry: Registry) -> ToolsHandle {
        ToolsHandle { registry }
    }

    /// Registers tools. A name that another tool has is an error.
    pub fn add(&self, tools: Vec<Tool>) -> Result<(), RegistryError> {
        tools.into_iter().try_for_each(|tool| self.registry.register(tool))
    }

    /// Registers tools in place of those with the same names.
    pub fn replace(&self, tools: Vec<Tool>) {
        for tool in tools {
            self.registry.replace(tool);
        }
    }

    /// Removes tools. Running calls continue.
    pub fn withdraw(&self, names: &[&str]) {
        self.registry.remove(names);
    }
}

/// One result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub level: FindingLevel,
    pub message: String,
    /// How to fix it.
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingLevel {
    Ok,
    Warning,
    Error,
}
