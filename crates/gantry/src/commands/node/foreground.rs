//! Runs a node in the foreground until it is stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use gantry_files::{FileError, Files, FilesOptions};
use gantry_net::{GatewayUrl, KnownKeys, Trust};
use gantry_node::{
    ExitReason, GatewayPlace, JoinedNode, Node, NodeHome, NodeLog, NodeOptions, Pace, Rejoin, Token,
    TokenSource, check_address,
};
use gantry_process::{Processes, ProcessesOptions};
use gantry_store::KeptResults;
use gantry_tool::{Gate, GateParts, Live, Masker, Registry, Tool, nearest};
use gantry_toolsets::{PartsFolder, transfer_service};
use gantry_transfer::TransferService;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{NodeArgs, renamed};
use crate::config::Config;
use crate::environment::{Environment, own_program, restored_modes};
use crate::exit::{Exit, UsageError};
use crate::local::{KEEPER_ARGUMENT, LazyAudit, Setup, gate_settings, known_secrets};
use crate::logging::{self, GateEvents};
use crate::output::Output;

/// Certificate files beyond this size are rejected as a mistake.
const MAX_PEM_BYTES: u64 = 1 << 20;

pub(crate) fn run(mut environment: Environment, output: &Output, args: &NodeArgs) -> Result<Exit> {
    let level = args.log_level.map(|level| format!("log.level={:?}", level.name()));
    environment.layers.overrides.extend(level);
    let mut config = environment.layers.load()?;
    config.resolve_paths(|path| environment.resolve(path));
    config.warnings().iter().for_each(|warning| output.warning(warning));
    // The environment may hold the node's token.
    gantry_process::hide_from_others();
    let joining = Joining::new(&environment, &config, args)?;
    restored_modes(&environment.data.restore()?).iter().for_each(|warning| output.warning(warning));
    environment.configuration_of_others().iter().for_each(|warning| output.warning(warning));
    let home = NodeHome::new(environment.data.root(), &joining.id).map_err(usage)?;
    let _lock = home.take().map_err(usage)?;
    let log = NodeLog::with_limit(&home.logs(), home.id(), config.log.max_file_bytes())
        .with_context(|| format!("cannot write the node's log in {}", home.logs().display()))?;
    let masker = joining.masker(&environment, &config);
    logging::start(&log, &config, masker, output.running_notes(), GateEvents::LeftOut);

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    let (own_home, badge) = (home.clone(), joining.badge());
    let gateway = joining.options.gateway.clone();
    renamed::take_over(environment.data.root(), &home, &badge)?;
    let over = runtime.block_on(async {
        let processes = processes(&home).await?;
        let (gate, transfers) = gate(&environment, &config, &joining, &home, &log, processes.clone())?;
        let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
        watch_signals(stop.clone(), abort.clone())?;
        let options = joining.options;
        let (gate, service) = (Arc::new(gate), Some(transfers.clone()));
        let node = Node { home, options, gate, processes, log: log.clone(), transfers: service };
        let over = tokio::select! {
            over = gantry_node::run(node, stop, abort) => over,
            never = transfers.keep_tidy() => match never {},
        };
        // No transfer will resume here, unless the node is expected back.
        if let ExitReason::Unauthorized { rejoin: Rejoin::Unexpected, .. } = &over
            && let Err(err) = transfers.abandon_all().await
        {
            tracing::warn!(error = %err, "partsNotRemoved");
        }
        anyhow::Ok(over)
    })?;
    // The process engine ends with the runtime.
    drop(runtime);
    let ExitReason::Unauthorized { reason, rejoin } = over else { return Ok(Exit::Success) };
    if let Rejoin::UnderId(new_id) = &rejoin {
        renamed::hand_over(environment.data.root(), &own_home, new_id, &badge);
        if let Err(err) = hand_over_parts(
            &environment,
            &parts_owner(own_home.id(), &gateway),
            &parts_owner(new_id, &gateway),
        ) {
            tracing::warn!(newId = new_id, error = %err, "partsStay");
        }
    }
    let _ = log.flush();
    let advice = advice(own_home.id(), &rejoin);
    output.error(&format!("the gateway rejected this node: {reason}{advice}"));
    Ok(Exit::Unauthorized)
}

