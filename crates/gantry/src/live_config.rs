//! The configuration of a running gateway: what its MCP servers are, and how a change is applied.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gantry_domain::{ConfigSections, Domain, FindingLevel};
use gantry_mcp::client::{McpServerSpecs, ServerSpec, Servers, Surroundings};
use gantry_process::Processes;
use gantry_store::ServerRecords;
use gantry_tool::Registry;

use crate::config::{Config, read_at_start};
use crate::environment::Environment;
use crate::logging::FILE_ONLY;
use crate::output::RunningNotes;

/// How soon a gateway takes up a changed configuration.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Their tools are registered as far as they are known; none is started.
pub(crate) fn open_mcp_servers(
    environment: &Environment,
    config: &Config,
    processes: Processes,
    registry: Registry,
) -> Result<Servers> {
    let around = Surroundings {
        processes,
        variables: environment.variables.clone(),
        closed: environment.closed(),
        secrets: environment.secrets(),
        records: ServerRecords::new(&environment.data),
        network: config.web.network(environment.trust()?),
        version: env!("CARGO_PKG_VERSION"),
    };
    Ok(Servers::open(around, registry, specs(environment, config)))
}

pub(crate) fn specs(environment: &Environment, config: &Config) -> Vec<ServerSpec> {
    let home = environment.variable("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    config.mcp_servers.iter().filter_map(|(name, server)| server.spec(name, &home)).collect()
}

/// Applies a changed configuration to the running domains: whole, or not at all.
pub(crate) struct LiveConfig {
    pub(crate) environment: Environment,
    pub(crate) domains: Vec<Arc<dyn Domain>>,
    pub(crate) notes: RunningNotes,
}

impl LiveConfig {
    /// Looks for changes until the gateway stops.
    pub(crate) async fn follow(&self) {
        let mut seen = self.environment.configuration_version();
        let mut last = self.environment.layers.load().ok();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.environment.configuration_version();
            if now == seen {
                continue;
            }
            seen = now;
            match self.environment.layers.load() {
                Ok(config) => {
                    self.warn_of_restart(last.as_ref(), &config);
                    last = Some(config.clone());
                    self.apply(config).await;
                }
                Err(err) => self.refuse(&format!("{err:#}")),
            }
        }
    }

    async fn apply(&self, mut config: Config) {
        config.resolve_paths(|path| self.environment.resolve(path));
        let sections = sections(&self.environment, &config);
        let mut checked = Vec::with_capacity(self.domains.len());
        for domain in &self.domains {
            match domain.check_config(&sections) {
                Ok(prepared) => checked.push((domain, prepared)),
                Err(violations) => {
                    let reasons = violations.iter().map(|v| format!("{}: {}", v.path, v.message));
                    return self.refuse(&reasons.collect::<Vec<_>>().join("; "));
                }
            }
        }
        let known = self.problems().await;
        // Before any domain can show one of them.
        self.environment.live_secrets.add(config.secrets());
        for (domain, prepared) in checked {
            domain.apply_config(prepared).await;
        }
        for problem in self.problems().await.iter().filter(|problem| !known.contains(problem)) {
            self.warn(problem);
        }
    }

    /// Prints a warning, and logs it.
    fn warn(&self, detail: &str) {
        self.notes.warning(&format!("warning: {detail}"));
        tracing::warn!(target: FILE_ONLY, detail, "warning");
    }

    async fn problems(&self) -> Vec<String> {
        problems(&self.domains).await
    }

    fn warn_of_restart(&self, last: Option<&Config>, now: &Config) {
        let keys = last.map(|last| read_at_start(last, now)).unwrap_or_default();
        if !keys.is_empty() {
            self.warn(&format!(
                "{} has changed ({}). Restart the gateway to apply the change (only mcpServers and models are \
                 reloaded live).",
                self.environment.layers.file.display(),
                keys.join(", ")
            ));
        }
    }

    fn refuse(&self, reason: &str) {
        self.warn(&format!(
            "{} has changed and is not valid, so what was configured before stays: {reason}",
            self.environment.layers.file.display(),
        ));
    }
}

/// What domains report as wrong.
pub(crate) async fn problems(domains: &[Arc<dyn Domain>]) -> Vec<String> {
    let mut problems = Vec::new();
    for domain in domains {
        let found = domain.doctor().await.into_iter().filter(|finding| finding.level != FindingLevel::Ok);
        problems.extend(found.map(|finding| finding.message));
    }
    problems
}

/// The sections that domains read, each under its type.
fn sections(environment: &Environment, config: &Config) -> ConfigSections {
    let sections = ConfigSections::default().with(McpServerSpecs(specs(environment, config)));
    #[cfg(feature = "gantry-example")]
    let sections = sections.with(config.example.clone());
    sections
}
