//! Starts and stops a gateway on one data directory, and holds the list of domains.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use gantry_agent::{AgentModels, AgentsDomain};
use gantry_channels::{ChannelsDomain, ChannelsParts};
use gantry_domain::Domain;
use gantry_flow::{Clock, FlowDomain, FlowParts, Outbox, PageAccess};
use gantry_gateway::{
    Agent, Certificate, Gateway, GatewayParts, Hosts, Maintenance, Nodes, PortsDomain, ProtectedResource,
    Serving, TlsIdentity, serve,
};
use gantry_google::GoogleDomain;
use gantry_mcp::client::McpServersDomain;
use gantry_net::{GatewayUrl, KeyPin};
use gantry_node::NodeLog;
use gantry_process::workers::{Workers, WorkersOptions};
use gantry_process::{Processes, ProcessesOptions};
use gantry_protocol::GatewayStatus;
use gantry_store::{AuditLog, Database, GatewayLock, KeptResults, Memories, Running};
use gantry_tool::{Gate, GateParts, Live, Masker, NodeState, Registry};
use gantry_toolsets::{
    LOCAL_NODE, Machine, Native, PartsFolder, WorkerSetup, node_tools, process_end, transfer_service,
};
use gantry_transfers::{IDLE_LIMIT, Transfers, TransfersDomain, TransfersParts};
use gantry_web::{WebDomain, WebParts};

use tokio::sync::mpsc;

use crate::administration::Administration;
use crate::agent_sessions::{SessionsOf, sessions, zone};
use crate::agent_shells_summary::agent_shells_summary;
use crate::config::{AgentConfig, Config, GatewayConfig};
use crate::environment::{Environment, own_program, restored_modes};
use crate::exit::UsageError;
use crate::gateway_tls::{self, Listening};
use crate::google;
use crate::live_config::{self, LiveConfig, LiveParts};
use crate::local::{KEEPER_ARGUMENT, Setup, WORKER_ARGUMENT, gate_settings, masker, sensitive_paths};
use crate::logging::{self, FILE_ONLY};
use crate::models::{self, ConfiguredModels};
use crate::open_files;
use crate::output::RunningNotes;

/// `RunningGateway` is a gateway that listens, with everything that must be stopped with it.
pub(crate) struct RunningGateway {
    pub(crate) url: GatewayUrl,
    /// The key that the gateway made for itself, if it uses one.
    pub(crate) key: Option<KeyPin>,
    /// The URL at which other machines reach the gateway, if configured.
    pub(crate) public_url: Option<String>,
    pub(crate) workspace: PathBuf,
    pub(crate) web: WebDomain,
    /// Problems of the configuration that do not prevent the start.
    /// What agents' shells can reach, and what is closed to them.
    pub(crate) agent_shells: [String; 2],
    pub(crate) warnings: Vec<String>,
    serving: Serving,
    processes: Processes,
    workers: Option<Workers>,
    database: Database,
    gate: Arc<Gate>,
    drain: Duration,
    exit_reports: tokio::task::JoinHandle<()>,
    background: tokio::task::JoinHandle<()>,
    log: NodeLog,
    // Dropped last, so that the directory is unlocked after everything else has stopped.
    _lock: Arc<Mutex<GatewayLock>>,
}

/// Whether the gateway also serves this machine's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalNode {
    Included,
    LeftOut,
}

