//! A running gateway: the gate over one data directory, and the one list of domains.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use gantry_agent::{AgentsDomain, Role, Sessions, SessionsParts};
use gantry_domain::Domain;
use gantry_gateway::{
    Agent, Certificate, Gateway, GatewayParts, Hosts, Maintenance, Nodes, PemFile, ProtectedResource,
    Serving, TlsFiles, node_lines, serve,
};
use gantry_mcp::client::McpServersDomain;
use gantry_net::GatewayUrl;
use gantry_node::NodeLog;
use gantry_process::{Processes, ProcessesOptions};
use gantry_store::{AuditLog, Database, GatewayLock, Journal, KeptResults, Memories, Running};
use gantry_tool::{Gate, GateParts, NodeState, Policy, Registry};
use gantry_toolsets::{LOCAL_NODE, Native, PartsFolder, node_tools, process_end, transfer_service};
use gantry_transfers::{IDLE_LIMIT, Transfers, TransfersDomain, TransfersParts};

use crate::agent_models::AgentModels;
use crate::config::{AgentConfig, Config, GatewayConfig};
use crate::environment::{Environment, own_program, restored_modes};
use crate::exit::UsageError;
use crate::live_config::{self, LiveConfig};
use crate::local::{KEEPER_ARGUMENT, MAIN_AGENT, Setup, masker, sensitive_paths};
use crate::logging::{self, FILE_ONLY};
use crate::open_files;
use crate::output::RunningNotes;

/// A gateway that listens, and everything it was made of.
pub(crate) struct RunningGateway {
    pub(crate) url: GatewayUrl,
    /// How others reach it, if that was said.
    pub(crate) public_url: Option<String>,
    pub(crate) workspace: PathBuf,
    /// What is configured, but hardly meant.
    pub(crate) warnings: Vec<String>,
    serving: Serving,
    processes: Processes,
    database: Database,
    gate: Arc<Gate>,
    drain: Duration,
    telling: tokio::task::JoinHandle<()>,
    following: tokio::task::JoinHandle<()>,
    log: NodeLog,
    // Last: the directory is free when all else is gone.
    _lock: GatewayLock,
}

