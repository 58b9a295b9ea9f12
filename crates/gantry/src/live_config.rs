//! Applies changes of `gantry.toml` to a running gateway, and opens its MCP servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gantry_agent::{ConfigVersion, SessionSettings, Sessions};
use gantry_domain::{ConfigSections, Domain, FindingLevel};
use gantry_gateway::Gateway;
use gantry_mcp::client::{McpServerSpecs, ServerSpec, Servers, Surroundings};
use gantry_process::Processes;
use gantry_process::workers::Workers;
use gantry_store::ServerRecords;
use gantry_tool::{Gate, GateSettings, Registry};
use gantry_toolsets::{Machine, MachineSettings, Native};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::agent_sessions::session_settings;
use crate::config::{Config, ConfigError, changes_that_need_restart};
use crate::environment::Environment;
use crate::local::{gate_settings, machine_settings};
use crate::logging::FILE_ONLY;
use crate::output::RunningNotes;
use crate::running_gateway::agents as gateway_agents;

/// How often the gateway checks the file for changes that it was not told of.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the file must stay the same before it is read, and how often that is checked.
const SETTLE_TIME: Duration = Duration::from_millis(20);
const SETTLE_CHECKS: u32 = 50;

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

/// Applies a changed configuration to all running parts, or to none if one of them rejects it.
pub(crate) struct LiveConfig {
    pub(crate) environment: Environment,
    pub(crate) domains: Vec<Arc<dyn Domain>>,
    pub(crate) parts: LiveParts,
    pub(crate) notes: RunningNotes,
    /// The version of the file that the gateway started with: a change during the start counts too.
    pub(crate) started_with: ConfigVersion,
    /// Requests to check the file now.
    pub(crate) reloads: mpsc::Receiver<Reload>,
}

/// Returns what every worker gets first.
pub(crate) type WorkerSetupOf = Box<dyn Fn(&Config) -> Result<Vec<u8>> + Send + Sync>;

/// The parts of a gateway whose settings a changed configuration replaces, besides the domains.
pub(crate) struct LiveParts {
    pub(crate) gate: Arc<Gate>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) native: Arc<Native>,
    pub(crate) sessions: Sessions,
    pub(crate) workers: Option<Workers>,
    /// The first message to a worker, for a configuration.
    pub(crate) worker_setup: WorkerSetupOf,
    pub(crate) workspace: PathBuf,
}

/// A request to check the file now. The answer is sent when the change is applied or rejected.
pub(crate) type Reload = oneshot::Sender<Result<(), String>>;

impl LiveConfig {
    /// Checks the file for changes until the gateway stops.
    pub(crate) async fn follow(mut self) {
        let mut seen = self.started_with;
        let mut last = self.environment.layers.load().ok();
        // Why the file as it is was rejected.
        let mut refused = None;
        loop {
            let asked = tokio::time::timeout(CHECK_INTERVAL, self.reloads.recv()).await.ok().flatten();
            let now = self.environment.configuration_version();
            let is_news = now != seen;
            let outcome = match is_news {
                true => self.load_and_apply(&mut seen, &mut last).await,
                false => refused.clone().map_or(Ok(()), Err),
            };
            refused = outcome.clone().err();
            if let (Err(reason), true) = (&outcome, is_news) {
                self.refuse(reason);
            }
            if let Some(asked) = asked {
                let _ = asked.send(outcome);
            }
        }
    }

    /// Reads the file once it stays the same for a moment: a program may be writing it, and its first half could be valid.
    /// `seen` becomes the version that was read.
    async fn settled_file(&self, seen: &mut ConfigVersion) -> Result<Config, ConfigError> {
        for _ in 0..SETTLE_CHECKS {
            *seen = self.environment.configuration_version();
            tokio::time::sleep(SETTLE_TIME).await;
            let config = self.environment.layers.load();
            if self.environment.configuration_version() == *seen {
                return config;
            }
        }
        *seen = self.environment.configuration_version();
        self.environment.layers.load()
    }

    async fn load_and_apply(
        &self,
        seen: &mut ConfigVersion,
        last: &mut Option<Config>,
    ) -> Result<(), String> {
        let config = self.settled_file(seen).await.map_err(|err| format!("{err:#}"))?;
        self.apply(config.clone()).await?;
        self.warn_of_restart(last.as_ref(), &config);
        *last = Some(config);
        Ok(())
    }

    async fn apply(&self, mut config: Config) -> Result<(), String> {
        config.resolve_paths(|path| self.environment.resolve(path));
        let settings = self.parts.prepare(&self.environment, &config).map_err(|err| format!("{err:#}"))?;
        let sections = sections(&self.environment, &config);
        let mut checked = Vec::with_capacity(self.domains.len());
        for domain in &self.domains {
            match domain.check_config(&sections) {
                Ok(prepared) => checked.push((domain, prepared)),
                Err(violations) => {
                    let reasons = violations.iter().map(|v| format!("{}: {}", v.path, v.message));
                    return Err(reasons.collect::<Vec<_>>().join("; "));
                }
            }
        }
        let known = self.problems().await;
        // The masker must know new secrets before a domain can show one.
        self.environment.live_secrets.add(config.secrets());
        self.parts.apply(settings);
        for (domain, prepared) in checked {
            domain.apply_config(prepared).await;
        }
        for problem in self.problems().await.iter().filter(|problem| !known.contains(problem)) {
            self.warn(problem);
        }
        Ok(())
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

/// Settings that were checked and can be applied.
struct Prepared {
    gate: GateSettings,
    machine: MachineSettings,
    sessions: SessionSettings,
    agents: BTreeMap<String, gantry_gateway::Agent>,
    masked: Value,
    worker_setup: Vec<u8>,
}

impl LiveParts {
    /// Builds the settings of a configuration. Nothing changes yet.
    fn prepare(&self, environment: &Environment, config: &Config) -> Result<Prepared> {
        Ok(Prepared {
            gate: gate_settings(environment, config)?,
            machine: machine_settings(environment, config)?,
            sessions: session_settings(config, &self.workspace, &self.machine)?,
            agents: gateway_agents(config)?,
            masked: config.masked()?,
            worker_setup: (self.worker_setup)(config)?,
        })
    }

    /// Replaces the settings. The gate comes first, so that a stricter policy counts before anything else changes.
    fn apply(&self, prepared: Prepared) {
        self.gate.configure(prepared.gate);
        self.machine.configure(prepared.machine);
        let sessions = SessionSettings { cache_paths: self.machine.caches(), ..prepared.sessions };
        self.sessions.configure(sessions);
        self.gateway.configure(prepared.agents);
        self.native.configure(prepared.masked);
        gantry_toolsets::refresh_tools(&self.machine, self.gate.registry());
        if let Some(workers) = &self.workers {
            workers.replace_setup(prepared.worker_setup);
        }
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