impl RunningGateway {
    pub(crate) async fn start(
        environment: &Environment,
        local: LocalNode,
        workspace: PathBuf,
        page_dir: Option<PathBuf>,
        notes: RunningNotes,
    ) -> Result<RunningGateway> {
        let started_with = environment.configuration_version();
        let mut config = environment.layers.load()?;
        config.resolve_paths(|path| environment.resolve(path));
        let data = &environment.data;
        let restored = data.restore()?;
        let now = jiff::Timestamp::now().as_millisecond();
        let running = Running { pid: std::process::id(), url: String::new(), started: now, key: None };
        let lock = GatewayLock::take(data, running)?;
        let is_emptied = data.is_database_emptied();
        let database = Database::open(data).await?;
        // The token is read first, so that it is masked in everything that is shown or recorded.
        let operator_token = data.operator_token().context("cannot create the operator's token")?;
        let masker = masker(environment, &config);
        let log = logging::start_gateway(environment, &config, masker.clone(), notes)?;
        let results = Arc::new(KeptResults::new(data.results()));
        let kept = results.clone();
        let keeper_args = keeper_args();
        let processes = processes(environment, &keeper_args).await?;
        let closed = environment.closed();
        let worker_setup = worker_setup(environment, &closed, keeper_args)?;
        let workers = workers(&config, worker_setup(&config)?)?;
        let audit = AuditLog::open_with(&data.audit_log(), config.audit.limits());
        let audit = Arc::new(audit.context("cannot open the audit log")?);
        let setup = Setup {
            processes: processes.clone(),
            pending: data.pending(),
            closed: closed.clone(),
            results: results.clone(),
            audit: audit.clone(),
            one_shot: false,
            contain: false,
            workers: workers.clone(),
        };
        let registry = Registry::default();
        let machine = Arc::new(setup.machine(environment, &config)?);
        // Agents' commands must not reach the gateway. A port of 0 is known only after `serve`.
        machine.close_port(config.gateway.listen.port());
        // This precedes nodes, because their tools of the same names get these declarations.
        registry.set_standard_node_tools(node_tools(&machine));
        let nodes = Nodes::open(registry.clone(), database.clone())
            .await
            .with_context(|| format!("cannot use {}", data.database().display()))?;
        let memories = Memories::over(data.clone(), database.clone());
        let native = Arc::new(Native::new(config.storage.open(data)?, config.masked()?, memories));
        for tool in gantry_toolsets::all(&machine, &native) {
            // Without the local node there is no machine to work on.
            if local == LocalNode::Included || !tool.needs_machine() {
                registry.register(tool)?;
            }
        }
        if local == LocalNode::Included {
            registry.set_node_state(LOCAL_NODE, NodeState { online: true, tags: Vec::new() });
        }
        nodes.set_local_log(logging::reader(&log), local == LocalNode::Included);
        let servers =
            live_config::open_mcp_servers(environment, &config, processes.clone(), registry.clone())?;
        let gate = Arc::new(Gate::new(GateParts {
            registry,
            settings: Live::new(gate_settings(environment, &config)?),
            masker: masker.clone(),
            audit,
            results: results.clone(),
        }));
        let parts = PartsFolder { root: data.parts(), owner: LOCAL_NODE.to_owned() };
        let local_files = || transfer_service(&machine, &gate, Some(LOCAL_NODE), workspace.clone(), &parts);
        let transfers = Transfers::new(TransfersParts {
            nodes: nodes.clone(),
            gate: gate.clone(),
            database: database.clone(),
            objects: native.objects().clone(),
            data: data.clone(),
            local: (local == LocalNode::Included).then(local_files).transpose()?,
            idle_limit: IDLE_LIMIT,
        });
        nodes.set_transfers(&transfers);
        let configured = Arc::new(ConfiguredModels::new(environment, &config));
        let setup = models::setup(environment, &config)?;
        let models = Arc::new(AgentModels::new(configured.clone(), setup, database.clone(), zone(&config)?));
        let sessions = sessions(SessionsOf {
            models: models.clone(),
            config: &config,
            gate: &gate,
            nodes: &nodes,
            database: &database,
            native: &native,
            machine: &machine,
            workspace: &workspace,
        })?;
        let outbox = Outbox::default();
        let (reload, reloads) = mpsc::channel(16);
        let public_url = config.gateway.public_url.clone();
        let web = WebDomain::new(WebParts {
            database: database.clone(),
            page_dir,
            public_url,
            objects: native.objects().clone(),
            data: data.clone(),
        });
        let tls = gateway_tls::tls_identity(environment, &config.gateway)?;
        let listening = Listening::default();
        let join = gateway_tls::join_domain(&config.gateway, &nodes, &database, tls.as_ref(), &listening)?;
        // Each domain is one line, its feature included.
        #[rustfmt::skip]
        let domains: Vec<Arc<dyn Domain>> = vec![
            Arc::new(McpServersDomain(servers)),
            Arc::new(TransfersDomain(transfers)),
            Arc::new(PortsDomain(machine.clone())),
            Arc::new(join),
            Arc::new(AgentsDomain::new(sessions.clone())),
            Arc::new(ChannelsDomain::open(ChannelsParts { config: config.channels.clone(), database: database.clone(), sessions: sessions.clone(), outbox: outbox.clone(), objects: native.objects().clone(), network: config.web.network(environment.trust()?), secret: models::stored_secret(environment), public_url: config.gateway.public_url.clone() }).await?),
            Arc::new(FlowDomain::new(FlowParts { config: config.flow.clone(), tasks: config.tasks.clone(), database: database.clone(), sessions: sessions.clone(), outbox, clock: Clock::system(), zone: zone(&config)?, network: config.web.network(environment.trust()?), secret: models::stored_secret(environment), pages: pages(&machine), masker: masker.clone() })),
            Arc::new(GoogleDomain::new(google::parts(environment, &config, &machine, &native, &masker)?)),
            Arc::new(web.clone()),
            Arc::new(Administration::new(environment.clone(), database.clone(), models.clone(), zone(&config)?, reload)),
            #[cfg(feature = "gantry-example")] Arc::new(gantry_example::ExampleDomain::new(config.example.clone())),
        ];
        sessions.set_owner_commands(domains.iter().flat_map(|domain| domain.owner_commands()).collect());
        let gateway = Gateway::new(GatewayParts {
            domains: domains.clone(),
            gate: gate.clone(),
            nodes: nodes.clone(),
            database: database.clone(),
            results,
            operator_token,
            agents: agents(&config)?,
            hosts: hosts(&config.gateway)?,
            workspace: workspace.clone(),
            public_url: config.gateway.public_url.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protected: protected(&config.gateway)?,
            mcp_idle: Duration::from_secs(config.gateway.mcp_idle_seconds),
            status: Some(Arc::new(move || {
                let (models, configured) = (models.clone(), configured.clone());
                Box::pin(async move {
                    let needs_restart = configured.needs_restart();
                    GatewayStatus { models: Some(models.report().await), needs_restart }
                })
            })),
        })
        .map_err(|method| anyhow::anyhow!("two domains register the method {}", method.0))?;
        let secure = tls.is_some();
        let certificate = tls.as_ref().and_then(|tls| tls.certificate());
        let exit_reports = tokio::spawn(report_process_exits(processes.clone(), gateway.clone(), masker));
        let (connections, low_limit) = open_files::room_for_connections();
        let serving = serve(gateway.clone(), config.gateway.listen, tls.clone(), connections).await?;
        machine.close_port(serving.address.port());
        let _ = listening.set(serving.address);
        let url = GatewayUrl { secure, host: reachable(serving.address.ip()), port: serving.address.port() };
        let lock = announce(lock, &url, tls.as_ref())
            .context("cannot record the gateway's address in the data directory")?;
        let drain = Duration::from_secs(config.gateway.drain_seconds);
        let mut warnings = config.warnings();
        warnings.extend(restored_modes(&restored));
        warnings.extend(environment.configuration_of_others());
        warnings.extend(processes.warnings().iter().cloned());
        let isolation_problem = machine.isolation_problem();
        let agent_shells = agent_shells_summary(&config, isolation_problem.as_deref());
        warnings.extend(isolation_problem);
        warnings.extend(is_emptied.then(|| {
            let path = data.database().display().to_string();
            format!(
                "{path} was empty, so a new database was created without the earlier nodes, tokens and sessions"
            )
        }));
        warnings.extend(live_config::problems(&domains).await);
        warnings.extend(missing_tls(&config.gateway, secure));
        warnings.extend(low_limit.map(|limit| low_file_limit(limit, connections)));
        warnings.extend(invalid_certificate(&config.gateway, certificate.as_ref()));
        tracing::info!(
            target: FILE_ONLY,
            %url,
            address = %serving.address,
            version = env!("CARGO_PKG_VERSION"),
            workspace = %workspace.display(),
            "started"
        );
        warnings.iter().for_each(|detail| tracing::warn!(target: FILE_ONLY, detail, "warning"));
        let live = LiveParts {
            gate: gate.clone(),
            gateway: gateway.clone(),
            machine: machine.clone(),
            native: native.clone(),
            sessions: sessions.clone(),
            workers: workers.clone(),
            worker_setup: Box::new(worker_setup),
            workspace: workspace.clone(),
        };
        let background = BackgroundWork {
            config: LiveConfig {
                environment: environment.clone(),
                domains,
                parts: live,
                notes,
                started_with,
                reloads,
            },
            maintenance: Maintenance { database: database.clone(), results: kept },
        };
        let background = tokio::spawn(background.run());
        Ok(RunningGateway {
            url,
            key: tls.filter(|tls| tls.is_own()).and_then(|tls| tls.key()),
            public_url: config.gateway.public_url,
            workspace,
            web,
            agent_shells,
            warnings,
            serving,
            processes,
            workers,
            database,
            gate,
            drain,
            exit_reports,
            background,
            log,
            _lock: lock,
        })
    }