/// Whether this machine's own tools are served too.
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
        notes: RunningNotes,
    ) -> Result<RunningGateway> {
        let mut config = environment.layers.load()?;
        config.resolve_paths(|path| environment.resolve(path));
        let data = &environment.data;
        let restored = data.restore()?;
        let now = jiff::Timestamp::now().as_millisecond();
        let running =
            Running { pid: std::process::id(), url: String::new(), started: now, certificate: None };
        let mut lock = GatewayLock::take(data, running)?;
        let is_emptied = data.is_database_emptied();
        let database = Database::open(data).await?;
        // Before anything is shown or recorded: it is a secret from the beginning.
        let operator_token = data.operator_token().context("cannot make the operator's token")?;
        let masker = masker(environment, &config);
        let log = logging::start_gateway(environment, &config, masker.clone(), notes)?;
        let results = Arc::new(KeptResults::new(data.results()));
        let kept = results.clone();
        let processes = processes(environment).await?;
        let closed = environment.closed();
        let setup = Setup {
            processes: processes.clone(),
            pending: data.pending(),
            closed: closed.clone(),
            results: results.clone(),
            one_shot: false,
            contain: false,
        };
        let registry = Registry::default();
        let machine = Arc::new(setup.machine(environment, &config)?);
        // Before nodes come: tools that have these names are known by what these declare.
        registry.set_standard_node_tools(node_tools(&machine));
        let nodes = Nodes::open(registry.clone(), database.clone())
            .await
            .with_context(|| format!("cannot use {}", data.database().display()))?;
        let memories = Memories::over(data.clone(), database.clone());
        let native = Arc::new(Native::new(config.storage.open(data)?, config.masked()?, memories));
        for tool in gantry_toolsets::all(&machine, &native) {
            // A gateway alone has no machine to work on.
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
        let audit = AuditLog::open_with(&data.audit_log(), config.audit.limits())
            .context("cannot open the audit log")?;
        let gate = Arc::new(Gate::new(GateParts {
            registry,
            policy: Policy::new(config.policy.build_rules()?, sensitive_paths(environment, &config), closed),
            masker,
            audit: Arc::new(audit),
            results: results.clone(),
            max_result_chars: config.max_tool_result_chars,
            max_mcp_result_chars: config.mcp.max_tool_result_chars,
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
        let models = Arc::new(AgentModels::new(environment, &config, database.clone(), zone(&config)?)?);
        let sessions = sessions(SessionsOf {
            models: models.clone(),
            config: &config,
            gate: &gate,
            nodes: &nodes,
            database: &database,
            results: results.clone(),
            native: &native,
            workspace: &workspace,
        })?;
        let domains: Vec<Arc<dyn Domain>> = vec![
            Arc::new(McpServersDomain(servers)),
            Arc::new(TransfersDomain(transfers)),
            Arc::new(AgentsDomain::new(sessions)),
            #[cfg(feature = "gantry-example")]
            Arc::new(gantry_example::ExampleDomain::new(config.example.clone())),
        ];
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
                let models = models.clone();
                Box::pin(async move { models.status().await })
            })),
        })
        .map_err(|method| anyhow::anyhow!("two domains answer {}", method.0))?;
        let tls = tls_files(environment, &config.gateway)?;
        let secure = tls.is_some();
        let certificate = tls.as_ref().and_then(|tls| Certificate::of(&tls.certificates.pem));
        let telling = tokio::spawn(tell_ends(processes.clone(), gateway.clone()));
        let (connections, low_limit) = open_files::room_for_connections();
        let serving = serve(gateway.clone(), config.gateway.listen, tls, connections).await?;
        let url = GatewayUrl { secure, host: reachable(serving.address.ip()), port: serving.address.port() };
        let fingerprint = certificate.as_ref().map(Certificate::fingerprint);
        lock.announce(&url.to_string(), fingerprint)
            .context("cannot write down where the gateway listens")?;
        let drain = Duration::from_secs(config.gateway.drain_seconds);
        let mut warnings = config.warnings();
        warnings.extend(restored_modes(&restored));
        warnings.extend(environment.configuration_of_others());
        warnings.extend(processes.warnings().iter().cloned());
        warnings.extend(is_emptied.then(|| {
            let path = data.database().display().to_string();
            format!(
                "{path} was empty, and a new one was made: nodes, tokens and sessions of before are not in it"
            )
        }));
        warnings.extend(live_config::problems(&domains).await);
        warnings.extend(in_the_open(&config.gateway, secure));
        warnings.extend(low_limit.map(|limit| few_files(limit, connections)));
        warnings.extend(out_of_force(&config.gateway, certificate.as_ref()));
        tracing::info!(
            target: FILE_ONLY,
            %url,
            address = %serving.address,
            version = env!("CARGO_PKG_VERSION"),
            workspace = %workspace.display(),
            "started"
        );
        warnings.iter().for_each(|detail| tracing::warn!(target: FILE_ONLY, detail, "warning"));
        let following = Following {
            config: LiveConfig { environment: environment.clone(), domains, notes },
            maintenance: Maintenance { database: database.clone(), results: kept },
        };
        let following = tokio::spawn(following.run());
        Ok(RunningGateway {
            url,
            public_url: config.gateway.public_url,
            workspace,
            warnings,
            serving,
            processes,
            database,
            gate,
            drain,
            telling,
            following,
            log,
            _lock: lock,
        })
    }

    /// Calls are drained, sockets closed with a reason; what runs in the background stays.
    pub(crate) async fn stop(self) {
        self.serving.stop(self.drain).await;
        self.following.abort();
        self.processes.shutdown().await;
        self.telling.abort();
        self.database.close().await;
        tracing::info!(target: FILE_ONLY, version = env!("CARGO_PKG_VERSION"), "stopped");
        // A log that cannot be written does not keep the gateway from stopping.
        let _ = self.log.flush();
        // A failing log was told with every call; there is nobody left to tell.
        let _ = self.gate.flush();
    }
}

struct SessionsOf<'a> {
    models: Arc<AgentModels>,
    config: &'a Config,
    gate: &'a Arc<Gate>,
    nodes: &'a Arc<Nodes>,
    database: &'a Database,
    results: Arc<KeptResults>,
    native: &'a Native,
    workspace: &'a Path,
}

/// The agents that this gateway runs itself.
fn sessions(of: SessionsOf<'_>) -> Result<Sessions> {
    let mut agents = BTreeMap::new();
    for (id, agent) in &of.config.agents {
        agents.insert(id.clone(), agent.settings(of.workspace.to_owned())?);
    }
    if !agents.contains_key(MAIN_AGENT) {
        agents.insert(MAIN_AGENT.to_owned(), AgentConfig::default().settings(of.workspace.to_owned())?);
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Sessions::new(SessionsParts {
        journal: Journal::new(of.database.clone()),
        gate: of.gate.clone(),
        model: of.models,
        results: of.results,
        objects: of.native.objects().clone(),
        agents,
        roles: roles(of.config),
        child_limit: of.config.session.child_limit(),
        idle: gantry_agent::IDLE,
        dm_scope: of.config.session.dm_scope(),
        zone: zone(of.config)?,
        nodes: node_lines(of.gate.registry().clone(), of.nodes.clone(), version),
    }))
}