/// Names the owner of partial files. It includes the gateway, because another gateway cannot resume them.
fn parts_owner(id: &str, gateway: &GatewayUrl) -> String {
    let gateway = blake3::hash(gateway.to_string().as_bytes()).to_hex();
    format!("{id}-{}", &gateway[..16])
}

/// Hands partial files to the node's new id, so that transfers can resume.
fn hand_over_parts(environment: &Environment, owner: &str, new_owner: &str) -> Result<(), FileError> {
    let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?;
    files.part_records(&environment.data.parts(), owner)?.hand_over_to(new_owner)
}

/// Returns a hint how to make the gateway accept the node, where its reason does not include one.
fn advice(id: &str, rejoin: &Rejoin) -> String {
    match rejoin {
        Rejoin::UnderId(_) => String::new(),
        Rejoin::WithNewToken => {
            "\nhint: run the line that `gantry nodes renew` printed on the gateway, or restart the node with its new token"
                .to_owned()
        }
        Rejoin::Unexpected => format!(
            "\nhint: run `gantry nodes renew {id}` on the gateway (or `gantry nodes add {id}` if the node is unknown \
             there), and then here the line that it prints"
        ),
    }
}

/// `Joining` is the node's checked configuration. It is made before anything starts.
pub(crate) struct Joining {
    pub(crate) id: String,
    pub(crate) options: NodeOptions,
    tools: Option<Vec<String>>,
    contain: bool,
    /// The current token, so that it can be masked.
    secret: String,
    token_file: Option<PathBuf>,
}

impl Joining {
    pub(crate) fn new(environment: &Environment, config: &Config, args: &NodeArgs) -> Result<Joining> {
        let missing =
            |what: &str| UsageError(format!("{what} is missing; `gantry node --help` shows examples"));
        let id = args.id.clone().or_else(|| only_joined(environment)).ok_or_else(|| missing("--id ID"))?;
        gantry_protocol::check_node_id(&id).map_err(usage)?;
        if id == gantry_toolsets::LOCAL_NODE {
            return Err(UsageError(format!(
                "\"{id}\" is reserved for the gateway's own machine; choose another --id"
            ))
            .into());
        }
        let home = NodeHome::new(environment.data.root(), &id).map_err(usage)?;
        if environment.gateway.is_none()
            && let Some(record) = JoinedNode::read(&home)?
        {
            return Joining::joined(environment, config, args, &home, &record);
        }
        let gateway =
            GatewayUrl::parse(environment.gateway.as_deref().ok_or_else(|| missing("--gateway URL"))?)
                .map_err(usage)?;
        check_address(&gateway, args.insecure).map_err(usage)?;
        let given = environment.gateway_key()?;
        let keys = KnownKeys::new(given);
        let trust = match (&given, &args.tls_ca) {
            (Some(_), _) => Trust::Keys { known: keys.clone(), or: None },
            (None, ca) => authorities(environment, ca.as_deref())?,
        };
        let token = token(environment, config, args)?;
        let secret = token.read().map_err(usage)?.expose().to_owned();
        let token_file = match &token {
            TokenSource::File(path) => Some(path.clone()),
            TokenSource::Given(_) => None,
        };
        let options = NodeOptions {
            gateway,
            trust,
            others: Vec::new(),
            keys,
            token,
            workspace: workspace(environment, args.workspace.as_deref())?,
            max_calls: config.node.max_calls,
            pace: Pace::default(),
        };
        Ok(Joining { id, options, tools: args.tools.clone(), contain: args.contain, secret, token_file })
    }