    /// Returns whether other machines may reach the gateway: directly, or through its public URL.
    pub(crate) fn is_reachable(&self) -> bool {
        self.public_url.is_some() || !self.serving.address.ip().is_loopback()
    }

    /// Waits for running calls and closes the connections with a reason. Background commands keep running.
    pub(crate) async fn stop(self) {
        self.serving.stop(self.drain).await;
        self.background.abort();
        self.processes.shutdown().await;
        if let Some(workers) = &self.workers {
            workers.shutdown().await;
        }
        self.exit_reports.abort();
        self.database.close().await;
        tracing::info!(target: FILE_ONLY, version = env!("CARGO_PKG_VERSION"), "stopped");
        // A failed write of the log must not prevent the stop.
        let _ = self.log.flush();
        // A failing audit log was reported with every call.
        let _ = self.gate.flush();
    }
}

/// `BackgroundWork` applies configuration changes and removes data past its retention. Domains have
/// their own workers.
struct BackgroundWork {
    config: LiveConfig,
    maintenance: Maintenance,
}

impl BackgroundWork {
    async fn run(self) {
        tokio::join!(self.config.follow(), self.maintenance.run());
    }
}

/// How watched pages are fetched: like the pages of the agents' web tools.
fn pages(machine: &Arc<Machine>) -> PageAccess {
    let own = machine.clone();
    PageAccess { client: machine.web_client(), policy: Arc::new(move |agent| own.reachable_by(agent)) }
}

