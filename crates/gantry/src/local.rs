//! The in-process gate: this machine's tools with the policy, audit log and stored results of the data directory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result};
use gantry_apis::Apis;
use gantry_files::{Files, FilesOptions};
use gantry_mcp::client::Servers;
use gantry_net::GatewayUrl;
use gantry_process::workers::Workers;
use gantry_process::{Processes, ProcessesOptions};
use gantry_store::{AuditLimits, AuditLog, DataDir, GatewayLock, KeptResults, Memories, Objects};
use gantry_tool::{
    AuditError, AuditRecord, AuditSink, Call, Durability, Gate, GateParts, GateSettings, Live, Masker,
    Policy, Principal, Registry, SensitivePaths, Surface, Tool, nearest,
};
use gantry_toolsets::{Machine, MachineParts, MachineSettings, Native, Web};

use crate::config::{AgentConfig, Config};
use crate::environment::{Environment, own_program};
use crate::exit::UsageError;
use crate::live_config;

/// `gantry __exec` is the keeper of one command.
pub(crate) const KEEPER_ARGUMENT: &str = "__exec";

/// `gantry __worker` is a worker of a gateway.
pub(crate) const WORKER_ARGUMENT: &str = "__worker";

pub(crate) struct Local {
    pub(crate) gate: Gate,
    pub(crate) config: Config,
    pub(crate) environment: Environment,
    pub(crate) processes: Processes,
    pub(crate) servers: Servers,
}

/// How long an in-process gate is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// One call, after which the process exits.
    OneCall,
    /// Any number of calls.
    Conversation,
}

impl Local {
    pub(crate) fn open(environment: Environment) -> Result<Local> {
        Local::open_for(environment, Lifetime::OneCall)
    }

    pub(crate) fn open_for(environment: Environment, lifetime: Lifetime) -> Result<Local> {
        let mut config = environment.layers.load()?;
        config.resolve_paths(|path| environment.resolve(path));
        let data = &environment.data;
        data.create()?;
        let closed = environment.closed();
        let results = Arc::new(KeptResults::new(data.results()));
        let processes = processes_for(data, lifetime)?;
        let audit = Arc::new(LazyAudit::new(data, &config));
        let setup = Setup {
            processes: processes.clone(),
            pending: data.pending(),
            closed,
            results: results.clone(),
            audit: audit.clone(),
            one_shot: lifetime == Lifetime::OneCall,
            contain: false,
            workers: None,
        };
        let machine = setup.machine(&environment, &config)?;
        if let Some(port) = config.shell.settings().isolated.then(|| running_gateway_port(data)).flatten() {
            machine.close_port(port);
        }
        let registry = Registry::default();
        let memories = Memories::new(data.clone());
        let native = Arc::new(Native::new(config.storage.open(data)?, config.masked()?, memories));
        let own = gantry_toolsets::all(&Arc::new(machine), &native);
        for tool in own.into_iter().chain(domain_tools(native.objects())) {
            registry.register(tool)?;
        }
        let servers =
            live_config::open_mcp_servers(&environment, &config, processes.clone(), registry.clone())?;
        let gate = Gate::new(GateParts {
            registry,
            settings: Live::new(gate_settings(&environment, &config)?),
            masker: masker(&environment, &config),
            audit,
            results,
        });
        Ok(Local { gate, config, environment, processes, servers })
    }

    /// Makes a call by the operator, or as an agent with its view, policy and workspace.
    pub(crate) fn call(&self, agent: Option<&str>, workspace: Option<PathBuf>) -> Result<Call> {
        let configured = self.agent(agent.unwrap_or(MAIN_AGENT))?;
        let principal = match agent {
            Some(id) => Principal::Agent { id: id.to_owned() },
            None => Principal::Operator,
        };
        let workspace = workspace.or(configured.workspace.clone()).unwrap_or_default();
        let mut call = Call::new(principal, Surface::Cli, self.environment.current_dir.join(workspace));
        call.autonomy = configured.autonomy;
        call.scope = configured.scope()?;
        call.default_node = configured.node;
        Ok(call)
    }