    /// The configuration of a node that joined with a code. Options on the command line override its record.
    fn joined(
        environment: &Environment,
        config: &Config,
        args: &NodeArgs,
        home: &NodeHome,
        record: &JoinedNode,
    ) -> Result<Joining> {
        let keys = record.known_keys();
        let ca = args.tls_ca.as_deref().or(record.tls_ca.as_deref());
        let mut places = record.places(&keys, &authorities(environment, ca)?).into_iter();
        let Some(first) = places.next() else {
            let message = format!("{} names no gateway; join again", home.joined_file().display());
            return Err(UsageError(message).into());
        };
        let others: Vec<GatewayPlace> = places.collect();
        for place in std::iter::once(&first).chain(&others) {
            check_address(&place.url, args.insecure || record.insecure).map_err(usage)?;
        }
        let token_file =
            args.token_file.as_deref().map_or_else(|| home.token_file(), |path| environment.resolve(path));
        let token = TokenSource::File(token_file.clone());
        let secret = token.read().map_err(usage)?.expose().to_owned();
        let options = NodeOptions {
            gateway: first.url,
            trust: first.trust,
            others,
            keys,
            token,
            workspace: workspace(environment, Some(args.workspace.as_deref().unwrap_or(&record.workspace)))?,
            max_calls: config.node.max_calls,
            pace: Pace::default(),
        };
        Ok(Joining {
            id: home.id().to_owned(),
            options,
            tools: args.tools.clone().or_else(|| record.tools.clone()),
            contain: args.contain || record.contain,
            secret,
            token_file: Some(token_file),
        })
    }
}

/// Returns the id of the only node on this machine that joined with a code.
fn only_joined(environment: &Environment) -> Option<String> {
    let homes = NodeHome::all(environment.data.root()).into_iter();
    let mut joined = homes.filter(|home| matches!(JoinedNode::read(home), Ok(Some(_))));
    joined.next().filter(|_| joined.next().is_none()).map(|home| home.id().to_owned())
}

/// Returns the certificate authorities to trust: the system's, and the one in the file.
pub(crate) fn authorities(environment: &Environment, file: Option<&Path>) -> Result<Trust> {
    match file {
        None => environment.trust(),
        Some(path) => Ok(Trust::And { name: path.to_owned(), pem: read_pem(environment, path)? }),
    }
}

impl Joining {
    /// Identifies the node after a rename, by a hash of its token, which stays the same.
    fn badge(&self) -> String {
        let key = blake3::derive_key("gantry node badge", self.secret.as_bytes());
        blake3::Hash::from_bytes(key).to_hex().to_string()
    }

    /// Masks the secrets of this machine and the node's own token.
    fn masker(&self, environment: &Environment, config: &Config) -> Masker {
        Masker::new(known_secrets(environment, config).into_iter().chain([self.secret.clone()]))
    }

    /// Checks that every tool named with `--tools` exists.
    pub(crate) fn check_tools(
        &self,
        environment: &Environment,
        config: &Config,
        processes: Processes,
    ) -> Result<()> {
        let setup = Setup {
            processes,
            pending: environment.data.pending(),
            closed: Vec::new(),
            results: Arc::new(KeptResults::new(environment.data.results())),
            audit: Arc::new(LazyAudit::new(&environment.data, config)),
            one_shot: true,
            contain: self.contain,
            workers: None,
        };
        let machine = Arc::new(setup.machine(environment, config)?);
        offered(gantry_toolsets::node_tools(&machine), self.tools.as_deref()).map(drop)
    }
}

/// `--token-file`, then `GANTRY_TOKEN`, then the configuration.
fn token(environment: &Environment, config: &Config, args: &NodeArgs) -> Result<TokenSource> {
    if let Some(path) = &args.token_file {
        return Ok(TokenSource::File(environment.resolve(path)));
    }
    let variable = environment.variable("GANTRY_TOKEN").map(|value| value.to_string_lossy().into_owned());
    if let Some(text) = variable.filter(|text| !text.is_empty()) {
        return Ok(TokenSource::Given(Token::new(&text).map_err(usage)?));
    }
    if let Some(path) = &config.node.token_file {
        return Ok(TokenSource::File(path.clone()));
    }
    if let Some(text) = &config.node.token {
        return Ok(TokenSource::Given(Token::new(text).map_err(usage)?));
    }
    let message = "the node's token is missing: set GANTRY_TOKEN, --token-file FILE, or node.tokenFile in the \
                   configuration; `gantry nodes add ID` on the gateway creates a token";
    Err(UsageError(message.into()).into())
}

