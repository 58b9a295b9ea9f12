//! Joins a gateway, in the foreground, until it is told to stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use gantry_files::{FileError, Files, FilesOptions};
use gantry_net::{GatewayUrl, Trust};
use gantry_node::{
    ExitReason, Node, NodeHome, NodeLog, NodeOptions, Pace, Rejoin, Token, TokenSource, check_address,
};
use gantry_process::{Processes, ProcessesOptions};
use gantry_store::KeptResults;
use gantry_tool::{Gate, GateParts, Masker, Policy, Registry, Tool, nearest};
use gantry_toolsets::{PartsFolder, transfer_service};
use gantry_transfer::TransferService;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{NodeArgs, renamed};
use crate::config::Config;
use crate::environment::{Environment, own_program, restored_modes};
use crate::exit::{Exit, UsageError};
use crate::local::{KEEPER_ARGUMENT, Setup, known_secrets, sensitive_paths};
use crate::logging::{self, GateEvents};
use crate::output::Output;

/// A file with certificates beyond this is a mistake.
const MAX_PEM_BYTES: u64 = 1 << 20;

pub(super) fn run(mut environment: Environment, output: &Output, args: &NodeArgs) -> Result<Exit> {
    let level = args.log_level.map(|level| format!("log.level={:?}", level.name()));
    environment.layers.overrides.extend(level);
    let mut config = environment.layers.load()?;
    config.resolve_paths(|path| environment.resolve(path));
    config.warnings().iter().for_each(|warning| output.warning(warning));
    // Its environment may hold its token.
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
    // The engine of its processes ends with it.
    drop(runtime);
    let ExitReason::Unauthorized { reason, rejoin } = over else { return Ok(Exit::Success) };
    if let Rejoin::UnderId(new_id) = &rejoin {
        renamed::hand_over(environment.data.root(), &own_home, new_id, &badge);
        if let Err(err) =
            leave_parts(&environment, &parts_owner(own_home.id(), &gateway), &parts_owner(new_id, &gateway))
        {
            tracing::warn!(newId = new_id, error = %err, "partsStay");
        }
    }
    let _ = log.flush();
    let advice = advice(own_home.id(), &rejoin);
    output.error(&format!("the gateway does not let this node in: {reason}{advice}"));
    Ok(Exit::Unauthorized)
}

/// Whose the parts of files are that come: another gateway knows nothing of them.
fn parts_owner(id: &str, gateway: &GatewayUrl) -> String {
    let gateway = blake3::hash(gateway.to_string().as_bytes()).to_hex();
    format!("{id}-{}", &gateway[..16])
}

/// Transfers go on under the node's new id.
fn leave_parts(environment: &Environment, owner: &str, new_owner: &str) -> Result<(), FileError> {
    let files = Files::new(FilesOptions { closed: Vec::new(), pending_dir: None })?;
    files.part_records(&environment.data.parts(), owner)?.hand_over_to(new_owner)
}

/// What has to be done before the node is let in, where the gateway's reason does not say it.
fn advice(id: &str, rejoin: &Rejoin) -> String {
    match rejoin {
        Rejoin::UnderId(_) => String::new(),
        Rejoin::WithNewToken => "; start it again with the new token".to_owned(),
        Rejoin::Unexpected => format!(
            "; `gantry nodes renew {id}` on the gateway makes a new token (`gantry nodes add {id}` if it is not known \
             there), and the node is then started again"
        ),
    }
}

/// What was asked for, checked before anything is started.
pub(super) struct Joining {
    pub(super) id: String,
    pub(super) options: NodeOptions,
    tools: Option<Vec<String>>,
    contain: bool,
    /// The token as it is now, so that it is never shown.
    secret: String,
    token_file: Option<PathBuf>,
}

