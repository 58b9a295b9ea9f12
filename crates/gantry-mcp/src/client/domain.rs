//! The MCP servers as a domain of the gateway.

use futures_util::future::BoxFuture;
use gantry_domain::{Checked, ConfigSections, Domain, Finding, FindingLevel, Methods, Running};
use gantry_tool::Violation;

use super::{ServerSpec, Servers, methods};

/// The configured servers of a changed configuration.
pub struct McpServerSpecs(pub Vec<ServerSpec>);

/// The MCP servers whose tools the gateway offers.
pub struct McpServersDomain(pub Servers);

impl Domain for McpServersDomain {
    fn name(&self) -> &'static str {
        "MCP servers"
    }

    fn methods(&self) -> Methods {
        methods::methods(&self.0)
    }

    fn check_config(&self, new: &ConfigSections) -> Result<Checked, Vec<Violation>> {
        Ok(new.get::<McpServerSpecs>().map_or_else(Checked::unchanged, |specs| Checked::new(specs.0.clone())))
    }

    fn apply_config(&self, checked: Checked) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(specs) = checked.take::<Vec<ServerSpec>>() {
                self.0.apply(specs).await;
            }
        })
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        let servers = self.0.clone();
        running.spawn_worker(async move { servers.follow().await });
        Box::pin(std::future::ready(Ok(())))
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.stop())
    }

    fn doctor(&self) -> BoxFuture<'_, Vec<Finding>> {
        let problems = self.0.problems().into_iter();
        let findings = problems.map(|message| Finding { level: FindingLevel::Warning, message, fix: None });
        Box::pin(std::future::ready(findings.collect()))
    }
}