/// Returns the real path of the workspace. The directory must exist.
pub(crate) fn workspace(environment: &Environment, workspace: Option<&Path>) -> Result<PathBuf> {
    let path = environment.resolve(workspace.unwrap_or(&environment.current_dir));
    let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?;
    files.contained(&path).map_err(|err| UsageError(format!("cannot use the workspace: {err}")))?;
    Ok(path)
}

fn read_pem(environment: &Environment, path: &Path) -> Result<Vec<u8>> {
    let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?;
    let read = files.free(&environment.current_dir)?.open(path).and_then(|file| file.read_all(MAX_PEM_BYTES));
    read.map_err(|err| UsageError(format!("cannot read the certificates: {err}")).into())
}

/// Opens the process engine and reconnects to commands that earlier runs of this node left running.
async fn processes(home: &NodeHome) -> Result<Processes> {
    let options = ProcessesOptions::new(own_program()?, home.processes());
    let options = ProcessesOptions { keeper_args: vec![KEEPER_ARGUMENT.into()], ..options };
    let processes = Processes::recover(options).await?;
    for warning in processes.warnings() {
        tracing::warn!(warning, "recovery");
    }
    Ok(processes)
}

/// Builds the node's own gate (tools, policy, log) and its transfer service, which uses the same gate.
fn gate(
    environment: &Environment,
    config: &Config,
    joining: &Joining,
    home: &NodeHome,
    log: &NodeLog,
    processes: Processes,
) -> Result<(Gate, Arc<TransferService>)> {
    let mut closed = environment.closed();
    closed.extend(joining.token_file.clone());
    let results = Arc::new(KeptResults::new(environment.data.results()));
    let setup = Setup {
        processes,
        pending: home.pending(),
        closed: closed.clone(),
        results: results.clone(),
        audit: Arc::new(log.clone()),
        one_shot: false,
        contain: joining.contain,
        workers: None,
    };
    let machine = Arc::new(setup.machine(environment, config)?);
    machine.close_port(joining.options.gateway.port);
    if let Some(problem) = machine.isolation_problem() {
        tracing::warn!(problem, "isolation");
    }
    let registry = Registry::default();
    for tool in offered(gantry_toolsets::node_tools(&machine), joining.tools.as_deref())? {
        registry.register(tool)?;
    }
    let gate = Gate::new(GateParts {
        registry,
        settings: Live::new(gate_settings(environment, config)?),
        masker: joining.masker(environment, config),
        audit: Arc::new(log.clone()),
        results,
    });
    let parts = PartsFolder {
        root: environment.data.parts(),
        owner: parts_owner(&joining.id, &joining.options.gateway),
    };
    let transfers = transfer_service(&machine, &gate, None, joining.options.workspace.clone(), &parts)?;
    Ok((gate, transfers))
}

/// Returns all tools, or the named ones. An unknown name is an error.
fn offered(tools: Vec<Tool>, names: Option<&[String]>) -> Result<Vec<Tool>> {
    let Some(names) = names else { return Ok(tools) };
    let known: Vec<String> = tools.iter().map(|tool| tool.name().to_owned()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let hint = match nearest(unknown, known.iter().map(String::as_str)).first() {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the tools are {}", known.join(", ")),
        };
        return Err(UsageError(format!("--tools: unknown tool \"{unknown}\"; {hint}")).into());
    }
    Ok(tools.into_iter().filter(|tool| names.iter().any(|name| name == tool.name())).collect())
}

/// The first SIGINT or SIGTERM stops the node after its calls finish; the second stops it at once.
fn watch_signals(stop: CancellationToken, abort: CancellationToken) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for signals")?;
    tokio::spawn(async move {
        for token in [stop, abort] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            token.cancel();
        }
    });
    Ok(())
}

fn usage(err: impl std::fmt::Display) -> UsageError {
    UsageError(err.to_string())
}