impl Joining {
    pub(super) fn new(environment: &Environment, config: &Config, args: &NodeArgs) -> Result<Joining> {
        let missing = |what: &str| UsageError(format!("give {what}; `gantry node --help` shows examples"));
        let id = args.id.clone().ok_or_else(|| missing("--id ID"))?;
        gantry_protocol::check_node_id(&id).map_err(usage)?;
        if id == gantry_toolsets::LOCAL_NODE {
            return Err(
                UsageError(format!("\"{id}\" is the gateway's own machine; a node has another id")).into()
            );
        }
        let gateway =
            GatewayUrl::parse(environment.gateway.as_deref().ok_or_else(|| missing("--gateway URL"))?)
                .map_err(usage)?;
        check_address(&gateway, args.insecure).map_err(usage)?;
        let trust = match &args.tls_ca {
            None => environment.trust()?,
            Some(path) => Trust::And { name: path.clone(), pem: read_pem(environment, path)? },
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
            token,
            workspace: workspace(environment, args.workspace.as_deref())?,
            max_calls: config.node.max_calls,
            pace: Pace::default(),
        };
        Ok(Joining { id, options, tools: args.tools.clone(), contain: args.contain, secret, token_file })
    }
}

impl Joining {
    /// By which the node is known again when it was renamed: its token stays the same.
    fn badge(&self) -> String {
        let key = blake3::derive_key("gantry node badge", self.secret.as_bytes());
        blake3::Hash::from_bytes(key).to_hex().to_string()
    }

    /// Knows the secrets of this machine, and the node's own token.
    fn masker(&self, environment: &Environment, config: &Config) -> Masker {
        Masker::new(known_secrets(environment, config).into_iter().chain([self.secret.clone()]))
    }

    /// Whether there are all the tools that were named.
    pub(super) fn check_tools(
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
            one_shot: true,
            contain: self.contain,
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
    let message = "there is no token: give --token-file FILE, GANTRY_TOKEN or node.tokenFile in the configuration; \
                   `gantry nodes add ID` on the gateway makes one";
    Err(UsageError(message.into()).into())
}

/// A directory that is there, by its real path.
fn workspace(environment: &Environment, workspace: Option<&Path>) -> Result<PathBuf> {
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

/// With what starts of this node before left running.
async fn processes(home: &NodeHome) -> Result<Processes> {
    let options = ProcessesOptions::new(own_program()?, home.processes());
    let options = ProcessesOptions { keeper_args: vec![KEEPER_ARGUMENT.into()], ..options };
    let processes = Processes::recover(options).await?;
    for warning in processes.warnings() {
        tracing::warn!(warning, "recovery");
    }
    Ok(processes)
}

/// The node's own gate: its tools, its policy, its log; and its part in transfers, which the gate judges too.
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
        one_shot: false,
        contain: joining.contain,
    };
    let machine = Arc::new(setup.machine(environment, config)?);
    let registry = Registry::default();
    for tool in offered(gantry_toolsets::node_tools(&machine), joining.tools.as_deref())? {
        registry.register(tool)?;
    }
    let gate = Gate::new(GateParts {
        registry,
        policy: Policy::new(config.policy.build_rules()?, sensitive_paths(environment, config), closed),
        masker: joining.masker(environment, config),
        audit: Arc::new(log.clone()),
        results,
        max_result_chars: config.max_tool_result_chars,
        max_mcp_result_chars: config.mcp.max_tool_result_chars,
    });
    let parts = PartsFolder {
        root: environment.data.parts(),
        owner: parts_owner(&joining.id, &joining.options.gateway),
    };
    let transfers = transfer_service(&machine, &gate, None, joining.options.workspace.clone(), &parts)?;
    Ok((gate, transfers))
}

/// All tools, or those that were named; a name that is none is a mistake.
fn offered(tools: Vec<Tool>, names: Option<&[String]>) -> Result<Vec<Tool>> {
    let Some(names) = names else { return Ok(tools) };
    let known: Vec<String> = tools.iter().map(|tool| tool.name().to_owned()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let hint = match nearest(unknown, known.iter().map(String::as_str)).first() {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", known.join(", ")),
        };
        return Err(UsageError(format!("--tools: a node has no tool \"{unknown}\"; {hint}")).into());
    }
    Ok(tools.into_iter().filter(|tool| names.iter().any(|name| name == tool.name())).collect())
}

/// The first SIGINT or SIGTERM stops the node, a second one does not wait for calls.
fn watch_signals(stop: CancellationToken, abort: CancellationToken) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for signals")?;
    tokio::spawn(async move {
        for told in [stop, abort] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            told.cancel();
        }
    });
    Ok(())
}

fn usage(err: impl std::fmt::Display) -> UsageError {
    UsageError(err.to_string())
}
