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
use crate::logging::FILE_ONLY;
use crate::output::RunningNotes;
use crate::places::Places;

/// How soon a gateway takes up a changed configuration.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Their tools are registered as far as they are known; none is started.
pub(crate) fn open_mcp_servers(
    places: &Places,
    config: &Config,
    processes: Processes,
    registry: Registry,
) -> Result<Servers> {
    let around = Surroundings {
        processes,
        variables: places.variables.clone(),
        closed: places.closed(),
        secrets: places.secrets(),
        records: ServerRecords::new(&places.data),
        network: config.web.network(places.trust()?),
        version: env!("CARGO_PKG_VERSION"),
    };
    Ok(Servers::open(around, registry, specs(places, config)))
}

pub(crate) fn specs(places: &Places, config: &Config) -> Vec<ServerSpec> {
    let home = places.variable("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    config.mcp_servers.iter().filter_map(|(name, server)| server.spec(name, &home)).collect()
}

/// Applies a changed configuration to the running domains: whole, or not at all.
pub(crate) struct LiveConfig {
    pub(crate) places: Places,
    pub(crate) domains: Vec<Arc<dyn Domain>>,
    pub(crate) notes: RunningNotes,
}

impl LiveConfig {
    /// Looks for changes until the gateway stops.
    pub(crate) async fn follow(&self) {
        let mut seen = self.places.configuration_version();
        let mut last = self.places.layers.load().ok();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.places.configuration_version();
            if now == seen {
                continue;
            }
            seen = now;
            match self.places.layers.load() {
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
        config.resolve_paths(|path| self.places.resolve(path));
        let sections = sections(&self.places, &config);
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
        self.places.live_secrets.add(config.secrets());
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
                self.places.layers.file.display(),
                keys.join(", ")
            ));
        }
    }

    fn refuse(&self, reason: &str) {
        self.warn(&format!(
            "{} has changed and is not valid, so what was configured before stays: {reason}",
            self.places.layers.file.display(),
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
fn sections(places: &Places, config: &Config) -> ConfigSections {
    let sections = ConfigSections::default().with(McpServerSpecs(specs(places, config)));
    #[cfg(feature = "gantry-example")]
    let sections = sections.with(config.example.clone());
    sections
}