    /// Returns the agent of that name. `main` always exists.
    pub(crate) fn agent(&self, id: &str) -> Result<AgentConfig> {
        if let Some(agent) = self.config.agents.get(id) {
            return Ok(agent.clone());
        }
        if id == MAIN_AGENT {
            return Ok(AgentConfig::default());
        }
        let known = self.config.agents.keys().map(String::as_str).chain([MAIN_AGENT]);
        let hint = match nearest(id, known).first() {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "configure agents as [agents.NAME] in gantry.toml".to_owned(),
        };
        Err(UsageError(format!("unknown agent \"{id}\"; {hint}")).into())
    }
}

/// Returns the domains' tools without a gateway. They are listed, and their calls fail with a hint to start one.
fn domain_tools(objects: &Objects) -> Vec<Tool> {
    gantry_toolsets::gateway_tools(objects, None)
        .into_iter()
        .chain(gantry_agent::tools(None))
        .chain(gantry_flow::tools(None))
        .chain(gantry_channels::tools())
        .collect()
}

pub(crate) const MAIN_AGENT: &str = "main";

/// `Setup` holds what differs between machines made from the same configuration.
pub(crate) struct Setup {
    pub(crate) processes: Processes,
    /// The folder that records unfinished writes.
    pub(crate) pending: PathBuf,
    /// Gantry's own paths, closed to every tool.
    pub(crate) closed: Vec<PathBuf>,
    pub(crate) results: Arc<KeptResults>,
    /// Records the connections of isolated commands.
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) one_shot: bool,
    /// Whether every tool stays in the workspace, for every caller.
    pub(crate) contain: bool,
    /// The processes that run `bash`, `read_file` and `write_file`, in a gateway.
    pub(crate) workers: Option<Workers>,
}

impl Setup {
    /// Builds the machine from the configuration.
    pub(crate) fn machine(self, environment: &Environment, config: &Config) -> Result<Machine> {
        let files = FilesOptions { closed: self.closed.clone(), pending_dir: Some(self.pending) };
        Ok(Machine::new(MachineParts {
            files: Files::new(files)?,
            processes: self.processes,
            results: self.results,
            variables: environment.variables.clone(),
            closed: self.closed,
            settings: machine_settings(environment, config)?,
            temp_dir: environment.variable("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from),
            agent_caches: agent_caches(environment),
            audit: self.audit,
            one_shot: self.one_shot,
            contain: self.contain,
            workers: self.workers,
        }))
    }
}

/// Returns the settings of the machine that a changed configuration replaces.
pub(crate) fn machine_settings(environment: &Environment, config: &Config) -> Result<MachineSettings> {
    Ok(MachineSettings {
        sensitive: sensitive_paths(environment, config),
        shell: config.shell.settings(),
        isolation: config.isolation.settings(),
        agent_isolation: agent_isolation(config),
        web: web(environment, config)?,
        egress: config.egress.settings(config.web.network(environment.trust()?)),
    })
}

/// Returns the settings of a gate that a changed configuration replaces.
pub(crate) fn gate_settings(environment: &Environment, config: &Config) -> Result<GateSettings> {
    let sensitive = sensitive_paths(environment, config);
    Ok(GateSettings {
        policy: Policy::new(config.policy.build_rules()?, sensitive, environment.closed()),
        max_result_chars: config.max_tool_result_chars,
        max_mcp_result_chars: config.mcp.max_tool_result_chars,
    })
}

/// Returns the directory for the package caches of agents: `gantry/agents` in the user's cache directory.
fn agent_caches(environment: &Environment) -> Option<PathBuf> {
    let absolute =
        |name: &str| environment.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("gantry/agents"))
}

/// Returns the port of the gateway that runs on this data directory.
fn running_gateway_port(data: &DataDir) -> Option<u16> {
    let running = GatewayLock::running(data)?;
    GatewayUrl::parse(&running.url).ok().map(|url| url.port)
}