/// Opens the process engine and reconnects to commands that earlier gateways left running.
async fn processes(environment: &Environment, keeper_args: &[String]) -> Result<Processes> {
    let options = ProcessesOptions::new(own_program()?, environment.data.process_logs());
    let keeper_args = keeper_args.iter().map(Into::into).collect();
    Ok(Processes::recover(ProcessesOptions { keeper_args, ..options }).await?)
}

/// Raises the limit of open files. Returns the arguments of keepers, which restore it.
fn keeper_args() -> Vec<String> {
    std::iter::once(KEEPER_ARGUMENT.to_owned()).chain(open_files::raise()).collect()
}

/// Returns what every worker gets first, as a function of the configuration.
fn worker_setup(
    environment: &Environment,
    closed: &[PathBuf],
    keeper_args: Vec<String>,
) -> Result<impl Fn(&Config) -> Result<Vec<u8>> + Send + Sync + use<>> {
    let (environment, closed, keeper) = (environment.clone(), closed.to_vec(), own_program()?);
    Ok(move |config: &Config| {
        let setup = WorkerSetup {
            closed: closed.clone(),
            pending: environment.data.pending(),
            sensitive: sensitive_paths(&environment, config),
            keeper: keeper.clone(),
            keeper_args: keeper_args.clone(),
            process_logs: environment.data.process_logs(),
        };
        Ok(serde_json::to_vec(&setup)?)
    })
}

/// Prepares the pool of worker processes. They start when calls need them.
fn workers(config: &Config, setup: Vec<u8>) -> Result<Option<Workers>> {
    let args = vec![WORKER_ARGUMENT.into()];
    let options = WorkersOptions { args, ..WorkersOptions::new(own_program()?, setup) };
    Ok(config.workers.apply(options).map(Workers::new))
}

/// Reports exits of this machine's background processes to the gateway. An exit that the gateway cannot record stays
/// unacknowledged, and the next gateway gets it again.
async fn report_process_exits(processes: Processes, gateway: Arc<Gateway>, masker: Masker) {
    let mut exits = processes.exit_reports();
    while let Some(report) = exits.next().await {
        if gateway.process_ended(LOCAL_NODE, &process_end(&report, &masker)).await.is_ok() {
            let _ = processes.acknowledge(report.event_id).await;
        }
    }
}

