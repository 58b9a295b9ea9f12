//! Applies changes of `gantry.toml` to a running gateway, and opens its MCP servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gantry_domain::{ConfigSections, Domain, FindingLevel};
use gantry_mcp::client::{McpServerSpecs, ServerSpec, Servers, Surroundings};
use gantry_process::Processes;
use gantry_store::ServerRecords;
use gantry_tool::Registry;

use crate::config::{Config, changes_that_need_restart};
use crate::environment::Environment;
use crate::logging::FILE_ONLY;
use crate::output::RunningNotes;

/// How often the gateway checks the file for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Opens the configured servers without starting them. Tools that are known from earlier are registered.
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

/// Applies a changed configuration to all running domains, or to none if one of them rejects it.
pub(crate) struct LiveConfig {
    pub(crate) environment: Environment,
    pub(crate) domains: Vec<Arc<dyn Domain>>,
    pub(crate) notes: RunningNotes,
}

impl LiveConfig {
    /// Checks the file for changes until the gateway stops.
    pub(crate) async fn follow(&self) {
        let mut seen = self.environment.configuration_version();
        let mut last = self.environment.layers.load().ok();
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
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
        // The masker must know new secrets before a domain can show one.
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
        let keys = last.map(|last| changes_that_need_restart(last, now)).unwrap_or_default();
        if !keys.is_empty() {
            self.warn(&format!(
                "{} has changed ({}). Restart the gateway to apply the change.",
                self.environment.layers.file.display(),
                keys.join(", ")
            ));
        }
    }

    fn refuse(&self, reason: &str) {
        self.warn(&format!(
            "{} has changed and is not valid; the previous configuration stays in effect: {reason}",
            self.environment.layers.file.display(),
        ));
    }
}

/// Warnings and errors that domains report.
pub(crate) async fn problems(domains: &[Arc<dyn Domain>]) -> Vec<String> {
    let mut problems = Vec::new();
    for domain in domains {
        let found = domain.doctor().await.into_iter().filter(|finding| finding.level != FindingLevel::Ok);
        problems.extend(found.map(|finding| finding.message));
    }
    problems
}

/// What domains read, each part under its type: every section, and the MCP servers with resolved commands.
fn sections(environment: &Environment, config: &Config) -> ConfigSections {
    config.sections_by_type().with(McpServerSpecs(specs(environment, config)))
}