/// The user's.
fn zone(config: &Config) -> Result<jiff::tz::TimeZone> {
    Ok(match &config.user_timezone {
        Some(name) => jiff::tz::TimeZone::get(name)?,
        None => jiff::tz::TimeZone::system(),
    })
}

/// The built-in roles, and those that are configured beside them or in their place.
fn roles(config: &Config) -> BTreeMap<String, Role> {
    let mut roles = gantry_agent::built_in();
    roles.extend(config.roles.iter().map(|(name, role)| (name.clone(), role.role())));
    roles
}

/// What a gateway follows while it runs: its configuration, and data past its retention. Domains have
/// workers of their own.
struct Following {
    config: LiveConfig,
    maintenance: Maintenance,
}

impl Following {
    async fn run(self) {
        tokio::join!(self.config.follow(), self.maintenance.run());
    }
}

/// With what gateways before this one left running.
async fn processes(environment: &Environment) -> Result<Processes> {
    let options = ProcessesOptions::new(own_program()?, environment.data.process_logs());
    let keeper_args = std::iter::once(KEEPER_ARGUMENT.into()).chain(open_files::raise()).collect();
    let options = ProcessesOptions { keeper_args, ..options };
    Ok(Processes::recover(options).await?)
}

/// Tells the gateway of background processes of this machine that end. What it cannot write down is offered again by
/// the next gateway.
async fn tell_ends(processes: Processes, gateway: Arc<Gateway>) {
    let mut ends = processes.exit_reports();
    while let Some(report) = ends.next().await {
        if gateway.process_ended(LOCAL_NODE, &process_end(&report)).await.is_ok() {
            let _ = processes.acknowledge(report.event_id).await;
        }
    }
}

fn agents(config: &Config) -> Result<BTreeMap<String, Agent>> {
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

/// Whoever can listen on the way has the tokens.
fn in_the_open(config: &GatewayConfig, secure: bool) -> Option<String> {
    let address = config.listen.ip();
    let is_fronted = config.public_url.as_deref().is_some_and(|url| url.starts_with("https://"));
    (!address.is_loopback() && !secure && !is_fronted).then(|| {
        format!(
            "the gateway listens on {address} without TLS: tokens and results can be read on the way; give gateway.tlsCert \
             and gateway.tlsKey, or put a proxy in front and name it with gateway.publicUrl = \"https://…\""
        )
    })
}

fn few_files(limit: u64, connections: usize) -> String {
    format!(
        "no more than {limit} files can be open, so at most {connections} connections are served at a time; raise the \
         limit (`ulimit -n`, LimitNOFILE) for more"
    )
}

/// Nobody but this machine's own commands gets in with such a certificate.
fn out_of_force(config: &GatewayConfig, certificate: Option<&Certificate>) -> Option<String> {
    let (file, reason) = (config.tls_cert.as_ref()?, certificate?.out_of_force()?);
    Some(format!("the certificate in {} {reason}: clients and nodes will refuse it", file.display()))
}

/// Our own names: the public one, configured ones, and the address and the machine's name unless that is loopback.
fn hosts(config: &GatewayConfig) -> Result<Hosts> {
    let mut names = config.hosts.clone();
    if let Some(url) = config.public_url.as_deref().filter(|url| !url.contains("://")) {
        let message = format!("gateway.publicUrl wants a whole address, such as https://{url}, not {url}");
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

/// Told to MCP clients without a token, if tokens are given out somewhere.
fn protected(config: &GatewayConfig) -> Result<Option<ProtectedResource>> {
    if config.oauth.authorization_servers.is_empty() {
        return Ok(None);
    }
    let Some(public) = &config.public_url else {
        let message = "gateway.oauth needs gateway.publicUrl: clients are told which resource a token is for";
        return Err(UsageError(message.into()).into());
    };
    Ok(Some(ProtectedResource {
        origin: public.trim_end_matches('/').to_owned(),
        authorization_servers: config.oauth.authorization_servers.clone(),
        scopes: config.oauth.scopes.clone(),
    }))
}

fn tls_files(environment: &Environment, config: &GatewayConfig) -> Result<Option<TlsFiles>> {
    match (&config.tls_cert, &config.tls_key) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => {
            let pem = |name: &PathBuf| {
                Ok::<_, anyhow::Error>(PemFile { name: name.clone(), pem: environment.read_own(name)? })
            };
            Ok(Some(TlsFiles { certificates: pem(cert)?, key: pem(key)? }))
        }
        _ => Err(UsageError("TLS takes both a certificate and a key".into()).into()),
    }
}

/// An address one can connect to, in place of one that means all.
fn reachable(address: std::net::IpAddr) -> String {
    if address.is_unspecified() { "127.0.0.1".to_owned() } else { address.to_string() }
}