pub(crate) fn agents(config: &Config) -> Result<BTreeMap<String, Agent>> {
    let agent = |(id, agent): (&String, &AgentConfig)| {
        let made = Agent {
            autonomy: agent.autonomy,
            scope: agent.scope()?,
            workspace: agent.workspace.clone(),
            node: agent.node.clone(),
        };
        Ok((id.clone(), made))
    };
    config.agents.iter().map(agent).collect()
}

/// Writes the gateway's address and key for commands on this data directory, and the new key after each rotation.
fn announce(
    mut lock: GatewayLock,
    url: &GatewayUrl,
    tls: Option<&Arc<TlsIdentity>>,
) -> std::io::Result<Arc<Mutex<GatewayLock>>> {
    let url = url.to_string();
    lock.announce(&url, tls.and_then(|tls| tls.key()).map(|key| key.to_string()))?;
    let lock = Arc::new(Mutex::new(lock));
    if let Some(tls) = tls {
        // Weak, because the lock must end with the gateway.
        let weak = Arc::downgrade(&lock);
        tls.on_switch(move |key| {
            let Some(lock) = weak.upgrade() else { return };
            let mut lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(err) = lock.announce(&url, Some(key.to_string())) {
                tracing::warn!(error = %err, "gateway_key_not_recorded");
            }
        });
    }
    Ok(lock)
}

/// Warns of a gateway that other machines reach without encryption.
fn missing_tls(config: &GatewayConfig, secure: bool) -> Option<String> {
    let address = config.listen.ip();
    let is_fronted = config.public_url.as_deref().is_some_and(|url| url.starts_with("https://"));
    (!address.is_loopback() && !secure && !is_fronted).then(|| {
        format!(
            "the gateway listens on {address} without TLS, so others on the network can read tokens and results; set \
             gateway.tls = \"auto\", or use a TLS proxy and set gateway.publicUrl = \"https://…\""
        )
    })
}

fn low_file_limit(limit: u64, connections: usize) -> String {
    format!(
        "this process may open only {limit} files, so the gateway serves at most {connections} connections; raise the \
         limit (`ulimit -n`, LimitNOFILE) for more"
    )
}

/// Warns of a certificate that clients and nodes reject because of its dates.
fn invalid_certificate(config: &GatewayConfig, certificate: Option<&Certificate>) -> Option<String> {
    let (file, reason) = (config.tls_cert.as_ref()?, certificate?.validity_problem()?);
    Some(format!("the certificate in {} {reason}; clients and nodes will reject it", file.display()))
}

/// Returns the host names that requests may use: the public and configured ones, and, unless the gateway listens on
/// loopback, its address and the machine's name.
fn hosts(config: &GatewayConfig) -> Result<Hosts> {
    let mut names = config.hosts.clone();
    if let Some(url) = config.public_url.as_deref().filter(|url| !url.contains("://")) {
        let message = format!("gateway.publicUrl must be a complete URL such as https://{url}, not {url}");
        return Err(UsageError(message).into());
    }
    let public = config.public_url.as_deref().map(GatewayUrl::parse).transpose();
    let public = public.map_err(|err| UsageError(err.to_string()))?;
    names.extend(public.iter().map(|public| public.host.clone()));
    let address = config.listen.ip();
    if !address.is_loopback() {
        names.push(address.to_string());
        names.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    }
    let configured = config.hosts.iter().map(|name| (name.as_str(), None));
    let fronts = configured.chain(public.iter().map(|public| (public.host.as_str(), Some(public.port))));
    Ok(fronts.fold(Hosts::new(names), |hosts, (name, port)| hosts.fronted_by(name, port)))
}

/// Returns the OAuth metadata for MCP clients without a token, if authorization servers are configured.
fn protected(config: &GatewayConfig) -> Result<Option<ProtectedResource>> {
    if config.oauth.authorization_servers.is_empty() {
        return Ok(None);
    }
    let Some(public) = &config.public_url else {
        let message = "gateway.oauth requires gateway.publicUrl, because tokens are issued for that URL";
        return Err(UsageError(message.into()).into());
    };
    Ok(Some(ProtectedResource {
        origin: public.trim_end_matches('/').to_owned(),
        authorization_servers: config.oauth.authorization_servers.clone(),
        scopes: config.oauth.scopes.clone(),
    }))
}

/// Returns an address to connect to: loopback in place of the unspecified address.
fn reachable(address: std::net::IpAddr) -> String {
    if address.is_unspecified() { "127.0.0.1".to_owned() } else { address.to_string() }
}
