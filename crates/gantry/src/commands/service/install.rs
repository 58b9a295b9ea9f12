//! `gantry service install` writes a service file and starts it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use gantry_files::{Files, FilesOptions};
use gantry_node::{JoinedNode, NodeHome, TokenSource};
use gantry_store::GatewayLock;

use super::{Service, Which};
use crate::commands::node::{Joining, NodeArgs};
use crate::environment::{Environment, own_program};
use crate::exit::{Exit, UsageError};
use crate::local;
use crate::output::Output;
use crate::services::manager::Manager;
use crate::services::unit::{Role, Scope, ServiceManager, Unit, UnitName};

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The account that a system service runs as [default: the user who ran sudo]
    #[arg(long, value_name = "USER", requires = "system")]
    pub(crate) run_as: Option<String>,
    /// Directory that relative paths start in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Address and port that the gateway listens on [default: gateway.listen of the configuration]
    #[arg(long, value_name = "ADDR", conflicts_with = "node")]
    pub(crate) listen: Option<SocketAddr>,
    /// URL at which other machines reach the gateway
    #[arg(long, value_name = "URL", conflicts_with = "node")]
    pub(crate) public_url: Option<String>,
    /// Run the gateway without this machine's tools, like `gantry serve`
    #[arg(long, conflicts_with_all = ["node", "workspace"])]
    pub(crate) without_tools: bool,
    /// Print the service file without installing it
    #[arg(long)]
    pub(crate) print: bool,
}

pub(super) fn install(environment: &Environment, output: &Output, args: &InstallArgs) -> Result<Exit> {
    let scope = if args.which.system { Scope::System } else { Scope::User };
    let account = account(environment, args)?;
    if let Some(id) = &args.which.node {
        let id = Some(id.clone()).filter(|id| !id.is_empty());
        let node = NodeArgs { id, workspace: args.workspace.clone(), ..NodeArgs::default() };
        return install_node(environment, output, &node, &Installing { print: args.print, scope, account });
    }
    let service = Service::of(environment, Role::Gateway, scope)?;
    if !service.is_installed()
        && !args.print
        && let Some(running) = GatewayLock::running(&environment.data)
    {
        bail!(
            "a gateway runs on this data directory already (process {})\nhint: stop it first, for example with Ctrl-C \
             where it was started",
            running.pid
        );
    }
    let mut words = common_words(environment)?;
    words.push(if args.without_tools { "serve" } else { "up" }.to_owned());
    if !args.without_tools {
        let workspace = environment.resolve(args.workspace.as_deref().unwrap_or(&environment.current_dir));
        let opened = Files::new(FilesOptions::default()).and_then(|files| files.contained(&workspace));
        opened.map_err(|err| UsageError(format!("cannot use the workspace: {err}")))?;
        words.extend(["--workspace".to_owned(), text(&workspace)?]);
    }
    words.extend(args.listen.iter().flat_map(|listen| ["--listen".to_owned(), listen.to_string()]));
    words.extend(args.public_url.iter().flat_map(|url| ["--public-url".to_owned(), url.clone()]));
    put(environment, output, service, words, &Installing { print: args.print, scope, account })
}

/// How a service is installed.
#[derive(Debug, Clone)]
pub(crate) struct Installing {
    pub(crate) print: bool,
    pub(crate) scope: Scope,
    pub(crate) account: Option<String>,
}

impl Default for Installing {
    fn default() -> Self {
        Installing { print: false, scope: Scope::User, account: None }
    }
}

/// Installs the service of a node, from its record or from options.
pub(crate) fn install_node(
    environment: &Environment,
    output: &Output,
    args: &NodeArgs,
    how: &Installing,
) -> Result<Exit> {
    let mut config = environment.layers.load()?;
    config.resolve_paths(|path| environment.resolve(path));
    let joining = Joining::new(environment, &config, args)?;
    let TokenSource::File(token_file) = &joining.options.token else {
        let message =
            "a service reads its token from a file: save the token with mode 0600 and add --token-file FILE";
        return Err(UsageError(message.into()).into());
    };
    let manager = Manager::new(environment)?;
    // Otherwise the installed service would fail with this error on every start.
    manager.block_on(async {
        joining.check_tools(environment, &config, local::processes(&environment.data)?)
    })?;
    let mut words = common_words(environment)?;
    words.extend(node_words(environment, &joining, args, token_file)?);
    let service = Service::of(environment, Role::Node(joining.id.clone()), how.scope)?;
    put(environment, output, service, words, how)
}