/// Builds the web settings, with search providers' keys from the environment and the stored secrets.
pub(crate) fn web(environment: &Environment, config: &Config) -> Result<Web> {
    let trust = environment.trust()?;
    Ok(Web {
        secrets: Some(environment.secrets()),
        apis: Some(Apis::new(&environment.data)),
        masker: masker(environment, config),
        ..config.web.settings(&|name| environment.variable(name)?.to_str().map(str::to_owned), trust)
    })
}

pub(crate) fn sensitive_paths(environment: &Environment, config: &Config) -> SensitivePaths {
    let absolute =
        |name: &str| environment.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let real = |name: &str| absolute(name).map(|path| environment.resolve(&path));
    let paths = SensitivePaths::new(config.policy.sensitive_paths.clone()).with_moved_start_files(absolute);
    match real("HOME") {
        Some(home) => paths.with_mcp_clients(&home, real),
        None => paths,
    }
}

/// Masks the secrets of the environment, the configuration and the data directory.
pub(crate) fn masker(environment: &Environment, config: &Config) -> Masker {
    Masker::new(known_secrets(environment, config))
        .following(Arc::new(environment.live_secrets.and(environment.secrets())))
}

/// Returns the secrets of the environment and the configuration, and the operator's token.
pub(crate) fn known_secrets(environment: &Environment, config: &Config) -> Vec<String> {
    secrets(environment)
        .into_iter()
        .chain(config.secrets())
        .chain(environment.data.known_operator_token())
        .collect()
}

pub(crate) fn processes(data: &DataDir) -> Result<Processes> {
    processes_for(data, Lifetime::OneCall)
}

fn processes_for(data: &DataDir, lifetime: Lifetime) -> Result<Processes> {
    let options = ProcessesOptions::new(own_program()?, data.process_logs());
    // A process that runs one command does not need a spare keeper.
    Ok(Processes::new(ProcessesOptions {
        keeper_args: vec![KEEPER_ARGUMENT.into()],
        spare_keeper: lifetime == Lifetime::Conversation,
        ..options
    }))
}

fn agent_isolation(config: &Config) -> BTreeMap<String, gantry_toolsets::Isolation> {
    let own = |(id, agent): (&String, &AgentConfig)| Some((id.clone(), agent.isolation.as_ref()?.settings()));
    config.agents.iter().filter_map(own).collect()
}

/// Returns the variables of this process that look like secrets.
fn secrets(environment: &Environment) -> Vec<String> {
    let secret = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| {
        let (name, value) = (name.to_str()?, value.to_str()?);
        Masker::is_secret_name(name).then(|| value.to_owned())
    };
    environment.variables.iter().filter_map(secret).collect()
}

/// Opens the audit log when the first line is written, because listing tools writes none.
pub(crate) struct LazyAudit {
    path: PathBuf,
    limits: AuditLimits,
    log: OnceLock<AuditLog>,
    opening: Mutex<()>,
}

impl LazyAudit {
    pub(crate) fn new(data: &DataDir, config: &Config) -> LazyAudit {
        LazyAudit {
            path: data.audit_log(),
            limits: config.audit.limits(),
            log: OnceLock::new(),
            opening: Mutex::new(()),
        }
    }

    fn open(&self) -> Result<&AuditLog, AuditError> {
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        let log = AuditLog::open_with(&self.path, self.limits)
            .with_context(|| format!("cannot open {}", self.path.display()))
            .map_err(|err| AuditError(format!("{err:#}")))?;
        Ok(self.log.get_or_init(|| log))
    }
}

impl AuditSink for LazyAudit {
    fn append(&self, record: AuditRecord, durability: Durability) -> Result<(), AuditError> {
        self.open()?.append(record, durability)
    }

    fn settle(&self) {
        if let Some(log) = self.log.get() {
            log.settle();
        }
    }

    fn flush(&self) -> Result<(), AuditError> {
        self.log.get().map_or(Ok(()), AuditSink::flush)
    }
}