fn put(
    environment: &Environment,
    output: &Output,
    service: Service,
    args: Vec<String>,
    how: &Installing,
) -> Result<Exit> {
    let manager = Manager::new(environment)?;
    let unit = Unit {
        name: service.unit.clone(),
        program: own_program()?,
        args,
        path: manager.login_path(environment),
        run_as: how.account.clone(),
        stop_seconds: service.stop_seconds,
    };
    let (file, name) = (&service.file, service.unit.name());
    if how.print {
        output.note(&format!("would be written to {}", file.display()));
        output.page(unit.text()?.trim_end());
        return Ok(Exit::Success);
    }
    check_manager(environment, &manager, &unit.name)?;
    let was_installed = service.is_installed();
    unit.write(file)?;
    if let Err(err) = manager.enable(&unit, file) {
        // A service that existed before stays. A new one is removed again.
        if !was_installed {
            let _ = manager.disable(&unit.name, unit.stop_seconds);
            Unit::remove(file).with_context(|| format!("cannot remove {}", file.display()))?;
            return Err(err.context("cannot start the service; it was not installed"));
        }
        return Err(err);
    }
    output.line(&format!("Installed and started {name} ({}).", file.display()));
    if unit.name.manager == ServiceManager::Systemd && how.scope == Scope::User {
        output.line("To keep it running while you are logged out, run: loginctl enable-linger");
    }
    Ok(Exit::Success)
}

/// Fails if the service manager cannot run services here.
pub(super) fn check_manager(environment: &Environment, manager: &Manager, unit: &UnitName) -> Result<()> {
    let Some(reason) = manager.problem(unit.scope) else { return Ok(()) };
    let foreground = match &unit.role {
        Role::Gateway => "run the gateway in the foreground with `gantry up`".to_owned(),
        Role::Node(id) => {
            let home = NodeHome::new(environment.data.root(), id)?;
            match (JoinedNode::read(&home)?.is_some(), environment.gateway.as_deref()) {
                (true, None) => format!("run the node in the foreground with `gantry node --id {id}`"),
                (_, gateway) => format!(
                    "run the node in the foreground with `gantry node --gateway {} --id {id} --token-file FILE`",
                    gateway.unwrap_or("URL")
                ),
            }
        }
    };
    if unit.scope == Scope::System {
        bail!("systemd does not run here ({reason})\nhint: {foreground}");
    }
    bail!(
        "this user has no systemd session here ({reason})\nhint: {foreground}, log in with ssh, or try `loginctl \
         enable-linger`"
    )
}

/// Returns why a node cannot run as a service of this user, if that is so.
pub(crate) fn node_problem(environment: &Environment) -> Option<String> {
    match Manager::new(environment) {
        Ok(manager) => manager.problem(Scope::User),
        Err(err) => Some(format!("{err:#}")),
    }
}

/// Returns the account of a system service. Agents' commands would run as root otherwise, so root must be asked for.
fn account(environment: &Environment, args: &InstallArgs) -> Result<Option<String>> {
    if !args.which.system {
        return Ok(None);
    }
    let sudo = environment.variable("SUDO_USER").and_then(|user| user.to_str()).map(str::to_owned);
    let account = args.run_as.clone().or(sudo);
    if !args.print && !rustix::process::geteuid().is_root() {
        let message = "a system service needs root: run the command with sudo, or leave --system out";
        return Err(UsageError(message.into()).into());
    }
    match account {
        Some(account) => Ok(Some(account)),
        None => {
            let message = "--run-as USER is missing: the account whose rights the tools have (root is possible, and \
                           lets agents change everything)";
            Err(UsageError(message.into()).into())
        }
    }
}

/// Returns the words that every service has. All paths are absolute, and nothing depends on the environment.
fn common_words(environment: &Environment) -> Result<Vec<String>> {
    let mut words = vec!["--data-dir".to_owned(), text(environment.data.root())?];
    if environment.layers.file != environment.data.config_file() {
        words.extend(["--config".to_owned(), text(&environment.layers.file)?]);
    }
    Ok(words)
}

fn node_words(
    environment: &Environment,
    joining: &Joining,
    args: &NodeArgs,
    token_file: &Path,
) -> Result<Vec<String>> {
    let home = NodeHome::new(environment.data.root(), &joining.id)?;
    let is_joined = environment.gateway.is_none() && JoinedNode::read(&home)?.is_some();
    let mut words = vec!["node".to_owned()];
    if !is_joined {
        words.extend(["--gateway".to_owned(), joining.options.gateway.to_string()]);
    }
    words.extend(["--id".to_owned(), joining.id.clone()]);
    // A node that joined keeps these in its record, unless they are given here.
    if !is_joined || args.workspace.is_some() {
        words.extend(["--workspace".to_owned(), text(&joining.options.workspace)?]);
    }
    if !is_joined || args.token_file.is_some() {
        words.extend(["--token-file".to_owned(), text(token_file)?]);
    }
    if let Some(tools) = &args.tools {
        words.extend(["--tools".to_owned(), tools.join(",")]);
    }
    if let Some(file) = args.tls_ca.as_deref().or_else(|| environment.tls_ca()) {
        words.extend(["--tls-ca".to_owned(), text(&environment.resolve(file))?]);
    }
    if let Some(level) = args.log_level {
        words.extend(["--log-level".to_owned(), level.name().to_owned()]);
    }
    words.extend(args.contain.then(|| "--contain".to_owned()));
    words.extend(args.insecure.then(|| "--insecure".to_owned()));
    Ok(words)
}

fn text(path: &Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    Ok(text.ok_or_else(|| UsageError(format!("{} is not UTF-8", path.display())))?)
}
